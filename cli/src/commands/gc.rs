//! `mdl gc`: frees what nothing reaches. Neighbours: `Repo::gc`. It must not decide what is reached.

use crate::{
    context::Context,
    errors::Result,
    render::{count, size},
};
use mdl_repo::GcOptions;
use serde_json::json;
use std::io::Write;

/// Delete what no branch, tag, HEAD or reflog reaches
///
/// Moves of the last `gc.reflog_days` days keep their versions, and anything written in the last `gc.grace_hours` hours
/// stays. Versions that were pruned longer ago lose their contents. If anything that must be read is damaged, nothing is deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl gc --dry-run\n  mdl gc\n  mdl branch -D failed && mdl gc --prune-now")]
pub struct Args {
    /// Only say what would be freed.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Let neither the reflog nor the hours of grace keep anything: what no name reaches, and what was pruned, is gone for good.
    #[arg(long)]
    prune_now: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let options = GcOptions {
        dry_run: args.dry_run,
        prune_now: args.prune_now,
    };
    let r = repo.gc(&options, &context.bars)?;
    if context.global.json {
        return context.json(&json!({
            "dry_run": r.dry_run,
            "freed_bytes": r.bytes_freed,
            "abandoned_bytes": r.upload_bytes,
            "stored_bytes_before": r.bytes_before,
            "stored_bytes_after": r.bytes_after,
            "objects_before": r.objects_before,
            "objects_after": r.objects_after,
            "packs_before": r.packs_before,
            "packs_after": r.packs_after,
            "packs_deleted": r.packs_deleted,
            "packs_rewritten": r.packs_rewritten,
            "pruned_versions": r.pruned,
        }));
    }
    if !context.chatty() {
        return Ok(());
    }
    let verb = if r.dry_run { "Would free" } else { "Freed" };
    let objects = count(r.objects_before.saturating_sub(r.objects_after), "object");
    writeln!(
        context.out,
        "{verb} {} ({objects}; {} deleted, {} rewritten)",
        size(r.bytes_freed),
        count(r.packs_deleted, "pack"),
        r.packs_rewritten
    )?;
    if r.upload_bytes > 0 {
        writeln!(
            context.out,
            "  of which {} were left by writers that were cut off",
            size(r.upload_bytes)
        )?;
    }
    if r.pruned > 0 {
        writeln!(context.out, "  {} without contents: pruned", count(r.pruned, "version"))?;
    }
    writeln!(
        context.out,
        "{} in {} remain: {}",
        count(r.objects_after, "object"),
        count(r.packs_after, "pack"),
        size(r.bytes_after)
    )?;
    Ok(())
}
