//! `mdl commit`: files become a version on a branch.

use super::{
    changes::{FileChange, changed_files},
    commit_fields::CommitFields,
    editor,
    lossy_options::{self, LossyOptions},
    prelude::*,
    provenance_options::ProvenanceOptions,
    shared::refuse_repository,
    signing_options::SigningOptions,
};
use mdl_objects::{Commit, Resume};
use mdl_repo::{CommitRequest, Committed, UNKNOWN};
use std::collections::BTreeMap;

/// Store the files of a directory as a new version
///
/// There are two ways of working. Work tree: `mdl commit` stores what is around .mdl (but for what .mdlignore names),
/// and `status`, `switch` and `checkout` work there. Snapshots: `mdl commit DIR` stores the contents of DIR as the
/// whole version, wherever DIR is, and `mdl checkout REV --to DIR` brings one back; `status` and `switch`, which are
/// about the work tree, are of no use then. A branch is best kept to one way: files that are not in what is committed
/// are not in the version.
///
/// The branch moves only after everything is safely on disk: a kill at any moment leaves the version before. Tensors
/// that the repository has already take no room; changed ones are stored as differences where that is smaller.
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
    #[command(flatten)]
    fields: CommitFields,
    /// Store checkpoint files that are damaged as plain bytes instead of refusing them.
    #[arg(long)]
    allow_damaged: bool,
    /// Store what symbolic links point at instead of refusing them.
    #[arg(long)]
    follow_symlinks: bool,
    #[command(flatten)]
    lossy: LossyOptions,
    #[command(flatten)]
    provenance: ProvenanceOptions,
    /// Command that made the version, such as 'python train.py --lr 1e-3'; asks for --provenance. Values of options
    /// whose names speak of tokens, keys and passwords are left out.
    #[arg(long, value_name = "TEXT")]
    command: Option<String>,
    #[command(flatten)]
    signing: SigningOptions,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    args.fields.check()?;
    let repo = context.repo()?;
    match &args.path {
        None => drop(repo.need_work()?),
        Some(path) => refuse_repository(&repo, path)?,
    }
    let signing = args.signing.signing(&repo)?;
    let command: Vec<String> = args.command.iter().flat_map(|c| c.split_whitespace()).map(str::to_owned).collect();
    let provenance = args.provenance.clone().asked_if(args.command.is_some()).captured(&repo, command)?;
    let described = args.fields.clone().request(|| edited(&repo))?;
    let request = CommitRequest {
        source: args.path.clone(),
        allow_damaged: args.allow_damaged,
        follow_symlinks: args.follow_symlinks,
        resumed_from: args.lossy.resumed_from(&repo)?,
        provenance,
        signing,
        ..described
    };
    let done = match args.lossy.plan(&repo)? {
        Some(mut plan) => {
            let done = mdl_repo::commit_lossy(&repo, &request, &mut plan.request(), &context.bars);
            plan.check_evaluator()?;
            plan.tell_failures(context);
            done?
        }
        None => mdl_repo::commit(&repo, &request, &context.bars)?,
    };
    tell(context, &repo, &request, &done)
}

/// `3 files changed, 1 added, 13 deleted`
fn changes_text(changes: &BTreeMap<String, FileChange>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (name, verb) in [("modified", "changed"), ("added", "added"), ("deleted", "deleted")] {
        match changes.values().filter(|c| c.name == name).count() as u64 {
            0 => {}
            n if parts.is_empty() => parts.push(format!("{} {verb}", count(n, "file"))),
            n => parts.push(format!("{n} {verb}")),
        }
    }
    if parts.is_empty() { "no file changed".to_owned() } else { parts.join(", ") }
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
    changes.iter().filter(|(p, c)| c.name == "deleted" && is_there(p)).count() as u64
}

fn hint_dropped(context: &Context, request: &CommitRequest, n: u64) {
    let path = request.source.as_ref().map_or_else(String::new, |p| p.display().to_string());
    let files = count(n, "file");
    context.note(&format!(
        "hint: the version holds the contents of {path} only; {files} of the work tree that the version before had are \
         not in it.\nhint: `mdl commit` without a path stores the work tree, `mdl reset HEAD~1` takes this commit back"
    ));
}

/// Says once, at the first version of a branch or of an author that nothing names, how to name one.
fn hint_author(context: &mut Context, repo: &Repo, commit: &Commit) -> Result<()> {
    let parent = commit.parents.first().map(|id| repo.odb().commit(id)).transpose()?;
    let is_new = parent.is_none_or(|parent| parent.author.name != UNKNOWN);
    if commit.author.name == UNKNOWN && is_new {
        context.finish()?;
        context.note("hint: the author is unknown: `mdl config user.name NAME` names one, or MDL_AUTHOR_NAME");
    }
    Ok(())
}

fn tell(context: &mut Context, repo: &Repo, request: &CommitRequest, done: &Committed) -> Result<()> {
    let commit = repo.odb().commit(&done.id)?;
    let changes = changed_files(repo, &done.id, &commit)?;
    let number = |name: &str| changes.values().filter(|c| c.name == name).count();
    let document = json!({
        "commit": done.id.to_hex(),
        "branch": done.branch,
        "parent": done.parent.map(|id| id.to_hex()),
        "message": request.message,
        "step": request.step,
        "files_changed": number("modified"),
        "files_added": number("added"),
        "files_deleted": number("deleted"),
        "resumed_from": request.resumed_from.map(|id| id.to_hex()),
        "resume": commit.resume.map(Resume::name),
        "policy": done.quality.as_ref().map(|q| &q.policy),
        "configuration": done.quality.as_ref().map(|q| &q.configuration),
        "quality": done.quality.as_ref().map(lossy_options::quality_json),
        "signed": commit.signature.is_some(),
    });
    if !context.wants_text(|| Ok(entry::with_summary(document, &done.summary)))? {
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
    writeln!(context.out, " {}", entry::stored(&done.summary))?;
    if let Some(quality) = &done.quality {
        let later = entry::approximation(&done.summary, quality).map_or_else(String::new, |later| format!("; {later}"));
        writeln!(context.out, " {}{later}", lossy_options::quality_text(quality))?;
    }
    if done.parent.is_some() {
        writeln!(context.out, " {}", changes_text(&changes))?;
    }
    for warning in done.quality.iter().flat_map(|q| &q.warnings) {
        context.note(&format!("warning: {warning}"));
    }
    hint_author(context, repo, &commit)?;
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

fn edited(repo: &Repo) -> Result<String> {
    let hint = "say what this version is with -m TEXT, or pass --step N";
    let text = editor::edited(repo, "COMMIT_EDITMSG", TEMPLATE, "a message is wanted", hint)?;
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    Ok(lines.join("\n").trim().to_owned())
}
