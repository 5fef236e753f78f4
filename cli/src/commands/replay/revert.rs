//! `mdl revert`: takes the changes of versions back.

use super::{Control, Sides, refuse_both, tell, versions};
use crate::{commands::prelude::*, errors::unforced};
use mdl_repo::{Operation, ReplayOptions, TensorRule};

/// Take the changes of versions back, by a new version
///
/// Weights change back by as much as they changed in REV, and keep what was learned since: element by element, in f64
/// and rounded once. Tensors that nothing has changed since get the bytes that they had before REV. State of an
/// optimizer that was changed since stays as it is.
///
/// With --exact every byte is as before REV, or nothing is done and the tensors are named that were changed since.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl revert HEAD
  mdl revert main~3 --exact
  mdl revert main~3..main
  mdl revert --abort")]
pub struct Args {
    /// Revisions, or ranges A..B: what B has and A has not, the newest first.
    #[arg(value_name = "REV", value_parser = crate::args::revision)]
    revs: Vec<String>,
    /// Give back the very bytes, or refuse.
    #[arg(long, requires = "revs")]
    exact: bool,
    /// Of a merge: the parent, from 1, that its change is told from.
    #[arg(short, long, value_name = "N", requires = "revs", value_parser = clap::value_parser!(u64).range(1..))]
    mainline: Option<u64>,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    control: Control,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    refuse_both(&args.control, !args.revs.is_empty(), Operation::Revert)?;
    if args.control.is_given() {
        return args.control.run(context, &repo, Operation::Revert, &args.sides);
    }
    let rule = if args.exact { TensorRule::Exact } else { TensorRule::Update };
    let options = ReplayOptions { mainline: args.mainline, ..args.sides.options(rule) };
    let mut all = Vec::new();
    for rev in &args.revs {
        let mut found = versions(&repo, std::slice::from_ref(rev))?;
        found.reverse();
        all.extend(found);
    }
    let outcome = mdl_repo::revert(&repo, &all, &options, &context.bars).map_err(unforced)?;
    tell(context, &repo, &outcome, Operation::Revert)
}
