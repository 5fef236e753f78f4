//! Commits: files of a directory become a version on a branch.
//!
//! Order: pack written, synced, renamed, directory synced; then the ref moves by compare-and-swap; then the reply. A
//! kill between any two leaves the old version plus garbage for `gc`.

mod approximation;
pub(crate) mod disk_room;
mod identify;
mod new_file;
mod policies;
mod resume;
mod stage;
mod target;
mod write;

pub use disk_room::room;
pub use identify::{identify, identify_linked};
pub(crate) use new_file::check_names;
pub use new_file::{Content, NewFile, StoredFile, stored, stored_file};
pub use policies::{check_policy, remove_policy, set_policy, treatments};
pub(crate) use resume::{FileRole, is_state, role_of_file};
pub use stage::stage;
pub(crate) use stage::{staged_roots, sweep_staged};
pub(crate) use target::{Target, advance, branch_target};

use crate::{
    aging::{age, check_rules},
    in_progress::refuse_in_progress,
    repo::Repo,
    signing::Signing,
    work_tree::{WorkTreeLock, lock_work_tree, walk},
};
use approximation::as_it_stands;
use disk_room::with_room;
use mdl_lossy::{BoundCost, Checkpoint, LossyRequest, Prepared, Quality, Trial, prepare};
use mdl_objects::{Commit, Id, Resume, Signature, Summary};
use mdl_store::{
    Progress, RepoError, Result,
    object_db::Files,
    pack::PackWriter,
    progress::go_on,
    write::{Chains, DiskFile, Hints, Ingest, Policy, Report, STORING, Sink},
};
use new_file::spilled;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use target::target_of;
use write::ingest_file;
pub(crate) use write::{Written, write_commit, write_commit_to};

/// Keys of meta that begin with this are mdl's own.
pub(crate) const OWN: &str = "mdl.";

/// What is to be committed, and its message and metadata.
#[derive(Clone, Debug, Default)]
pub struct CommitRequest {
    /// Directory (or file) whose contents become the tree; none for the work tree.
    pub source: Option<PathBuf>,
    /// The files of the version, wherever they are; `source` is then not looked at.
    pub files: Option<Vec<NewFile>>,
    /// Message.
    pub message: String,
    /// Branch to commit to, made from HEAD's commit if it does not exist; none for the one HEAD is on.
    pub branch: Option<String>,
    /// Where the branch (or a detached HEAD) must stand; `Some(None)`: it must have no commit. None: wherever it
    /// stands.
    pub expects: Option<Option<Id>>,
    /// Author and time; none for those of the settings, now. The reflog has the author too, but the time of the ref's
    /// move.
    pub author: Option<Signature>,
    /// Parents beside the branch's commit: those of a merge.
    pub other_parents: Vec<Id>,
    /// Training step.
    pub step: Option<u64>,
    /// Training epoch.
    pub epoch: Option<f64>,
    /// Metrics.
    pub metrics: BTreeMap<String, f64>,
    /// Free key-values.
    pub meta: BTreeMap<String, String>,
    /// Commit even if nothing differs from the parent.
    pub allow_empty: bool,
    /// Take damaged checkpoint files as plain bytes.
    pub allow_damaged: bool,
    /// Commit what symbolic links point at.
    pub follow_symlinks: bool,
    /// The version that training was restored from since the last commit.
    pub resumed_from: Option<Id>,
    /// What a run resumed from this version gets back; none: told from the files' and tensors' names.
    pub resume: Option<Resume>,
    /// What a quantiser says about the tensors it made.
    pub hints: Hints,
    /// JSON: where the version comes from.
    pub provenance: Option<String>,
    /// Whether it is signed.
    pub signing: Signing,
}

/// What a commit did.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The new commit.
    pub id: Id,
    /// The branch that moved (short name); none if HEAD is detached.
    pub branch: Option<String>,
    /// The parent commit.
    pub parent: Option<Id>,
    /// Totals.
    pub summary: Summary,
    /// Per-tensor statistics.
    pub report: Report,
    /// The quality record; none for a commit without a policy.
    pub quality: Option<Quality>,
}

/// Commits.
///
/// # Errors
/// Nothing to commit; damaged or unsuitable files; `Conflict` where the branch (or a detached HEAD) moved
/// meanwhile, or is not where the request expects it; an I/O error. The branch then stands where it stood,
/// unless it was its own move that failed: that may have happened, whole.
pub fn commit(repo: &Repo, request: &CommitRequest, progress: &dyn Progress) -> Result<Committed> {
    with_room(repo, progress, || {
        let lock = lock_for(repo, request, progress)?;
        refuse_under(repo, request, lock.as_ref())?;
        let (source, files) = listed(repo, request)?;
        store(repo, request, &source, &files, None, progress)
    })
}

/// Locks the work tree while its files become a version of what HEAD points at.
fn lock_for(repo: &Repo, request: &CommitRequest, progress: &dyn Progress) -> Result<Option<WorkTreeLock>> {
    let within = |path: &PathBuf| {
        let path = fs::canonicalize(path);
        repo.work().zip(path.ok()).is_some_and(|(work, path)| path.starts_with(work))
    };
    let used = request.files.is_none() && request.source.as_ref().is_none_or(within);
    used.then(|| lock_work_tree(repo, progress)).transpose()
}

/// Files of the work tree are no new version of HEAD's branch while a rebase, a cherry-pick or a revert has put others
/// there.
fn refuse_under(repo: &Repo, request: &CommitRequest, lock: Option<&WorkTreeLock>) -> Result<()> {
    let moves_head = match &request.branch {
        Some(name) => repo.refs().head()?.branch() == Some(name.as_str()),
        None => true,
    };
    if lock.is_some() && moves_head { refuse_in_progress(repo) } else { Ok(()) }
}

/// Commits under a policy: weights may be replaced by reconstructions (see `lossy`).
///
/// # Errors
/// As `commit`; gradients that cannot be read; `Conflict` also where the branch moved while candidates were judged.
pub fn commit_lossy(
    repo: &Repo,
    request: &CommitRequest,
    lossy: &mut LossyRequest<'_>,
    progress: &dyn Progress,
) -> Result<Committed> {
    check_rules(&lossy.policy.keep)?;
    let (source, files) = listed(repo, request)?;
    let (list, _spilled) = spilled(repo, files)?;
    let prepared = searched(repo, request, &source, &list, |it| prepare(repo, it, lossy))?;
    if lossy.evaluator.as_ref().is_some_and(|e| e.gave_up()) {
        return Err(RepoError::user("the evaluator gave up; nothing was committed", ""));
    }
    let files: Vec<NewFile> = list.into_iter().map(NewFile::from).collect();
    with_room(repo, progress, || {
        // Not for as long as candidates are judged: where the files or the branch moved meanwhile, that is seen.
        let lock = lock_for(repo, request, progress)?;
        refuse_under(repo, request, lock.as_ref())?;
        store(repo, request, &source, &files, Some(&prepared), progress)
    })
}

/// What a commit under a policy would come to.
#[derive(Debug)]
pub struct PlannedCommit {
    /// Its record.
    pub quality: Quality,
    /// Every candidate that was made.
    pub trials: Vec<Trial>,
    /// What each bound of the policy costs.
    pub bound_costs: Vec<BoundCost>,
}

/// What a commit under a policy would come to.
///
/// # Errors
/// As `commit_lossy`; nothing is stored.
pub fn plan(repo: &Repo, request: &CommitRequest, lossy: &mut LossyRequest<'_>) -> Result<PlannedCommit> {
    let (source, files) = listed(repo, request)?;
    let (list, _spilled) = spilled(repo, files)?;
    let (done, bound_costs) = searched(repo, request, &source, &list, |it| mdl_lossy::plan(repo, it, lossy))?;
    Ok(PlannedCommit { quality: done.quality, trials: done.trials, bound_costs })
}

fn listed(repo: &Repo, request: &CommitRequest) -> Result<(PathBuf, Vec<NewFile>)> {
    if let Some(files) = &request.files {
        check_names(files)?;
        return Ok((PathBuf::new(), files.clone()));
    }
    let source = match &request.source {
        // Absolute, since the stat cache knows files by their path.
        Some(path) => std::path::absolute(path).map_err(RepoError::io("cannot find the current directory"))?,
        None => repo.need_work()?.to_owned(),
    };
    let follow = request.follow_symlinks || repo.config.follow_symlinks();
    let list = walk(&source, follow)?;
    Ok((source, list.into_iter().map(NewFile::from).collect()))
}

/// Searches, with `f`, for what can be committed of these files.
fn searched<T>(
    repo: &Repo,
    request: &CommitRequest,
    source: &Path,
    list: &[DiskFile],
    f: impl FnOnce(&Checkpoint<'_>) -> Result<T>,
) -> Result<T> {
    repo.odb().refresh();
    // `store` looks again; but candidates take long to make.
    let target = target_of(repo, request, source)?;
    let today = |id: Option<Id>| id.map(|id| Ok((id, as_it_stands(repo, &id)?))).transpose();
    let (parent, resumed) = (today(target.parent)?, today(request.resumed_from)?);
    let [parent, resumed] = [&parent, &resumed].map(|v| v.as_ref().map(|(id, commit)| (*id, commit)));
    f(&Checkpoint { list, source, parent, resumed, max_depth: repo.config.max_depth() })
}

fn store(
    repo: &Repo,
    request: &CommitRequest,
    source: &Path,
    list: &[NewFile],
    prepared: Option<&Prepared>,
    progress: &dyn Progress,
) -> Result<Committed> {
    let written = write_commit(repo, request, source, list, prepared, progress)?;
    let who = repo.config.moved_by(request.author.as_ref());
    advance(&written.transaction, &written.target, written.id, &written.commit, &who)?;
    if let Some(p) = prepared {
        // The commit is made; what cannot be noted now is noted by the next one.
        let _ = age(repo, &written.transaction, written.id, &p.keep);
    }
    Ok(written.into_committed())
}

/// Stores files one by one into a pack, without making a version of them, as deltas to those of `parent`.
pub(crate) fn store_ahead(
    repo: &Repo,
    files: &[NewFile],
    parent: Option<&Commit>,
    (pack, hints, allow_damaged): (&mut PackWriter, &Hints, bool),
    progress: &dyn Progress,
) -> Result<Vec<StoredFile>> {
    let old = parent.map_or(Ok(Files::new()), |c| repo.odb().files(&c.tree))?;
    let mut ingest = Ingest {
        odb: repo.odb(),
        sink: Sink::Pack(pack),
        policy: Policy { chains: Chains::skip(repo.config.max_depth()), allow_damaged },
        hints,
        progress,
        report: Report::default(),
    };
    let (mut done, mut before) = (Vec::with_capacity(files.len()), 0);
    for file in files {
        go_on(progress, STORING)?;
        let ingested = ingest_file(&mut ingest, file, old.get(&file.rel))?;
        let (report, after) = (std::mem::take(&mut ingest.report), ingest.payload_bytes());
        done.push(StoredFile::new((&ingested, file.executable), after - before, report.total, report.tensors));
        before = after;
    }
    Ok(done)
}
