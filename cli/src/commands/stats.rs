//! `mdl stats`: storage by branch, file and tensor.

use super::prelude::*;
use crate::render::ratio;
use mdl_repo::Stats;

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
    let sizes = |logical, stored| [size(logical), size(stored), ratio(logical, stored)];
    let branches = stats.branches.iter().map(|b| {
        let [logical, stored, ratio] = sizes(b.logical, b.stored);
        [b.name.clone(), b.commits.to_string(), logical, stored, ratio, size(b.exclusive)]
    });
    table(context, ["branch", "versions", "as files", "stored", "ratio", "own"], branches, usize::MAX)?;
    let row = |name: String, versions: u64, logical, stored| {
        let [logical, stored, ratio] = sizes(logical, stored);
        [name, versions.to_string(), logical, stored, ratio]
    };
    let heads = |what| [what, "contents", "bytes", "stored", "ratio"];
    let shown = if args.all { usize::MAX } else { SHOWN };
    let files = stats.files.iter().map(|f| row(f.name.clone(), f.versions, f.logical, f.stored));
    table(context, heads("file"), files, shown)?;
    let tensors = stats.tensors.iter().map(|t| row(format!("{}:{}", t.path, t.name), t.versions, t.logical, t.stored));
    table(context, heads("tensor"), tensors, shown)?;
    let schemes = stats.schemes.iter().map(|s| row(s.name.clone(), s.versions, s.logical, s.stored));
    table(context, heads("scheme"), schemes, usize::MAX)?;
    // Tensors by the differences that must be followed to read them.
    let depths = stats.depths.iter().enumerate().filter(|(_, n)| **n > 0);
    let depths: Vec<[String; 2]> = depths.map(|(depth, n)| [depth.to_string(), n.to_string()]).collect();
    table(context, ["depth", "tensors"], depths.into_iter(), usize::MAX)
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
    if s.cache_bytes > 0 {
        writeln!(
            context.out,
            "{:<12}{} of decoded tensors (`mdl config cache.size` bounds it)",
            "cache",
            size(s.cache_bytes)
        )?;
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

/// A table with numbers behind its first column, at most `shown` rows of it; nothing where there are none.
fn table<const N: usize>(
    context: &mut Context,
    heads: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
    shown: usize,
) -> Result<()> {
    let total = rows.len();
    if total == 0 {
        return Ok(());
    }
    let mut align = [Align::Right; N];
    align[0] = Align::Left;
    let mut table = Table::new(&align);
    table.row(heads.map(|h| context.paint.dim(h)));
    rows.take(shown).for_each(|row| table.row(row));
    writeln!(context.out)?;
    context.print(&table.lines(0))?;
    if total > shown {
        writeln!(context.out, "... {} more; --all lists more", total - shown)?;
    }
    Ok(())
}
