//! `mdl merge`: takes another branch's versions into the present one.

use super::{changes::tell_merged, prelude::*};
use crate::errors::unforced;
use mdl_repo::Merged;

/// Move the present branch forward to a revision that builds on it
///
/// Branches that have parted are refused: weights have no merge that is right without being asked for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mdl merge ablation")]
pub struct Args {
    /// Revision.
    #[arg(value_parser = crate::args::revision)]
    rev: String,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let commit = mdl_repo::resolve(&repo, &args.rev)?;
    let merged = mdl_repo::merge(&repo, &commit, &args.rev, &context.bars).map_err(unforced)?;
    let document = || {
        Ok(match &merged {
            Merged::UpToDate => {
                json!({"result": "up_to_date", "commit": repo.refs().head_commit()?.map(|id| id.to_hex())})
            }
            Merged::FastForward { from, to } => {
                json!({"result": "fast_forward", "from": from.map(|id| id.to_hex()), "commit": to.to_hex()})
            }
        })
    };
    if context.wants_text(document)? { tell_merged(context, &merged) } else { Ok(()) }
}
