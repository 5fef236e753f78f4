//! `mdl fetch`: downloads what a remote has and this repository lacks.

use super::{fetch_from, named};
use crate::commands::prelude::*;
use mdl_remote::tracking::Choice;

/// Bring over versions from another place, and note where its branches stand
///
/// Only what is lacking is carried, as it is stored there: deltas travel as deltas. Everything is decoded and hashed
/// before it counts. A transfer that was cut off goes on where it was when the command is run again. Branches of the
/// place are noted as REMOTE/BRANCH; your own branches and files stay as they are (see `mdl pull`).
///
/// In a clone of one branch (`mdl clone --depth`) only that branch comes where none is named; others and tags come by
/// their names. What comes to a partial clone has its contents as far as --depth and --only of the clone say.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl fetch\n  mdl fetch origin main\n  mdl log origin/main")]
pub struct Args {
    /// Remote. Default: origin, or the only one there is.
    remote: Option<String>,
    /// Branches or tags. Default: all branches, and tags too.
    branches: Vec<String>,
    /// Do not bring over tags.
    #[arg(long)]
    no_tags: bool,
    /// Forget branches that are gone there.
    #[arg(short, long)]
    prune: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (name, remote) = named(&repo, args.remote.as_deref())?;
    let choice = Choice { branches: args.branches.clone(), tags: !args.no_tags, prune: args.prune };
    let done = fetch_from(context, &repo, &name, &remote, choice)?;
    if !context.wants_text(|| Ok(done.json(&name)))? {
        return Ok(());
    }
    if done.moves.is_empty() {
        return Ok(writeln!(context.out, "Already up to date")?);
    }
    done.tell(context, &remote)
}
