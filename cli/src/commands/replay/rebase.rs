//! `mdl rebase`: makes this side's versions anew on top of others.

use super::{Control, Sides, refuse_both, tell};
use crate::{commands::prelude::*, errors::unforced};
use mdl_repo::{Operation, TensorRule};

/// Put this side's versions on top of another version
///
/// Those that UPSTREAM does not have are made anew, oldest first. A version is a snapshot: its weights, its optimizer
/// and its other files stay what they were, and so do its author, date, step and metrics. Files that only the other
/// side changed are taken from there. Where both sides changed a file without tensors, such as config.json, it stops
/// and says so.
///
/// With --update a version's weights change by as much as they changed when it was made, on top of what the other side
/// learned; its metrics are then left out, as the result was not measured.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl rebase origin/main
  mdl rebase main --onto release
  mdl rebase --continue --theirs config.json
  mdl rebase --abort")]
pub struct Args {
    /// The other side.
    #[arg(value_name = "UPSTREAM", value_parser = crate::args::revision)]
    upstream: Option<String>,
    /// Put the versions on top of this one instead of UPSTREAM.
    #[arg(long, value_name = "REV", requires = "upstream", value_parser = crate::args::revision)]
    onto: Option<String>,
    /// Keep each version's weights as they are (the default).
    #[arg(long, requires = "upstream")]
    snapshot: bool,
    /// Change weights by as much as they changed in each version.
    #[arg(long, requires = "upstream", conflicts_with = "snapshot")]
    update: bool,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    control: Control,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    refuse_both(&args.control, args.upstream.is_some(), Operation::Rebase)?;
    let Some(upstream) = &args.upstream else {
        return args.control.run(context, &repo, Operation::Rebase, &args.sides);
    };
    let upstream = mdl_repo::resolve(&repo, upstream)?;
    let onto = args.onto.as_ref().map(|rev| mdl_repo::resolve(&repo, rev)).transpose()?;
    let rule = if args.update { TensorRule::Update } else { TensorRule::Snapshot };
    let options = args.sides.options(rule);
    let outcome = mdl_repo::rebase(&repo, &upstream, onto.as_ref(), &options, &context.bars).map_err(unforced)?;
    tell(context, &repo, &outcome, Operation::Rebase)
}
