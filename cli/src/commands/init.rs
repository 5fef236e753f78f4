//! `mdl init`: makes a repository. Neighbours: `Repo::init`. It must not know what a repository is made of.

use super::shared::refused;
use crate::{context::Context, errors::Result};
use mdl_repo::{Head, Repo};
use serde_json::json;
use std::{io::Write, path::PathBuf};

/// Make a repository in a directory, beside the checkpoints that are there
///
/// The repository lives in DIR/.mdl. Files in DIR are left alone until the first commit. A repository that exists is left as
/// it is.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  mdl init\n  mdl init runs/llama -b train\n  mdl init --bare /srv/models/llama.mdl"
)]
pub struct Args {
    /// Directory whose contents are versioned; made if it does not exist. Default: the current one.
    dir: Option<PathBuf>,
    /// Make a repository without a work tree, in DIR itself: for servers and shared stores.
    #[arg(long)]
    bare: bool,
    /// Name of the first branch [default: main]; of no effect where there is a repository already.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let named = args.dir.clone().or_else(|| context.global.repo.clone());
    let dir = named.unwrap_or_else(|| PathBuf::from("."));
    if dir.is_file() {
        return Err(refused(format!("{} is a file", dir.display()), "name a directory"));
    }
    let wanted = args.branch.as_deref().unwrap_or("main");
    let (repo, made) = Repo::init(&dir, args.bare, wanted, context.engine()?)?;
    let branch = match repo.refs().head()? {
        Head::Branch(name) => Some(name),
        Head::Detached(_) => None,
    };
    if let Some(name) = args.branch.as_ref().filter(|b| branch.as_ref() != Some(b)) {
        context.note(&format!(
            "warning: -b {name} has no effect: the repository exists. `mdl switch -c {name}` makes the branch"
        ));
    }
    let place = repo.dir().unwrap_or(&dir).display().to_string();
    if context.global.json {
        return context.json(&json!({
            "repository": place,
            "work_tree": repo.work().map(|w| w.display().to_string()),
            "branch": branch,
            "created": made,
        }));
    }
    if context.chatty() {
        let what = if made {
            "Made an empty repository in"
        } else {
            "There is a repository already in"
        };
        writeln!(context.out, "{what} {place}")?;
    }
    Ok(())
}
