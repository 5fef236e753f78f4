//! `mdl show`: one version in detail: what it says, what changed, what its tensors cost.

use super::{
    changes::{FileChange, changed_files},
    shared::{Notes, tag_object},
};
use crate::{
    context::Context,
    errors::Result,
    render::{
        Align, Table, count, date,
        entry::{self, Entry},
        json_number, ratio, rfc3339, short_number, size, visible,
    },
};
use mdl_objects::{Commit, Kind, Tag};
use mdl_repo::{Repo, RepoError, Report, TensorReport, provenance::Provenance};
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Write};

/// Tensors listed unless all are asked for.
const SHOWN: usize = 20;

/// Show one version in detail
///
/// Its message and labels, where it comes from (`mdl commit --provenance`), the files that changed, and how its new
/// tensors were stored; for an annotated tag the tag's
/// own message comes first. The schemes: `planes` codes the exponents of floats, `delta` and
/// `sparse` store the difference to the same tensor of the version before, `zstd` and `stored` the bytes.
/// `palette` and `lattice` code what a quantiser made, `overlay` a lattice with rows that it left as they were or took
/// from the version before.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl show\n  mdl show v1.0 --tensors\n  mdl show 'main@best(loss)'")]
pub struct Args {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
    /// List all new tensors, not only the largest.
    #[arg(short, long)]
    tensors: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let commit = repo.odb().commit(&id)?;
    let tag = annotated(&repo, &args.rev)?;
    let notes = Notes::read(&repo)?;
    // Where a collection has taken the contents of the version or of its parent, there is nothing to compare.
    let collected = mdl_repo::is_collected(&repo, &id)?;
    let parent = commit.parents.first().map(|p| mdl_repo::is_collected(&repo, p)).transpose()?;
    let known = !collected && parent != Some(true);
    let report = if collected { Report::default() } else { report(&repo, &commit)? };
    let files = known.then(|| changed_files(&repo, &id, &commit)).transpose()?;
    if context.global.json {
        let change = |(p, c): (&String, &FileChange)| json!({"path": p, "change": c.name, "mode_only": c.mode_only});
        let mut document = entry::json(repo.odb(), &notes, &id, &commit)?;
        document["tag"] = tag.as_ref().map_or(Value::Null, tag_json);
        document["changes"] = files.map(|all| all.iter().map(change).collect::<Vec<Value>>()).into();
        document["report"] = report.tensors.iter().map(tensor_json).collect();
        return context.json(&document);
    }
    if let Some(tag) = &tag {
        show_tag(context, tag)?;
    }
    context.print(&Entry::new(repo.odb(), &notes, &id, &commit)?.full(context.paint))?;
    let origin = Provenance::summary_lines(&commit);
    if !origin.is_empty() {
        writeln!(context.out)?;
    }
    for (name, text) in origin {
        writeln!(context.out, "{:<9}{}", format!("{name}:"), visible(&text))?;
    }
    let files = files.unwrap_or_default();
    if !files.is_empty() {
        writeln!(context.out)?;
    }
    for (path, change) in &files {
        let note = if change.mode_only { "  (only the executable bit)" } else { "" };
        writeln!(context.out, "{:<9} {path}{note}", change.name)?;
    }
    tensors(context, report.tensors, args.tensors)
}

/// The annotated tag that a revision names, if it does.
fn annotated(repo: &Repo, rev: &str) -> Result<Option<Tag>> {
    let id = match mdl_repo::full_ref(repo, rev)? {
        Some(full) if full != "HEAD" => repo.refs().get(&full)?,
        Some(_) => None,
        None => rev.parse().ok(),
    };
    id.map_or(Ok(None), |id| tag_object(repo, &id))
}

fn tensor_json(t: &TensorReport) -> Value {
    json!({
        "path": t.path,
        "name": t.name,
        "dtype": t.dtype,
        "scheme": t.scheme,
        "logical_bytes": t.logical,
        "stored_bytes": t.stored,
        "depth": t.depth,
        "max_abs": t.max_abs.map(json_number),
        "rel_l2": t.rel_l2.map(json_number),
        "worst_row": t.worst_row.map(json_number),
        "update_error": t.update_error.map(json_number),
        "worst_row_update": t.worst_row_update.map(json_number),
    })
}

fn tag_json(tag: &Tag) -> Value {
    let tagger = entry::signature(&tag.tagger);
    json!({"name": tag.name, "tagger": tagger, "date": rfc3339(&tag.tagger), "message": tag.message})
}

fn show_tag(context: &mut Context, tag: &Tag) -> Result<()> {
    writeln!(context.out, "{}", context.paint.yellow(&format!("tag {}", tag.name)))?;
    writeln!(context.out, "Tagger:  {}", entry::person(&tag.tagger))?;
    writeln!(context.out, "Date:    {}\n", date(&tag.tagger))?;
    Ok(writeln!(context.out, "    {}\n", visible(tag.message.trim_end()).replace('\n', "\n    "))?)
}

fn report(repo: &Repo, commit: &Commit) -> Result<Report> {
    let Some(id) = &commit.report else {
        return Ok(Report::default());
    };
    let bytes = repo.odb().read(id, Kind::Blob)?;
    let parsed = serde_json::from_slice(&bytes);
    Ok(parsed.map_err(|e| RepoError::corrupt(format!("report {}", id.short()), e))?)
}

fn tensors(context: &mut Context, mut tensors: Vec<TensorReport>, all: bool) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    let mut schemes: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for t in &tensors {
        let sum = schemes.entry(&t.scheme).or_default();
        *sum = (sum.0 + 1, sum.1 + t.logical, sum.2 + t.stored);
    }
    writeln!(context.out, "\n{} stored:", count(tensors.len() as u64, "new tensor"))?;
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Left, Right]);
    for (scheme, (n, logical, stored)) in schemes {
        table.row([
            scheme.to_owned(),
            n.to_string(),
            size(logical),
            format!("-> {}", size(stored)),
            ratio(logical, stored),
        ]);
    }
    let mut lines = table.lines(2);
    let total = tensors.len();
    if !all {
        tensors.sort_by_key(|t| std::cmp::Reverse(t.stored));
        tensors.truncate(SHOWN);
    }
    let lossy = tensors.iter().any(|t| t.rel_l2.is_some());
    let errors = if lossy { &["rel. error", "worst row", "of update", "worst row"][..] } else { &[] };
    let head = ["tensor", "dtype", "scheme", "bytes", "stored", "ratio", "depth"].iter().chain(errors);
    let mut table = Table::new(&[&[Left; 3], &vec![Right; 4 + errors.len()][..]].concat());
    table.row(head.map(|h| context.paint.dim(h)));
    for t in &tensors {
        let numbers = [size(t.logical), size(t.stored), ratio(t.logical, t.stored), t.depth.to_string()];
        let names = [visible(&format!("{}:{}", t.path, t.name)), t.dtype.clone(), t.scheme.clone()];
        let errors = [t.rel_l2, t.worst_row, t.update_error, t.worst_row_update];
        let errors = errors.map(|e| e.map_or("-".to_owned(), short_number));
        table.row(names.into_iter().chain(numbers).chain(errors.into_iter().take(if lossy { 4 } else { 0 })));
    }
    lines.push(String::new());
    lines.extend(table.lines(2));
    if tensors.len() < total {
        lines.push(format!("  ... {} more; --tensors lists all", total - tensors.len()));
    }
    context.print(&lines)
}
