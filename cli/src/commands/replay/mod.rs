//! Commands that make versions anew, and what they share: options, going on and back, what they say.

pub mod cherry_pick;
pub mod rebase;
pub mod revert;

use super::{checkout::tell_files, prelude::*, shared::Moved};
use crate::errors::unforced;
use mdl_repo::{
    Aborted, ErrorKind, FileConflict, GoOn, Operation, Outcome, ReplayDone, ReplayOptions, ReplayStop, ReplayedVersion,
    TensorRule,
};

/// Tensors of a file that are named in text.
const NAMED: usize = 3;

/// What to do with an operation that is in progress.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Control {
    /// Go on after a stop, or after a kill.
    #[arg(long = "continue")]
    go_on: bool,
    /// Go on without the version that it stopped at.
    #[arg(long)]
    skip: bool,
    /// Take it all back: HEAD, the branch and the files are as they were before.
    #[arg(long)]
    abort: bool,
    /// Forget it: HEAD, the branch and the files stay as they are now.
    #[arg(long)]
    quit: bool,
}

/// Which side counts where both changed a file that has no weights.
#[derive(Debug, Default, clap::Args)]
pub struct Sides {
    /// Where both sides changed a file that matches, the one that is built upon counts; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub ours: Vec<String>,
    /// Where both sides changed a file that matches, the version that is replayed counts; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub theirs: Vec<String>,
}

impl Sides {
    pub fn options(&self, rule: TensorRule) -> ReplayOptions {
        ReplayOptions { ours: self.ours.clone(), theirs: self.theirs.clone(), ..ReplayOptions::new(rule) }
    }
}

impl Control {
    pub fn is_given(&self) -> bool {
        self.go_on || self.skip || self.abort || self.quit
    }

    /// Runs what was asked of the operation in progress.
    pub fn run(&self, context: &mut Context, repo: &Repo, operation: Operation, sides: &Sides) -> Result<()> {
        let name = operation.name();
        if self.abort {
            let done = mdl_repo::abort(repo, operation, &context.bars)?;
            return tell_aborted(context, &done);
        }
        if self.quit {
            mdl_repo::forget(repo, &context.bars)?;
            let document = json!({"operation": name, "result": "forgotten"});
            return context.confirm(&document, format!("Forgot the {name}: all is as it is now"));
        }
        let how = GoOn { ours: sides.ours.clone(), theirs: sides.theirs.clone(), skip: self.skip };
        let outcome = mdl_repo::go_on_with(repo, operation, &how, &context.bars).map_err(unforced)?;
        tell(context, repo, &outcome, operation)
    }
}

/// The versions that the arguments name: revisions, and ranges `A..B` (what B has and A has not) from the oldest on.
fn versions(repo: &Repo, revs: &[String]) -> Result<Vec<Id>> {
    let mut found = Vec::new();
    for rev in revs {
        match rev.split_once("..") {
            Some((base, head)) => {
                let head = if head.is_empty() { "HEAD" } else { head };
                let (base, head) = (mdl_repo::resolve(repo, base)?, mdl_repo::resolve(repo, head)?);
                found.extend(mdl_repo::range(repo, &base, &head)?);
            }
            None => found.push(mdl_repo::resolve(repo, rev)?),
        }
    }
    Ok(found)
}

fn refuse_both(control: &Control, is_begun: bool, operation: Operation) -> Result<()> {
    let name = operation.name();
    match (control.is_given(), is_begun) {
        (true, true) => {
            let message = "a revision begins anew, and --continue, --skip, --abort and --quit do not";
            Err(CliError::usage(message, format!("see `mdl {name} --help`")))
        }
        (false, false) => Err(CliError::usage("a revision is wanted", format!("see `mdl {name} --help`"))),
        _ => Ok(()),
    }
}

/// Says where an operation has come to. A stop is an error, once it is told.
pub fn tell(context: &mut Context, repo: &Repo, outcome: &Outcome, operation: Operation) -> Result<()> {
    if context.wants_text(|| document(repo, outcome, operation))? {
        match outcome {
            Outcome::UpToDate => writeln!(context.out, "Already up to date")?,
            Outcome::Done(done) => tell_done(context, repo, done)?,
            Outcome::Stopped(stop) => tell_stop(context, repo, stop)?,
        }
    }
    stopped(outcome)
}

/// The members of an outcome for programs.
pub fn document(repo: &Repo, outcome: &Outcome, operation: Operation) -> Result<Value> {
    let mut all = json!({
        "operation": operation.name(), "result": "up_to_date", "from": null,
        "commit": repo.refs().head_commit()?.map(|id| id.to_hex()), "branch": present_branch(repo)?,
        "replayed": [], "version": null, "onto": null, "left": 0, "conflicts": [],
    });
    match outcome {
        Outcome::UpToDate => {}
        Outcome::Done(done) => {
            all["result"] = "done".into();
            all["from"] = done.from.to_hex().into();
            all["replayed"] = done.replayed.iter().map(replayed_json).collect();
        }
        Outcome::Stopped(stop) => {
            all["result"] = "stopped".into();
            all["version"] = stop.version.to_hex().into();
            all["onto"] = stop.onto.to_hex().into();
            all["left"] = stop.left.into();
            all["conflicts"] = stop.conflicts.iter().map(conflict_json).collect();
        }
    }
    Ok(all)
}

fn replayed_json(version: &ReplayedVersion) -> Value {
    json!({"from": version.from.to_hex(), "to": version.to.map(|id| id.to_hex())})
}

/// A file to be decided on, for programs.
pub fn conflict_json(conflict: &FileConflict) -> Value {
    json!({"path": conflict.path, "reason": conflict.reason.name(), "tensors": conflict.tensors})
}

/// The error of an operation that waits.
pub fn stopped(outcome: &Outcome) -> Result<()> {
    let Outcome::Stopped(stop) = outcome else { return Ok(()) };
    let name = stop.operation.name();
    let files = count(stop.conflicts.len() as u64, "file");
    let before = if stop.operation == Operation::Revert { "~1" } else { "" };
    Err(CliError::Own {
        kind: ErrorKind::Conflict,
        message: format!("the {name} waits for {files} to be decided on"),
        hint: format!(
            "put each in place as it is to be (or delete it), or name a side with --ours GLOB (as it is now) or \
             --theirs GLOB (as {}{before} has it); then `mdl {name} --continue`. `mdl {name} --abort` takes it all back",
            stop.version.short()
        ),
    })
}

fn tell_done(context: &mut Context, repo: &Repo, done: &ReplayDone) -> Result<()> {
    let made = done.replayed.iter().filter(|v| v.to.is_some()).count() as u64;
    let what = match done.operation {
        Operation::Rebase => "replayed",
        Operation::CherryPick => "picked",
        Operation::Revert => "reverted",
        Operation::Merge => "merged",
    };
    let place = present_branch(repo)?.unwrap_or_else(|| "HEAD".to_owned());
    writeln!(context.out, "{} {what}: {place} {} -> {}", count(made, "version"), done.from.short(), done.to.short())?;
    for version in &done.replayed {
        let message = repo.odb().commit(&version.from)?.message;
        let to = version.to.map_or_else(|| "left out".to_owned(), |id| id.short());
        writeln!(context.out, "  {} -> {to:<8} {}", version.from.short(), subject(&message))?;
    }
    tell_files(context, &Moved::from(done.files.clone()), "")
}

fn tell_stop(context: &mut Context, repo: &Repo, stop: &ReplayStop) -> Result<()> {
    let message = repo.odb().commit(&stop.version)?.message;
    let (nth, all) = (stop.done + 1, stop.done + stop.left);
    let (version, title) = (stop.version.short(), subject(&message));
    writeln!(context.out, "Stopped at {version} {title} ({nth} of {all}), on top of {}:", stop.onto.short())?;
    tell_conflicts(context, &stop.conflicts)
}

/// A line for each file to be decided on.
pub fn tell_conflicts(context: &mut Context, conflicts: &[FileConflict]) -> Result<()> {
    for conflict in conflicts {
        let named = conflict.tensors.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = conflict.tensors.len().saturating_sub(NAMED);
        let tensors = match (named.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!(" ({named})"),
            (false, more) => format!(" ({named} and {more} more)"),
        };
        let line = format!("{}: {}{tensors}", conflict.path, conflict.reason.text());
        writeln!(context.out, "  {}", context.paint.red(&visible(&line)))?;
    }
    Ok(())
}

fn tell_aborted(context: &mut Context, done: &Aborted) -> Result<()> {
    let aside: Vec<String> = done.aside.iter().map(|path| path.display().to_string()).collect();
    let document = || {
        Ok(json!({
            "operation": done.operation.name(), "result": "aborted", "commit": done.commit.to_hex(),
            "written": done.files.written, "removed": done.files.removed, "aside": aside,
            "moved_to": done.moved_to.map(|id| id.to_hex()),
        }))
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    writeln!(context.out, "Took the {} back: all is as it was at {}", done.operation.name(), done.commit.short())?;
    for path in &aside {
        writeln!(context.out, "  a changed file was in the way, and is now {}", visible(path))?;
    }
    if let Some(tip) = done.moved_to {
        let (files, tip) = (done.commit.short(), tip.short());
        writeln!(context.out, "  the branch was moved to {tip} elsewhere and stays there; the files are of {files}")?;
    }
    Ok(())
}
