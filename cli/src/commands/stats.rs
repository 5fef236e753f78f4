//! `mdl stats`: storage by branch, file and tensor.

use crate::{
    context::Context,
    errors::Result,
    render::{Align, Table, count, ratio, size},
};
use mdl_repo::Stats;
use std::io::Write;

/// Rows of each list unless all are asked for.
const SHOWN: usize = 10;

/// Show where the bytes are: by branch, file, tensor and way of storing
///
/// "as files" is what every version would take if it were kept as files by itself; "own" what a branch alone holds on
/// to, and would be freed with it (by `mdl gc`, once the reflog forgets it).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl stats\n  mdl stats --json | jq .branches")]
pub struct Args {
    /// List all files and the 100 largest tensors, not only ten of each.
    #[arg(short, long)]
    all: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let stats = mdl_repo::stats(&repo, &context.bars)?;
    if context.global.json {
        return context.json(&stats);
    }
    totals(context, &stats)?;
    let shown = if args.all { usize::MAX } else { SHOWN };
    branches(context, &stats)?;
    let files = stats.files.iter().map(|f| (f.name.clone(), f.versions, f.logical, f.stored));
    names(context, "file", files.collect(), shown)?;
    let tensors = stats.tensors.iter().map(|t| (format!("{}:{}", t.path, t.name), t.versions, t.logical, t.stored));
    names(context, "tensor", tensors.collect(), shown)?;
    let schemes = stats.schemes.iter().map(|s| (s.name.clone(), s.versions, s.logical, s.stored));
    names(context, "scheme", schemes.collect(), usize::MAX)?;
    depths(context, &stats.depths)
}

fn totals(context: &mut Context, s: &Stats) -> Result<()> {
    let held = format!("{}, {}", count(s.objects, "object"), count(s.packs, "pack"));
    let rows = [
        ("versions", s.commits.to_string()),
        ("as files", size(s.logical_bytes)),
        ("stored", format!("{} ({} smaller; {held})", size(s.stored_bytes), ratio(s.logical_bytes, s.stored_bytes))),
    ];
    for (name, value) in rows {
        writeln!(context.out, "{name:<12}{value}")?;
    }
    if s.unreachable_bytes > 0 {
        let objects = count(s.unreachable_objects, "object");
        let bytes = size(s.unreachable_bytes);
        writeln!(context.out, "unreachable {bytes} ({objects}; `mdl gc` frees what is old enough)")?;
    }
    if s.damaged_packs > 0 {
        let packs = context.paint.red(&count(s.damaged_packs, "pack"));
        writeln!(context.out, "{:<12}{packs} (not counted; see `mdl fsck`)", "damaged")?;
    }
    Ok(())
}

fn branches(context: &mut Context, s: &Stats) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Right, Right]);
    table.row(["branch", "versions", "as files", "stored", "ratio", "own"].map(|h| context.paint.dim(h)));
    for b in &s.branches {
        let numbers = [size(b.logical), size(b.stored), ratio(b.logical, b.stored), size(b.exclusive)];
        table.row([b.name.clone(), b.commits.to_string()].into_iter().chain(numbers));
    }
    print(context, &table, s.branches.is_empty())
}

fn names(context: &mut Context, what: &str, rows: Vec<(String, u64, u64, u64)>, shown: usize) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Right]);
    table.row([what, "contents", "bytes", "stored", "ratio"].map(|h| context.paint.dim(h)));
    let total = rows.len();
    for (name, versions, logical, stored) in rows.into_iter().take(shown) {
        table.row([name, versions.to_string(), size(logical), size(stored), ratio(logical, stored)]);
    }
    print(context, &table, total == 0)?;
    if total > shown {
        writeln!(context.out, "... {} more; --all lists more", total - shown)?;
    }
    Ok(())
}

/// Tensors by the differences that must be followed to read them.
fn depths(context: &mut Context, depths: &[u64]) -> Result<()> {
    let mut table = Table::new(&[Align::Left, Align::Right]);
    table.row(["depth", "tensors"].map(|h| context.paint.dim(h)));
    for (depth, n) in depths.iter().enumerate().filter(|(_, n)| **n > 0) {
        table.row([depth.to_string(), n.to_string()]);
    }
    print(context, &table, depths.iter().all(|n| *n == 0))
}

fn print(context: &mut Context, table: &Table, empty: bool) -> Result<()> {
    if empty {
        return Ok(());
    }
    writeln!(context.out)?;
    context.print(&table.lines(0))
}
