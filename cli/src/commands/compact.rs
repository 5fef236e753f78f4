//! `mdl compact`: short delta chains and few packs.

use super::prelude::*;
use mdl_repo::CompactOptions;

/// Make the versions people read fast to read, and merge small packs
///
/// Tensors of branch tips end at most one difference from a tensor that is stored whole, those of tags four; no chain
/// stays longer than `delta.max_depth`. Ids never change. Reading gets faster, and the repository may grow.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl compact --dry-run\n  mdl compact")]
pub struct Args {
    /// Only say what would be done; sizes are then estimates.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let options = CompactOptions { dry_run: args.dry_run };
    let r = mdl_repo::compact(&repo, &options, &context.bars)?;
    if !context.wants_text(|| Ok(&r))? {
        return Ok(());
    }
    let would = if r.dry_run { "would be " } else { "" };
    writeln!(context.out, "{} {would}encoded anew", count(r.tensors_reencoded, "tensor"))?;
    writeln!(context.out, "packs:          {} -> {}", r.packs_before, r.packs_after)?;
    writeln!(context.out, "bytes:          {} -> {}", size(r.bytes_before), size(r.bytes_after))?;
    writeln!(context.out, "deepest chain:  {} -> {}", r.deepest_before, r.deepest_after)?;
    Ok(())
}
