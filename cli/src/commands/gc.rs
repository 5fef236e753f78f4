//! `mdl gc`: frees what nothing reaches.

use super::{prelude::*, shared::parse_age};
use mdl_repo::GcOptions;
use std::time::Duration;

/// Delete what no branch, tag, HEAD or reflog reaches
///
/// Moves of the last `gc.reflog_days` days keep their versions, and anything written in the last `gc.grace_hours` hours
/// stays. Versions that were pruned longer ago lose their contents, and those that were under a lossy policy and are no
/// longer new (docs/policies.md, `exact_latest`) their exact contents: the approximation stands for them. If anything
/// that must be read is damaged, nothing is deleted.
///
/// In an object store, where no lock keeps writers out, what is garbage is only marked, and deleted by a later `mdl gc`
/// once the hours of grace are over and still nothing needs it. A grace of 10 seconds or less is waited for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl gc --dry-run\n  mdl gc\n  mdl branch -D failed && mdl gc --prune-now")]
pub struct Args {
    /// Only say what would be freed.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Let neither the reflog nor the hours of grace keep anything: what no name reaches, and what was pruned, is gone
    /// for good.
    #[arg(long)]
    prune_now: bool,
    /// The time of grace, in place of `gc.grace_hours` (seconds, or 30s, 5m, 2h, 7d). In an object store a commit that
    /// takes more than half as long may have to begin anew, and with none at all there must be no other writer.
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    grace: Option<u64>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let options =
        GcOptions { dry_run: args.dry_run, prune_now: args.prune_now, grace: args.grace.map(Duration::from_secs) };
    let r = mdl_repo::gc(&repo, &options, &context.bars)?;
    if !context.wants_text(|| Ok(&r))? {
        return Ok(());
    }
    let verb = if r.dry_run { "Would free" } else { "Freed" };
    let objects = count(r.objects_before.saturating_sub(r.objects_after), "object");
    let (freed, packs) = (size(r.bytes_freed), count(r.packs_deleted, "pack"));
    writeln!(context.out, "{verb} {freed} ({objects}; {packs} deleted, {} rewritten)", r.packs_rewritten)?;
    if r.upload_bytes > 0 {
        writeln!(context.out, "  of which {} were left by writers that were cut off", size(r.upload_bytes))?;
    }
    if r.pruned > 0 {
        writeln!(context.out, "  {} without contents: pruned", count(r.pruned, "version"))?;
    }
    if r.aged > 0 {
        let versions = count(r.aged, "version");
        writeln!(context.out, "  {versions} without exact contents: an approximation or its weights stand for each")?;
    }
    if r.packs_waiting > 0 {
        let (packs, bytes) = (count(r.packs_waiting, "pack"), size(r.bytes_waiting));
        let text = "wait for their time of grace to be over: a later `mdl gc` deletes them";
        writeln!(context.out, "  {packs} ({bytes}) {text}")?;
    }
    let (objects, packs) = (count(r.objects_after, "object"), count(r.packs_after, "pack"));
    Ok(writeln!(context.out, "{objects} in {packs} remain: {}", size(r.bytes_after))?)
}
