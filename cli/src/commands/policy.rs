//! `mdl policy`: the rules of lossy commits, kept in the repository with their history.

use super::{editor, prelude::*};
use mdl_repo::{BUILT_IN, Policy, StoredPolicy};
use std::{
    fs,
    io::{self, Read},
};

/// List, show, edit and test the policies of lossy commits
///
/// A policy says what a lossy commit may try (lattice, bins), how much quality it may cost (the gate), what becomes of
/// optimizer moments and which tensors are left alone; docs/policies.md explains the keys. Policies are kept in the
/// repository with every earlier version; a commit keeps the exact text it was made under.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl policy list
  mdl policy show lossy > mine.toml
  mdl policy edit mine --from mine.toml
  mdl policy test mine out/checkpoint-2000")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the policies
    List,
    /// Print a policy's text
    Show {
        /// Policy; NAME@{1} is the version before the last change.
        name: String,
    },
    /// Change a policy, or make a new one, in $EDITOR or from a file
    Edit {
        /// Policy.
        name: String,
        /// File with the new text (`-`: standard input) instead of the editor.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Check a policy; with a checkpoint, list what it would do to each tensor
    Test {
        /// Policy, or a .toml file.
        name: String,
        /// Checkpoint directory or file.
        path: Option<PathBuf>,
    },
    /// Forget the repository's own policy of this name
    Remove {
        /// Policy.
        name: String,
    },
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = match (context.repo(), &args.verb) {
        (Ok(repo), _) => repo,
        // The built-in ones are there without a repository.
        (Err(CliError::Repo(RepoError::NotFound { what: Missing::Repository, .. })), Verb::List) => {
            return list(context, &built_in());
        }
        (Err(error @ CliError::Repo(RepoError::NotFound { what: Missing::Repository, .. })), Verb::Show { name }) => {
            let found = built_in().into_iter().find(|p| p.name == *name).ok_or(error)?;
            return show(context, &found.name, &found.text);
        }
        (Err(error), _) => return Err(error),
    };
    match &args.verb {
        Verb::List => list(context, &mdl_repo::policies(&repo)?),
        Verb::Show { name } => {
            let policy = mdl_repo::policy(&repo, name)?;
            show(context, &policy.name, &policy.text)
        }
        Verb::Edit { name, from } => edit(context, &repo, name, from.as_deref()),
        Verb::Test { name, path } => test(context, &repo, name, path.as_deref()),
        Verb::Remove { name } => {
            mdl_repo::remove_policy(&repo, name)?;
            context.emit(&json!({"removed": name}), b"")
        }
    }
}

/// The policies that every repository has.
fn built_in() -> Vec<StoredPolicy> {
    let stored = |(name, about, text): (&str, &'static str, &str)| StoredPolicy {
        name: name.to_owned(),
        id: None,
        text: text.to_owned(),
        about: Some(about),
    };
    BUILT_IN.into_iter().map(stored).collect()
}

fn show(context: &mut Context, name: &str, text: &str) -> Result<()> {
    context.emit(&json!({"name": name, "text": text}), text.as_bytes())
}

fn list(context: &mut Context, all: &[StoredPolicy]) -> Result<()> {
    if context.global.json {
        let json: Vec<Value> = all.iter().map(policy_json).collect();
        return context.json(&json!({"policies": json}));
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for p in all {
        let place = match (p.id, p.about) {
            (None, _) => "built in".to_owned(),
            (Some(id), Some(_)) => format!("{} (instead of the built-in one)", id.short()),
            (Some(id), None) => id.short(),
        };
        table.row([visible(&p.name), place, p.about.filter(|_| p.id.is_none()).unwrap_or_default().to_owned()]);
    }
    context.print(&table.lines(0))
}

fn policy_json(p: &StoredPolicy) -> Value {
    json!({
        "name": p.name,
        "id": p.id.map(|id| id.to_hex()),
        "built_in": p.about.is_some() && p.id.is_none(),
        "about": p.about,
        "text": p.text,
    })
}

fn edit(context: &mut Context, repo: &Repo, name: &str, from: Option<&Path>) -> Result<()> {
    let old = match mdl_repo::policy(repo, name) {
        Ok(policy) => policy.text,
        // A new one begins as the default.
        Err(RepoError::NotFound { .. }) => mdl_repo::policy(repo, mdl_repo::DEFAULT)?.text,
        Err(e) => return Err(e.into()),
    };
    let text = match from {
        Some(path) if path.as_os_str() == "-" => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            text
        }
        Some(path) => fs::read_to_string(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?,
        None => {
            let hint = "give the new text with --from FILE, or - for standard input";
            editor::edited(repo, "POLICY_EDIT.toml", &old, "no editor can be asked", hint)?
        }
    };
    let id = mdl_repo::set_policy(repo, name, &text)?;
    let line = format!("policy {} is now {}", visible(name), id.short());
    context.confirm(&json!({"name": name, "id": id.to_hex()}), line)
}

fn test(context: &mut Context, repo: &Repo, name: &str, path: Option<&Path>) -> Result<()> {
    let policy: Policy = mdl_repo::policy(repo, name)?;
    mdl_repo::check_policy(&policy)?;
    let tensors = path.map_or(Ok(Vec::new()), |path| mdl_repo::treatments(&policy, path))?;
    if context.global.json {
        let rows: Vec<Value> =
            tensors.iter().map(|t| json!({"tensor": t.label, "bytes": t.bytes, "treatment": t.treatment})).collect();
        return context
            .json(&json!({"name": policy.name, "sound": true, "lossless": policy.is_lossless(), "tensors": rows}));
    }
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    for t in &tensors {
        table.row([visible(&t.label), crate::render::size(t.bytes), t.treatment.clone()]);
    }
    context.print(&table.lines(0))?;
    let evaluator = match (policy.is_lossless(), &policy.fixed) {
        (true, _) => "every bit is kept",
        (_, Some(_)) => "without --eval its [fixed] configuration is used",
        _ => "without --eval it keeps every bit: it names no [fixed] configuration",
    };
    Ok(writeln!(context.out, "policy {} is sound; {evaluator}", visible(&policy.name))?)
}
