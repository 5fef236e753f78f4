//! `mdl cherry-pick`: makes the changes of versions on top of the present one.

use super::{Control, Sides, refuse_both, tell, versions};
use crate::{commands::prelude::*, errors::unforced};
use mdl_repo::{Operation, ReplayOptions, TensorRule};

/// Make the changes of other versions here too
///
/// Weights change by as much as they changed in REV, element by element, in f64 and rounded once. Tensors that only REV
/// changed get its bytes; state of an optimizer that both sides changed stays as it is here. Author, date, step and
/// message are kept; metrics only if the weights are those of REV. All versions are made before the branch moves, once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl cherry-pick ablation
  mdl cherry-pick v1.0..ablation
  mdl cherry-pick ablation --exact
  mdl cherry-pick --continue --ours 'config.json'")]
pub struct Args {
    /// Revisions, or ranges A..B: what B has and A has not.
    #[arg(value_name = "REV", value_parser = crate::args::revision)]
    revs: Vec<String>,
    /// Change weights by as much as they changed in REV (the default).
    #[arg(long, requires = "revs")]
    update: bool,
    /// Take the weights of REV as they are where both sides changed them.
    #[arg(long, requires = "revs", conflicts_with = "update")]
    snapshot: bool,
    /// Take bytes of REV or refuse: nothing that both sides changed.
    #[arg(long, requires = "revs", conflicts_with_all = ["update", "snapshot"])]
    exact: bool,
    /// Of a merge: the parent, from 1, that its change is told from.
    #[arg(short, long, value_name = "N", requires = "revs", value_parser = clap::value_parser!(u64).range(1..))]
    mainline: Option<u64>,
    /// Say in the message which version it was picked from.
    #[arg(short = 'x', requires = "revs")]
    cite: bool,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    control: Control,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    refuse_both(&args.control, !args.revs.is_empty(), Operation::CherryPick)?;
    if args.control.is_given() {
        return args.control.run(context, &repo, Operation::CherryPick, &args.sides);
    }
    let rule = match (args.exact, args.snapshot) {
        (true, _) => TensorRule::Exact,
        (_, true) => TensorRule::Snapshot,
        _ => TensorRule::Update,
    };
    let options = ReplayOptions { mainline: args.mainline, cite: args.cite, ..args.sides.options(rule) };
    let versions = versions(&repo, &args.revs)?;
    let outcome = mdl_repo::cherry_pick(&repo, &versions, &options, &context.bars).map_err(unforced)?;
    tell(context, &repo, &outcome, Operation::CherryPick)
}
