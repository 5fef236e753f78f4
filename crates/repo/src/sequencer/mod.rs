//! Rebase, cherry-pick and revert: versions are made anew on top of others, and can be gone on with or taken back from
//! wherever they were cut off.
//!
//! All versions are made before anything moves. Order: the record (`in_progress`); each version, then a ref that holds
//! it, then the record; last the files of the work tree, the branch, the end of the record. Where files have to be
//! decided on, the record says so before the work tree gets those that could be chosen.

mod abort;
mod combine;
mod draft;
mod finish;
mod hold;
mod merged;
mod resume;
mod step;
mod three_way;
mod todo;

pub use abort::{Aborted, abort, forget};
pub(crate) use draft::Draft;
pub(crate) use merged::{begin_merge, finish_merge};
pub use resume::{GoOn, go_on_with};
pub use todo::{parted, range};

use crate::{
    checkout::{CheckedOut, CheckoutOptions, checkout_locked, matcher},
    history::{Change, reaches},
    in_progress::{
        FileConflict, InProgress, Operation, Phase, ReplayedVersion, StoppedVersion, TensorRule, refuse_in_progress,
    },
    pruned::{files as files_of, refuse_pruned},
    repo::Repo,
    work_tree::{WorkTreeLock, lock_work_tree, refuse_moved, set_work_tree_base, status},
};
use hold::hold_version;
use mdl_objects::Id;
use mdl_store::{Missing, Progress, RepoError, Result, progress::go_on, refs::Head};
use step::{Step, replay};

/// Names the operations in `Stopped` errors.
const WHAT: &str = "the replay";

/// How versions are replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What becomes of tensors that both sides changed.
    pub rule: TensorRule,
    /// Globs of files that stay as they are on the side that is built upon, where both sides changed them.
    pub ours: Vec<String>,
    /// Globs of files that are taken as they are in the version that is replayed, where both sides changed them.
    pub theirs: Vec<String>,
    /// Of a merge that is picked or reverted: the parent, from 1, that its change is told from.
    pub mainline: Option<u64>,
    /// Whether messages are to say where a version was picked from.
    pub cite: bool,
}

impl ReplayOptions {
    /// Options that only say what becomes of tensors.
    pub fn new(rule: TensorRule) -> ReplayOptions {
        ReplayOptions { rule, ours: Vec::new(), theirs: Vec::new(), mainline: None, cite: false }
    }
}

/// Where an operation has come to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// There was nothing to do.
    UpToDate,
    /// It is done.
    Done(ReplayDone),
    /// Some files have to be decided on before it goes on.
    Stopped(ReplayStop),
}

/// What a finished operation did.
#[derive(Clone, Debug)]
pub struct ReplayDone {
    /// The operation.
    pub operation: Operation,
    /// HEAD's commit before.
    pub from: Id,
    /// HEAD's commit now.
    pub to: Id,
    /// The versions that were replayed.
    pub replayed: Vec<ReplayedVersion>,
    /// What happened to the files of the work tree.
    pub files: CheckedOut,
}

/// What an operation waits for.
#[derive(Clone, Debug)]
pub struct ReplayStop {
    /// The operation.
    pub operation: Operation,
    /// The version that is replayed.
    pub version: Id,
    /// The version that it is put on.
    pub onto: Id,
    /// What is to be decided.
    pub conflicts: Vec<FileConflict>,
    /// Versions that are done.
    pub done: u64,
    /// Versions that are left, with this one.
    pub left: u64,
}

/// Makes this side's versions anew on top of `onto` (none: of `upstream`): those that `upstream` does not have, along
/// the first parents from HEAD. A version whose files are then its own keeps its tree and what was measured of it.
///
/// # Errors
/// Uncommitted changes; an operation in progress; as a commit's. Nothing has changed then.
pub fn rebase(
    repo: &Repo,
    upstream: &Id,
    onto: Option<&Id>,
    options: &ReplayOptions,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let lock = lock_work_tree(repo, progress)?;
    let mut record = begin(repo, Operation::Rebase, options, progress)?;
    let onto = *onto.unwrap_or(upstream);
    refuse_pruned(repo, &onto)?;
    if onto == *upstream && reaches(repo, &record.original, &onto)? {
        return Ok(Outcome::UpToDate);
    }
    record.todo = range(repo, upstream, &record.original)?;
    (record.onto, record.now) = (Some(onto), onto);
    run(repo, &lock, record, progress)
}

/// Makes the changes of these versions, in their order, on top of HEAD.
///
/// # Errors
/// As `rebase`. `NotExact` where the rule is `Exact` and others changed the same.
pub fn cherry_pick(repo: &Repo, versions: &[Id], options: &ReplayOptions, progress: &dyn Progress) -> Result<Outcome> {
    pick(repo, Operation::CherryPick, versions, options, progress)
}

/// Takes the changes of these versions back, in their order, on top of HEAD.
///
/// # Errors
/// As `cherry_pick`.
pub fn revert(repo: &Repo, versions: &[Id], options: &ReplayOptions, progress: &dyn Progress) -> Result<Outcome> {
    pick(repo, Operation::Revert, versions, options, progress)
}

fn pick(
    repo: &Repo,
    operation: Operation,
    versions: &[Id],
    options: &ReplayOptions,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let lock = lock_work_tree(repo, progress)?;
    let mut record = begin(repo, operation, options, progress)?;
    for version in versions {
        refuse_pruned(repo, version)?;
    }
    if versions.is_empty() {
        return Ok(Outcome::UpToDate);
    }
    record.todo = versions.to_vec();
    run(repo, &lock, record, progress)
}

/// Looks whether an operation may begin here, and writes down what there is to know of the beginning.
fn begin(repo: &Repo, operation: Operation, options: &ReplayOptions, progress: &dyn Progress) -> Result<InProgress> {
    repo.need_work()?;
    refuse_in_progress(repo)?;
    refuse_moved(repo)?;
    matcher(&options.ours)?;
    matcher(&options.theirs)?;
    let head = repo.refs().head()?;
    let original = repo.refs().tip(&head)?.ok_or_else(|| RepoError::not_found(Missing::Version, "HEAD"))?;
    Ok(InProgress {
        operation,
        branch: head.branch().map(str::to_owned),
        original,
        onto: None,
        rule: options.rule,
        mainline: options.mainline,
        cite: options.cite,
        ours: options.ours.clone(),
        theirs: options.theirs.clone(),
        without_files: lacks_files(repo, &original, progress)?,
        todo: Vec::new(),
        done: Vec::new(),
        now: original,
        files_of: original,
        placing: None,
        phase: Phase::Replaying,
        stopped: None,
    })
}

/// Whether the work tree has no file of a version. Refuses where it has some, and they are not the version's: going
/// back must not have to tell a user's changes from what was put there.
fn lacks_files(repo: &Repo, version: &Id, progress: &dyn Progress) -> Result<bool> {
    let changes = status(repo, progress)?;
    let deleted = changes.iter().filter(|c| c.1 == Change::Deleted).count();
    let files: Vec<String> = changes.into_iter().filter(|c| c.1 != Change::Added).map(|c| c.0).collect();
    match files.is_empty() {
        true => Ok(false),
        false if deleted == files.len() && deleted == files_of(repo, version)?.len() => Ok(true),
        false => Err(RepoError::FilesInTheWay { files }),
    }
}

/// Begins what was written down. What fails before anything was asked of the user is taken back.
fn run(repo: &Repo, lock: &WorkTreeLock, mut record: InProgress, progress: &dyn Progress) -> Result<Outcome> {
    record.write(repo)?;
    let done = advance(repo, lock, &mut record, progress);
    if let Err(failed) = done {
        // What cannot be put back now can be later: the record is there.
        let _ = abort::put_back(repo, lock, record, progress);
        return Err(failed);
    }
    done
}

/// Replays what is left, and finishes.
fn advance(repo: &Repo, lock: &WorkTreeLock, record: &mut InProgress, progress: &dyn Progress) -> Result<Outcome> {
    let head = record.head();
    if record.phase == Phase::Replaying {
        place(repo, lock, record, &head, progress)?;
    }
    if let Some(stopped) = &record.stopped {
        return Ok(Outcome::Stopped(stop_of(record, stopped, stopped.conflicts.clone())));
    }
    while let Some(next) = record.todo.first().copied() {
        go_on(progress, WHAT)?;
        let step = replay(repo, record, &next, progress)?;
        record.todo.remove(0);
        match step {
            Step::Dropped => record.done.push(ReplayedVersion { from: next, to: None }),
            Step::Made(made, transaction) => {
                hold_version(repo, &transaction, record, &made)?;
                record.done.push(ReplayedVersion { from: next, to: Some(made) });
                record.now = made;
            }
            // Decisions are made in the work tree.
            Step::Stopped(_, _, conflicts) if record.without_files => {
                return Err(RepoError::Undecided { files: conflicts.into_iter().map(|c| c.path).collect() });
            }
            Step::Stopped(partial, transaction, conflicts) => {
                hold_version(repo, &transaction, record, &partial)?;
                drop(transaction);
                record.stopped = Some(StoppedVersion { version: next, partial, conflicts });
                record.placing = Some(partial);
                record.write(repo)?;
                return advance(repo, lock, record, progress);
            }
        }
        record.write(repo)?;
    }
    finish::finish(repo, lock, record, progress)
}

/// Puts the files that are to be in the work tree there: at first as much as could be chosen, for the user to decide on
/// the others. Begun anew it goes on: what is there already stays.
fn place(
    repo: &Repo,
    lock: &WorkTreeLock,
    record: &mut InProgress,
    head: &Head,
    progress: &dyn Progress,
) -> Result<CheckedOut> {
    let Some(version) = record.placing else { return Ok(CheckedOut::default()) };
    if record.without_files {
        return Ok(CheckedOut::default());
    }
    // What the note says may be of a step that was cut off.
    set_work_tree_base(repo, Some(record.files_of));
    let done = checkout_locked(repo, lock, &version, head, &CheckoutOptions::default(), progress)?;
    record.files_of = version;
    record.placing = None;
    record.write(repo)?;
    Ok(done)
}

fn stop_of(record: &InProgress, stopped: &StoppedVersion, conflicts: Vec<FileConflict>) -> ReplayStop {
    ReplayStop {
        operation: record.operation,
        version: stopped.version,
        onto: record.now,
        conflicts,
        done: record.done.len() as u64,
        left: record.todo.len() as u64 + 1,
    }
}
