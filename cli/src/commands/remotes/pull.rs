//! `mdl pull`: fetches, then fast-forwards the current branch.

use super::{elsewhere, fetch_from, named};
use crate::{
    commands::{changes::tell_merged, prelude::*},
    errors::unforced,
};
use mdl_remote::tracking::Choice;
use mdl_repo::Merged;

/// Fetch from another place and move the present branch forward to what came
///
/// Branches that have parted are refused: weights have no merge that is right without being asked for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl pull\n  mdl pull origin main")]
pub struct Args {
    /// Remote. Default: origin, or the only one there is.
    remote: Option<String>,
    /// Branch there. Default: that of the same name as the present one.
    branch: Option<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (name, remote) = named(&repo, args.remote.as_deref())?;
    let detached = || RepoError::user("HEAD is detached: it is not clear what to pull", "name a branch");
    let branch = args.branch.clone().map_or_else(|| present_branch(&repo), |b| Ok(Some(b)))?.ok_or_else(detached)?;
    let choice = Choice { branches: vec![branch.clone()], tags: true, prune: false };
    let done = fetch_from(context, &repo, &name, &remote, choice)?;
    let noted = RefName::remote(&name, &branch)?;
    let gone = || elsewhere(&name)(RepoError::not_found(Missing::Branch, format!("{branch} at {name}")));
    let tip = repo.refs().get(&noted)?.ok_or_else(gone)?;
    let merged = mdl_repo::merge(&repo, &tip, &format!("{name}/{branch}"), &context.bars).map_err(unforced)?;
    let (result, from) = match merged {
        Merged::UpToDate => ("up_to_date", None),
        Merged::FastForward { from, .. } => ("fast_forward", from),
    };
    let document = || {
        let mut document = done.json(&name);
        document["result"] = result.into();
        document["from"] = from.map(|id| id.to_hex()).into();
        document["commit"] = repo.refs().head_commit()?.map(|id| id.to_hex()).into();
        Ok(document)
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    if !done.moves.is_empty() {
        done.tell(context, &remote)?;
    }
    tell_merged(context, &merged)
}
