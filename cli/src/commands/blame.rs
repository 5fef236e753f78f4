//! `mdl blame`: in which versions each tensor changed, and by how much.

use super::prelude::*;
use crate::{
    args::revision,
    render::{json_number, rfc3339_ms, short_number},
};
use mdl_repo::{Amounts, Blame, BlameQuery, BlamedChange, BlamedTensor, BlamedVersion, Change, Selection, layer_of};
use std::collections::BTreeMap;

/// Characters of a strip over versions.
const STRIP: usize = 60;

/// Show in which versions each tensor changed, and by how much
///
/// Ids alone tell whether a tensor changed: nothing is decoded for it. The amount is the norm of the change relative to
/// the tensor before (||b - a|| / ||a||), by default of each tensor's last change. Versions are those that lead to the
/// revision, by first parents.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl blame
  mdl blame main -- 'model.safetensors:*embed*'
  mdl blame --layers -n 200
  mdl blame --glob ':lm_head.weight' --row 50256")]
pub struct Args {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = revision)]
    rev: String,
    /// Only tensors that this matches: FILE:TENSOR or :TENSOR, as globs; a FILE means all of its tensors. May be given
    /// again.
    #[arg(long, value_name = "GLOB")]
    glob: Vec<String>,
    /// Of which changes the amount is computed: of the last, of all, or of none.
    #[arg(long, value_name = "WHICH", default_value = "last")]
    by: By,
    /// Only what changed this row, counted from 0 along the first axis.
    #[arg(long, value_name = "N")]
    row: Option<u64>,
    /// A line for each layer, with its changes over the versions, the oldest first: `.` nothing changed, `#` something.
    #[arg(long)]
    layers: bool,
    /// Look at the newest N versions only.
    #[arg(short = 'n', long = "max-count", value_name = "N")]
    limit: Option<usize>,
    /// As --glob.
    #[arg(last = true, value_name = "GLOB")]
    globs: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    Last,
    All,
    None,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let globs: Vec<String> = args.glob.iter().chain(&args.globs).cloned().collect();
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let query = BlameQuery {
        selection: Selection::new(&globs)?,
        amounts: match args.by {
            By::Last => Amounts::Last,
            By::All => Amounts::All,
            By::None => Amounts::None,
        },
        row: args.row,
        versions: args.limit.unwrap_or(usize::MAX),
    };
    let found = mdl_repo::blame(&repo, &id, &query, &context.bars)?;
    if context.global.json {
        return context.json(&document(&found));
    }
    if found.tensors.is_empty() {
        return Err(super::shared::not_found(Missing::Tensor, globs.join(", ")));
    }
    if args.layers { layers(context, &found) } else { tensors(context, &found, matches!(args.by, By::All)) }
}

fn document(found: &Blame) -> Value {
    let version = |v: &BlamedVersion| {
        let date = rfc3339_ms(v.time_ms);
        json!({"commit": v.id.to_hex(), "step": v.step, "date": date, "message": v.subject, "gone": v.gone})
    };
    let change = |c: &BlamedChange| json!({"version": c.version, "change": c.change.name(), "rel_l2": c.rel_l2.map(json_number)});
    let tensor = |t: &BlamedTensor| {
        json!({
            "path": t.path,
            "name": t.name,
            "layer": layer_of(&t.name),
            "dtype": t.dtype.name(),
            "shape": t.shape,
            "changes": t.changes.iter().map(change).collect::<Vec<_>>(),
        })
    };
    json!({
        "versions": found.versions.iter().map(version).collect::<Vec<_>>(),
        "more": found.more,
        "tensors": found.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}

fn title(v: &BlamedVersion) -> String {
    let step = v.step.map(|s| format!(" [step {s}]")).unwrap_or_default();
    format!("{}{step} {}", v.id.short(), subject(&v.subject))
}

fn amount(change: &BlamedChange) -> String {
    match (change.rel_l2, change.change) {
        (Some(v), _) => short_number(v),
        (None, Change::Modified) => "-".to_owned(),
        (None, other) => other.name().to_owned(),
    }
}

/// One file's tensors go by their names alone.
fn shown_name(found: &Blame, t: &BlamedTensor) -> String {
    let one_file = found.tensors.iter().all(|other| other.path == t.path);
    visible(&if one_file { t.name.clone() } else { format!("{}:{}", t.path, t.name) })
}

fn tensors(context: &mut Context, found: &Blame, all: bool) -> Result<()> {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Left]);
    table.row(["tensor", "changes", "rel. L2", "version"].map(|h| context.paint.dim(h)));
    for t in &found.tensors {
        let shown: Vec<&BlamedChange> = match all {
            true => t.changes.iter().rev().collect(),
            false => t.changes.last().into_iter().collect(),
        };
        let (mut name, mut n) = (shown_name(found, t), t.changes.len().to_string());
        if shown.is_empty() {
            let before = if found.more { "before these versions" } else { "never" };
            table.row([name, n, String::new(), before.to_owned()]);
            continue;
        }
        for change in shown {
            let version = found.versions.get(change.version).map(title).unwrap_or_default();
            table.row([std::mem::take(&mut name), std::mem::take(&mut n), amount(change), version]);
        }
    }
    context.print(&table.lines(0))?;
    tell_gone(context, found);
    Ok(())
}

fn tell_gone(context: &Context, found: &Blame) {
    let gone = found.versions.iter().filter(|v| v.gone).count() as u64;
    if gone > 0 {
        let n = count(gone, "version");
        context.note(&format!("note: the contents of {n} are gone: what changed there counts for the next one"));
    }
}

fn layers(context: &mut Context, found: &Blame) -> Result<()> {
    use Align::{Left, Right};
    let mut layers: BTreeMap<(&str, &str), Vec<&BlamedTensor>> = BTreeMap::new();
    for t in &found.tensors {
        layers.entry((&t.path, layer_of(&t.name))).or_default().push(t);
    }
    let one_file = layers.keys().all(|(path, _)| layers.keys().next().is_some_and(|(first, _)| first == path));
    let mut table = Table::new(&[Left, Right, Right, Left]);
    let over = format!("{}, oldest first", count(found.versions.len() as u64, "version"));
    table.row(["layer", "tensors", "changes", &over].map(|h| context.paint.dim(h)));
    for ((path, layer), tensors) in layers {
        let name = visible(&if one_file { layer.to_owned() } else { format!("{path}:{layer}") });
        let changed = tensors.iter().map(|t| t.changes.len()).sum::<usize>().to_string();
        table.row([name, tensors.len().to_string(), changed, strip(found.versions.len(), &tensors)]);
    }
    context.print(&table.lines(0))?;
    tell_gone(context, found);
    Ok(())
}

/// A character for each version, or for several where there are many.
fn strip(versions: usize, tensors: &[&BlamedTensor]) -> String {
    let width = versions.clamp(1, STRIP);
    let mut out = vec!['.'; width];
    for change in tensors.iter().flat_map(|t| &t.changes) {
        if let Some(letter) = out.get_mut(change.version * width / versions.max(1)) {
            *letter = '#';
        }
    }
    out.into_iter().collect()
}
