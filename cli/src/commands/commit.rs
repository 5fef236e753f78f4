//! `mdl commit`: files become a version on a branch. Neighbours: `Repo::commit`, the user's editor. It must not know how
//! files are stored.

use super::changes::{FileChange, changed_files};
use super::contract::{self, Contract};
use super::editor;
use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{count, entry, ratio, size, subject},
};
use mdl_objects::Resume;
use mdl_repo::{CommitRequest, Committed, Repo};
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

/// Store the files of a directory as a new version
///
/// There are two ways of working. Work tree: `mdl commit` stores what is around .mdl (but for what .mdlignore names), and
/// `status`, `switch` and `checkout` work there. Snapshots: `mdl commit DIR` stores the contents of DIR as the whole version,
/// wherever DIR is, and `mdl checkout REV --to DIR` brings one back; `status` and `switch`, which are about the work tree,
/// are of no use then. A branch is best kept to one way: files that are not in what is committed are not in the version.
///
/// The branch moves only after everything is safely on disk: a kill at any moment leaves the version before. Tensors that
/// the repository has already take no room; changed ones are stored as differences where that is smaller.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl commit -m \"after warm-up\" --step 1000 --metric loss=0.41
  mdl commit out/checkpoint-2000 --step 2000 --epoch 1.5 --metric eval/loss=0.38 --metric acc=0.91
  mdl commit -m \"without dropout\" --branch ablation --meta run=8f3k --meta lr=3e-4
  mdl commit out --step 3000 --policy lossy --eval './evaluate.sh' --grads out.grads.safetensors")]
pub struct Args {
    /// Directory (or file) to store. Default: the work tree.
    path: Option<PathBuf>,
    /// What this version is. Default: "step N" where --step is given, else $EDITOR is asked.
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Branch to commit to, made from the present commit if it is new. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Optimizer steps trained so far; `main@step=N` finds the version again.
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Epochs trained so far, possibly a fraction.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    epoch: Option<f64>,
    /// A number measured on this version, such as loss=0.41; may be repeated. `main@best(loss)` finds the best version, `main@min(NAME)` and `main@max(NAME)` the ends.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = metric)]
    metric: Vec<(String, f64)>,
    /// Anything else worth keeping, such as run=8f3k; may be repeated.
    #[arg(long, value_name = "KEY=TEXT", value_parser = pair)]
    meta: Vec<(String, String)>,
    /// Commit even if nothing changed.
    #[arg(long)]
    allow_empty: bool,
    /// Store checkpoint files that are damaged as plain bytes instead of refusing them.
    #[arg(long)]
    allow_damaged: bool,
    /// Store what symbolic links point at instead of refusing them.
    #[arg(long)]
    follow_symlinks: bool,
    #[command(flatten)]
    contract: Contract,
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a name, '=' and a value are wanted".to_owned()),
    }
}

fn metric(text: &str) -> std::result::Result<(String, f64), String> {
    let (key, value) = pair(text)?;
    let number: f64 = value.trim().parse().map_err(|_| format!("{value:?} is not a number"))?;
    if number.is_infinite() && value.contains(|c: char| c.is_ascii_digit()) {
        return Err(format!("{value:?} is too large for a number of 64 bits"));
    }
    Ok((key, number))
}

/// A name given twice is a slip that would lose one of the values.
fn unique<V>(what: &str, pairs: Vec<(String, V)>) -> Result<BTreeMap<String, V>> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.insert(key.clone(), value).is_some() {
            return Err(CliError::usage(format!("--{what} {key} is given twice"), ""));
        }
    }
    Ok(map)
}

pub fn run(context: &mut Context, args: Args) -> Result<()> {
    if args.epoch.is_some_and(|e| !e.is_finite() || e < 0.0) {
        return Err(CliError::usage("--epoch must be a number from 0 up", ""));
    }
    let repo = context.repo()?;
    match &args.path {
        None => drop(repo.need_work()?),
        Some(path) => refuse_repository(&repo, path)?,
    }
    let message = match (args.message, args.step) {
        (Some(text), _) => text,
        (None, Some(step)) => format!("step {step}"),
        (None, None) => edited(&repo)?,
    };
    if message.trim().is_empty() {
        return Err(CliError::usage(
            "the message is empty",
            "say what this version is with -m TEXT",
        ));
    }
    let request = CommitRequest {
        source: args.path,
        message,
        branch: args.branch,
        step: args.step,
        epoch: args.epoch,
        metrics: unique("metric", args.metric)?,
        meta: unique("meta", args.meta)?,
        allow_empty: args.allow_empty,
        allow_damaged: args.allow_damaged,
        follow_symlinks: args.follow_symlinks,
        resumed_from: args.contract.resumed_from(&repo)?,
        ..CommitRequest::default()
    };
    let done = match args.contract.judged(&repo)? {
        Some(mut judged) => repo.commit_lossy(&request, &mut judged.request(), &context.bars)?,
        None => repo.commit(&request, &context.bars)?,
    };
    tell(context, &repo, &request, &done)
}

/// A repository in its own version would grow with every commit, and nobody wants it there.
fn refuse_repository(repo: &Repo, path: &Path) -> Result<()> {
    let inside = |dir: &Path| path.canonicalize().is_ok_and(|p| p.starts_with(dir));
    if repo.dir().is_some_and(inside) {
        return Err(super::shared::refused(
            format!("{} is the repository itself", path.display()),
            "name the directory of the checkpoint, or none for the work tree",
        ));
    }
    Ok(())
}

/// `3 files changed, 1 added, 13 deleted`
fn changes_text(changes: &BTreeMap<String, FileChange>) -> String {
    let number = |name: &str| changes.values().filter(|c| c.name == name).count() as u64;
    let all = [("modified", "changed"), ("added", "added"), ("deleted", "deleted")];
    let mut parts: Vec<String> = Vec::new();
    for (n, verb) in all.map(|(name, verb)| (number(name), verb)) {
        match (n, parts.is_empty()) {
            (0, _) => {}
            (_, true) => parts.push(format!("{} {verb}", count(n, "file"))),
            _ => parts.push(format!("{n} {verb}")),
        }
    }
    if parts.is_empty() {
        return "no file changed".to_owned();
    }
    parts.join(", ")
}

/// Files that the version before had, that are still in the work tree, and that a commit of a part of it left out.
fn dropped(repo: &Repo, request: &CommitRequest, changes: &BTreeMap<String, FileChange>) -> u64 {
    let (Some(path), Some(work)) = (&request.source, repo.work()) else {
        return 0;
    };
    if !path.canonicalize().is_ok_and(|p| p.starts_with(work) && p != work) {
        return 0;
    }
    let is_there = |p: &String| work.join(p).is_file();
    changes
        .iter()
        .filter(|(p, c)| c.name == "deleted" && is_there(p))
        .count() as u64
}

fn hint_dropped(context: &Context, request: &CommitRequest, n: u64) {
    let path = request
        .source
        .as_ref()
        .map_or_else(String::new, |p| p.display().to_string());
    let files = count(n, "file");
    context.note(&format!(
        "hint: the version holds the contents of {path} only; {files} of the work tree that the version before had are not in \
         it.\nhint: `mdl commit` without a path stores the work tree, `mdl reset HEAD~1` takes this commit back"
    ));
}

fn tell(context: &mut Context, repo: &Repo, request: &CommitRequest, done: &Committed) -> Result<()> {
    let s = done.summary;
    let commit = repo.odb().commit(&done.id)?;
    let changes = changed_files(repo, &commit)?;
    let number = |name: &str| changes.values().filter(|c| c.name == name).count();
    if context.global.json {
        return context.json(&json!({
            "commit": done.id.to_hex(),
            "branch": done.branch,
            "parent": done.parent.map(|id| id.to_hex()),
            "message": request.message,
            "step": request.step,
            "files": s.files,
            "files_changed": number("modified"),
            "files_added": number("added"),
            "files_deleted": number("deleted"),
            "tensors": s.tensors,
            "new_tensors": s.new_tensors,
            "logical_bytes": s.logical_bytes,
            "stored_bytes": s.stored_bytes,
            "resumed_from": request.resumed_from.map(|id| id.to_hex()),
            "resume": commit.resume.map(Resume::name),
            "policy": done.quality.as_ref().map(|q| &q.policy),
            "configuration": done.quality.as_ref().map(|q| &q.configuration),
            "quality": done.quality.as_ref().map(contract::quality_json),
        }));
    }
    if !context.chatty() {
        return Ok(());
    }
    let branch = done.branch.as_deref().unwrap_or("detached HEAD");
    let root = if done.parent.is_none() { " (root-commit)" } else { "" };
    let id = context.paint.yellow(&done.id.short());
    writeln!(context.out, "[{branch}{root} {id}] {}", subject(&request.message))?;
    let metrics = entry::metrics(&commit);
    if !metrics.is_empty() {
        writeln!(context.out, " {metrics}")?;
    }
    let tensors = format!("{}, {} new", count(s.tensors, "tensor"), s.new_tensors);
    let cost = format!("{} -> {}", size(s.logical_bytes), size(s.stored_bytes));
    let smaller = ratio(s.logical_bytes, s.stored_bytes);
    writeln!(
        context.out,
        " {}, {tensors}; {cost} stored ({smaller})",
        count(s.files, "file")
    )?;
    if let Some(quality) = &done.quality {
        writeln!(context.out, " {}", contract::quality_text(quality))?;
    }
    if done.parent.is_some() {
        writeln!(context.out, " {}", changes_text(&changes))?;
    }
    for warning in done.quality.iter().flat_map(|q| &q.warnings) {
        context.note(&format!("warning: {warning}"));
    }
    let left_out = dropped(repo, request, &changes);
    if left_out > 0 {
        context.finish()?;
        hint_dropped(context, request, left_out);
    }
    Ok(())
}

const TEMPLATE: &str = "
# What is this version? Lines that begin with '#' are left out; an empty message stops the commit.
";

/// Asks the user's editor for a message.
fn edited(repo: &Repo) -> Result<String> {
    let hint = "say what this version is with -m TEXT, or pass --step N";
    let text = editor::edited(repo, "COMMIT_EDITMSG", TEMPLATE, "a message is wanted", hint)?;
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    Ok(lines.join("\n").trim().to_owned())
}
