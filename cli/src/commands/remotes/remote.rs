//! `mdl remote`: adds, lists and removes remotes.

use crate::commands::prelude::*;
use mdl_remote::place::kept;
use mdl_repo::{REMOTES, Remote, WriteTransaction};

/// Name, list or forget other places of the same history
///
/// A place is a directory, a bucket (s3://BUCKET/PREFIX, gs://, az://) or a server's repository
/// (https://HOST/OWNER/NAME). Credentials are never kept here: buckets take theirs from the environment, servers from
/// MDL_TOKEN or ~/.config/mdl/credentials.json.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl remote add origin s3://team-models/llama
  mdl remote -v
  mdl remote remove origin")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// With every remote its URL.
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Name a place.
    Add {
        /// What it is called here.
        name: String,
        /// Where it is.
        url: String,
    },
    /// Change where a named place is.
    SetUrl {
        /// What it is called here.
        name: String,
        /// Where it is now.
        url: String,
    },
    /// Call a place something else.
    Rename {
        /// What it is called here.
        old: String,
        /// What it is to be called.
        new: String,
    },
    /// List the places; what happens where nothing else is said.
    List,
    /// Forget a place, and what was noted of its branches.
    Remove {
        /// What it is called here.
        name: String,
    },
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    match &args.action {
        None | Some(Action::List) => list(context, args.verbose),
        Some(Action::Add { name, url }) => add(context, name, url),
        Some(Action::SetUrl { name, url }) => set_url(context, name, url),
        Some(Action::Rename { old, new }) => rename(context, old, new),
        Some(Action::Remove { name }) => remove(context, name),
    }
}

fn add(context: &mut Context, name: &str, url: &str) -> Result<()> {
    let mut repo = context.repo()?;
    let remote = Remote { url: kept(url)?, ..Remote::default() };
    repo.change_remote(name, &|noted| match noted {
        None => Ok(Some(remote.clone())),
        Some(_) => {
            let hint = format!("change it with `mdl remote set-url {name} URL`");
            Err(RepoError::user(format!("there is a remote {name} already"), hint))
        }
    })?;
    confirm_remote(context, name, &remote)
}

fn set_url(context: &mut Context, name: &str, url: &str) -> Result<()> {
    let mut repo = context.repo()?;
    let (name, old) = super::named(&repo, Some(name))?;
    let remote = Remote { url: kept(url)?, ..old };
    repo.change_remote(&name, &|noted| {
        let url = remote.url.clone();
        Ok(noted.map(|noted| Remote { url, ..noted }))
    })?;
    confirm_remote(context, &name, &remote)
}

/// Adds the new name first and drops the old one last: a promisor remote, without which versions would be lost, always
/// has a name.
fn rename(context: &mut Context, old: &str, new: &str) -> Result<()> {
    let mut repo = context.repo()?;
    let (old, remote) = super::named(&repo, Some(old))?;
    // A kill leaves the same remote under both names.
    let taken = || RepoError::user(format!("there is a remote {new} already"), "choose another name");
    if old == new {
        return Err(taken().into());
    }
    repo.change_remote(new, &|noted| match noted {
        Some(other) if other != remote => Err(taken()),
        _ => Ok(Some(remote.clone())),
    })?;
    let who = repo.config().signature();
    for (branch, id) in repo.refs().list(&format!("{REMOTES}{old}/"))? {
        let (from, to) = (RefName::remote(&old, &branch)?, RefName::remote(new, &branch)?);
        let message = format!("remote: renamed {old} to {new}");
        let transaction = WriteTransaction::begin(&repo)?;
        let there = repo.refs().get(&to)?;
        transaction.update_ref(&to, there, Some(id), &who, &message)?;
        transaction.update_ref(&from, Some(id), None, &who, &message)?;
    }
    repo.set_remote(&old, None)?;
    let document = json!({"remote": new, "was": old, "url": remote.url});
    context.confirm(&document, format!("Remote {old} is now {new}"))
}

fn confirm_remote(context: &mut Context, name: &str, remote: &Remote) -> Result<()> {
    context.confirm(&json!({"remote": name, "url": remote.url}), format!("Remote {name} is {}", remote.url))
}

fn list(context: &mut Context, verbose: bool) -> Result<()> {
    let remotes = context.repo()?.config().remotes();
    if context.global.json {
        let rows = remotes.iter().map(|(name, Remote { url, partial, only, depth, branch })| {
            json!({"name": name, "url": url, "partial": partial, "only": only, "depth": depth, "branch": branch})
        });
        return context.json(&json!({"remotes": rows.collect::<Vec<_>>()}));
    }
    for (name, r) in &remotes {
        if verbose { writeln!(context.out, "{name}\t{}", r.url)? } else { writeln!(context.out, "{name}")? }
    }
    Ok(())
}

fn remove(context: &mut Context, name: &str) -> Result<()> {
    let mut repo = context.repo()?;
    let (name, remote) = super::named(&repo, Some(name))?;
    if remote.partial {
        let what = "what this partial repository does not hold: without it, versions would be lost";
        return Err(refused(format!("{name} has {what}"), "clone the whole of it elsewhere first"));
    }
    let who = repo.config().signature();
    let noted = format!("{REMOTES}{name}/");
    for (branch, id) in repo.refs().list(&noted)? {
        let full = RefName::remote(&name, &branch)?;
        let transaction = WriteTransaction::begin(&repo)?;
        transaction.update_ref(&full, Some(id), None, &who, "remote: removed")?;
    }
    repo.set_remote(&name, None)?;
    context.confirm(&json!({"removed": name}), format!("Forgot {name}"))
}
