//! `mdl diff`: changed files and tensors between two versions.

use super::shared::is_chosen;
use crate::{
    context::Context,
    errors::Result,
    render::{Align, Paint, Table, cosine, count, json_number, shape, short_number, size, visible},
};
use clap::ValueEnum;
use mdl_repo::{Change, FileDiff, TensorDiff};
use serde_json::{Value, json};
use std::io::Write;

/// Compare two versions, file by file and tensor by tensor
///
/// For every tensor that differs: the share of elements that changed, the relative L2 distance ||b-a||/||a||, the
/// largest |b-a|, and the cosine between both. Whether a tensor changed is decided on its bytes, never by a tolerance.
/// What the work tree has changed, `mdl status` tells. With --json every tensor is listed, whatever --stat and --files
/// say.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl diff main~1
  mdl diff main@step=1000 main@step=2000
  mdl diff base finetuned --files
  mdl diff main~10 main --stat
  mdl diff main~1 --only '*attn*' --sort rel-l2")]
pub struct Args {
    /// The version before.
    #[arg(value_parser = crate::args::revision)]
    a: String,
    /// The version after.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    b: String,
    /// List files only, not their tensors.
    #[arg(long)]
    files: bool,
    /// Sum up each file in a line: how many of its tensors differ, and by how much at most.
    #[arg(long, conflicts_with = "files")]
    stat: bool,
    /// Only files, or tensors, whose name matches (`*` any text, `?` any character); may be repeated.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Order of the tensors of a file: as they lie in it, or those that differ most first.
    #[arg(long, value_enum, default_value_t = Sort::File, value_name = "BY")]
    sort: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// As they lie in the file
    File,
    /// By name
    Name,
    /// By the share of elements that changed
    Changed,
    /// By the relative L2 distance
    RelL2,
    /// By the largest |b-a|
    Max,
    /// By the cosine, the least first
    Cosine,
}

impl Sort {
    fn sort(self, tensors: &mut [TensorDiff]) {
        // What cannot be compared differs most.
        let most = |v: Option<f64>| v.unwrap_or(f64::INFINITY);
        let by =
            |f: fn(&TensorDiff) -> Option<f64>| move |a: &TensorDiff, b: &TensorDiff| most(f(b)).total_cmp(&most(f(a)));
        match self {
            Sort::File => {}
            Sort::Name => tensors.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Changed => tensors.sort_by(by(|t| t.changed)),
            Sort::RelL2 => tensors.sort_by(by(|t| t.rel_l2)),
            Sort::Max => tensors.sort_by(by(|t| t.max_abs)),
            Sort::Cosine => tensors.sort_by(by(|t| t.cosine.map(|c| -c))),
        }
    }
}

/// Leaves files whose path matches, of others the tensors whose name does.
fn filter(files: Vec<FileDiff>, only: &[String]) -> Vec<FileDiff> {
    if only.is_empty() {
        return files;
    }
    let mut out = Vec::new();
    for mut file in files {
        if !is_chosen(only, &file.path) {
            file.tensors.retain(|t| is_chosen(only, &t.name));
            if file.tensors.is_empty() {
                continue;
            }
        }
        out.push(file);
    }
    out
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (a, b) = (mdl_repo::resolve(&repo, &args.a)?, mdl_repo::resolve(&repo, &args.b)?);
    let mut files = filter(mdl_repo::diff(&repo, &a, &b, &context.bars)?, &args.only);
    files.iter_mut().for_each(|file| args.sort.sort(&mut file.tensors));
    if context.global.json {
        let files: Vec<Value> = files.iter().map(file_json).collect();
        return context.json(&json!({"a": a.to_hex(), "b": b.to_hex(), "files": files}));
    }
    if args.stat {
        return stat(context, &files);
    }
    for (n, file) in files.iter().enumerate() {
        if n > 0 && !args.files {
            writeln!(context.out)?;
        }
        writeln!(context.out, "{}", headline(file, context.paint))?;
        if !args.files {
            tensors(context, file)?;
        }
    }
    Ok(())
}

/// A line for each file, and one for all.
fn stat(context: &mut Context, files: &[FileDiff]) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Left, Right, Right, Right, Right]);
    table.row(["file", "", "tensors differ", "the same", "rel L2 <=", "max |d|"].map(|h| context.paint.dim(h)));
    let largest = |file: &FileDiff, of: fn(&TensorDiff) -> Option<f64>| {
        let most = file.tensors.iter().filter_map(of).max_by(f64::total_cmp);
        most.map_or_else(|| "-".to_owned(), short_number)
    };
    for file in files {
        let name = context.paint.change(file.change, &visible(&file.path));
        let (differ, same) = (file.tensors.len().to_string(), file.same_tensors.to_string());
        let (l2, max) = (largest(file, |t| t.rel_l2), largest(file, |t| t.max_abs));
        table.row([name, file.change.name().to_owned(), differ, same, l2, max]);
    }
    if !files.is_empty() {
        context.print(&table.lines(0))?;
    }
    let differ: usize = files.iter().map(|f| f.tensors.len()).sum();
    let (files, tensors) = (count(files.len() as u64, "file"), count(differ as u64, "tensor"));
    let verb = if differ == 1 { "differs" } else { "differ" };
    Ok(writeln!(context.out, "{files} changed; {tensors} {verb}")?)
}

fn headline(file: &FileDiff, paint: Paint) -> String {
    let name = paint.change(file.change, &format!("{:<9} {}", file.change.name(), file.path));
    let sizes = match (file.size_before, file.size_after) {
        (Some(a), Some(b)) if a != b => format!("{} -> {}", size(a), size(b)),
        (a, b) => b.or(a).map_or_else(String::new, size),
    };
    let differ = file.tensors.len() as u64;
    let what = match (file.mode_only, differ, file.same_tensors) {
        (true, _, _) => "only the executable bit differs".to_owned(),
        (_, 0, 0) => String::new(),
        (_, 0, same) => format!("no tensor differs, {same} the same"),
        (_, n, same) => {
            format!("{} {}, {same} the same", count(n, "tensor"), if n == 1 { "differs" } else { "differ" })
        }
    };
    let details: Vec<String> = [sizes, what].into_iter().filter(|t| !t.is_empty()).collect();
    format!("{name}  {}", paint.dim(&format!("({})", details.join("; "))))
}

fn tensors(context: &mut Context, file: &FileDiff) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Left, Left, Right, Right, Right, Right]);
    let heads = ["tensor", "dtype", "shape", "changed", "rel L2", "max |d|", "cosine"];
    table.row(heads.map(|h| context.paint.dim(h)));
    for t in &file.tensors {
        let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), short_number);
        let changed = match t.change {
            Change::Modified => t.changed.map_or_else(|| "other type or shape".to_owned(), percent),
            other => other.name().to_owned(),
        };
        let [l2, max] = [t.rel_l2, t.max_abs].map(number);
        let cos = t.cosine.map_or_else(|| "-".to_owned(), cosine);
        table.row([visible(&t.name), t.dtype.to_string(), shape(&t.shape), changed, l2, max, cos]);
    }
    if file.tensors.is_empty() { Ok(()) } else { context.print(&table.lines(2)) }
}

/// Never shows 0 % or 100 % for what is only nearly so.
fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        p if p > 0.0 && p < 0.01 => "<0.01 %".to_owned(),
        p if p < 100.0 && p > 99.99 => ">99.99 %".to_owned(),
        p => format!("{p:.2} %"),
    }
}

fn file_json(file: &FileDiff) -> Value {
    json!({
        "path": file.path,
        "change": file.change.name(),
        "size_before": file.size_before,
        "size_after": file.size_after,
        "mode_only": file.mode_only,
        "same_tensors": file.same_tensors,
        "tensors": file.tensors.iter().map(tensor_json).collect::<Vec<_>>(),
    })
}

fn tensor_json(t: &TensorDiff) -> Value {
    json!({
        "name": t.name,
        "change": t.change.name(),
        "dtype": t.dtype.name(),
        "shape": t.shape,
        "changed": t.changed.map(json_number),
        "rel_l2": t.rel_l2.map(json_number),
        "max_abs": t.max_abs.map(json_number),
        "cosine": t.cosine.map(json_number),
    })
}
