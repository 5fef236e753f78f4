//! Commits: files of a directory become a version on a branch.
//!
//! Order: pack written, synced, renamed, directory synced; then the ref moves by compare-and-swap; then the reply. A
//! kill between any two leaves the old version plus garbage for `gc`.

pub(crate) mod disk_room;
mod identify;
mod new_file;
mod policies;
mod resume;
mod stage;
mod target;

pub use disk_room::room;
pub use identify::identify;
pub(crate) use new_file::check_names;
pub use new_file::{Content, NewFile, StoredFile, stored, stored_file};
pub use policies::{remove_policy, set_policy, treatments};
pub use stage::stage;
pub(crate) use stage::{staged_roots, sweep_staged};
pub(crate) use target::{Target, advance, branch_target};

use crate::{
    repo::Repo,
    work_tree::{WorkTreeLock, lock_work_tree, walk},
};
use disk_room::{need_room, with_room};
use mdl_lossy::{LossyRequest, Prepared, Quality, Trial, prepare};
use mdl_objects::{Commit, Entry, Id, Kind, Resume, Signature, Summary};
use mdl_store::{
    Progress, RepoError, Result, Unchanged,
    object_db::Files,
    pack::PackWriter,
    progress::go_on,
    transaction::WriteTransaction,
    write::{
        DiskFile, FileState, Hints, Ingest, Ingested, Policy, Report, STORING, Sink, changed, ingest_cached,
        store_trees,
    },
};
use new_file::spilled;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use target::target_of;

/// Keys of meta that begin with this are mdl's own.
const OWN: &str = "mdl.";

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

/// A commit that is stored, durably, and that no ref holds yet. While it lives no collector runs.
#[derive(Debug)]
pub(crate) struct Written<'r> {
    pub target: Target,
    pub id: Id,
    pub commit: Commit,
    report: Report,
    quality: Option<Quality>,
    pub transaction: WriteTransaction<'r>,
}

impl Written<'_> {
    pub fn into_committed(self) -> Committed {
        Committed {
            id: self.id,
            parent: self.target.parent,
            branch: self.target.head.branch().map(str::to_owned),
            summary: self.commit.summary,
            report: self.report,
            quality: self.quality,
        }
    }
}

/// Commits.
///
/// # Errors
/// Nothing to commit; damaged or unsuitable files; `Conflict` where the branch (or a detached HEAD) moved
/// meanwhile, or is not where the request expects it; an I/O error. The branch then stands where it stood,
/// unless it was its own move that failed: that may have happened, whole.
pub fn commit(repo: &Repo, request: &CommitRequest, progress: &dyn Progress) -> Result<Committed> {
    with_room(repo, progress, || {
        let _lock = lock_for(repo, request, progress)?;
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
    let (source, files) = listed(repo, request)?;
    let (list, _spilled) = spilled(repo, files)?;
    let prepared = prepared(repo, request, lossy, &source, &list)?;
    if lossy.evaluator.as_ref().is_some_and(|e| e.gave_up()) {
        return Err(RepoError::user("the evaluator gave up; nothing was committed", ""));
    }
    let files: Vec<NewFile> = list.into_iter().map(NewFile::from).collect();
    with_room(repo, progress, || {
        // Not for as long as candidates are judged: where the files or the branch moved meanwhile, that is seen.
        let _lock = lock_for(repo, request, progress)?;
        store(repo, request, &source, &files, Some(&prepared), progress)
    })
}

/// What a commit under a policy would come to: its record, and every candidate that was made.
///
/// # Errors
/// As `commit_lossy`; nothing is stored.
pub fn plan(repo: &Repo, request: &CommitRequest, lossy: &mut LossyRequest<'_>) -> Result<(Quality, Vec<Trial>)> {
    let (source, files) = listed(repo, request)?;
    let (list, _spilled) = spilled(repo, files)?;
    let prepared = prepared(repo, request, lossy, &source, &list)?;
    Ok((prepared.quality, prepared.trials))
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

fn prepared(
    repo: &Repo,
    request: &CommitRequest,
    lossy: &mut LossyRequest<'_>,
    source: &Path,
    list: &[DiskFile],
) -> Result<Prepared> {
    repo.odb().refresh();
    // `store` looks again; but candidates take long to make.
    let target = target_of(repo, request, source)?;
    let parent = target.parent;
    let commit = parent.map(|id| repo.odb().commit(&id)).transpose()?;
    let parent = parent.zip(commit.as_ref());
    prepare(repo, list, source, parent, request.resumed_from, repo.config.max_depth(), lossy)
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
    Ok(written.into_committed())
}

/// All of a commit except the ref's move.
pub(crate) fn write_commit<'r>(
    repo: &'r Repo,
    request: &CommitRequest,
    source: &Path,
    list: &[NewFile],
    prepared: Option<&Prepared>,
    progress: &dyn Progress,
) -> Result<Written<'r>> {
    let sizes: u64 = list.iter().map(NewFile::size).sum::<Result<_>>()?;
    // No collector may run between the look-ups ("is it stored already?") and the ref's move.
    let transaction = WriteTransaction::begin(repo)?;
    let target = target_of(repo, request, source)?;
    let parent = target.parent;
    if let Some(p) = prepared.filter(|p| p.parent != parent) {
        return Err(RepoError::Conflict {
            name: request.branch.clone().unwrap_or_else(|| "the branch".to_owned()),
            expected: p.parent,
            found: parent,
        });
    }
    let relied_on = parent.into_iter().chain(list.iter().filter_map(NewFile::stored_id));
    let mut pack = transaction.pack(relied_on)?;
    let parent_commit = parent.map(|id| repo.odb().commit(&id)).transpose()?;
    let old = parent_commit.as_ref().map_or(Ok(Files::new()), |c| repo.odb().files(&c.tree))?;
    if prepared.is_none() {
        // How little a reconstruction takes cannot be told from the versions before.
        need_room(repo, list, parent_commit.as_ref())?;
    }
    let policy = Policy {
        max_depth: prepared.map_or(repo.config.max_depth(), |p| p.max_depth),
        allow_damaged: request.allow_damaged,
    };
    let sink = Sink::Pack(&mut pack);
    let mut ingest = Ingest {
        odb: repo.odb(),
        sink,
        policy,
        hints: prepared.map_or(&request.hints, |p| &p.hints),
        progress,
        report: Report::default(),
    };
    progress.begin("committing", sizes);
    let files = ingest_all(&mut ingest, list, &old, prepared)?;
    if request.files.is_none() {
        refuse_other_modes(list)?;
    }
    progress.end();
    let tree = store_trees(&mut ingest, &files)?;
    let labelled = request.step.is_some() || request.epoch.is_some();
    let labelled = labelled || !request.metrics.is_empty() || request.allow_empty;
    // What a server notes for itself says nothing about the version.
    let labelled = labelled || request.meta.keys().any(|key| !key.starts_with(OWN));
    // Where a check found damage, the same files may be there to be stored again.
    let labelled = labelled || repo.odb().has_unreadable()?;
    if !labelled && parent_commit.as_ref().map(|c| c.tree) == Some(tree) {
        return Err(RepoError::NothingToCommit(Unchanged::SameFiles));
    }
    if files.is_empty() && !request.allow_empty {
        let source = Some(source.to_owned()).filter(|path| !path.as_os_str().is_empty());
        return Err(RepoError::NothingToCommit(Unchanged::NoFiles { source }));
    }
    let mut report = std::mem::take(&mut ingest.report);
    if let Some(p) = prepared {
        report.errors(&p.errors);
    }
    let quality = prepared.map(|p| &p.quality);
    let derive = || resume::derive(repo.odb(), list, &files, quality);
    let resume = request.resume.map(|label| resume::given(label, quality)).or_else(derive);
    let made = Made { tree, parent, files: &files, report: &report, resume };
    let (commit, id) = finish(&mut ingest, request, repo, &made, prepared)?;
    drop(ingest);
    // From here on it is a commit.
    go_on(progress, STORING)?;
    transaction.publish(pack)?;
    Ok(Written { target, id, commit, report, quality: prepared.map(|p| p.quality.clone()), transaction })
}

fn ingest_all(ingest: &mut Ingest<'_>, list: &[NewFile], old: &Files, prepared: Option<&Prepared>) -> Result<Files> {
    let mut files = Files::new();
    for f in list {
        go_on(ingest.progress, STORING)?;
        // A version of one file goes on from a version of one file, whatever its name: `epoch=1-step=500.ckpt` and
        // the next.
        let alone = || old.values().next().filter(|_| (list.len(), old.len()) == (1, 1));
        let parent = old.get(&f.rel).or_else(alone);
        let done = match prepared.and_then(|p| Some((p, p.files.get(&f.rel)?))) {
            Some((p, path)) => {
                let state = match &f.content {
                    Content::Disk(original) => Some(FileState::from_path(original)?),
                    _ => None,
                };
                let before = p.states.get(&f.rel);
                if before.zip(state).is_none_or(|(before, now)| now.written_since(before)) {
                    return Err(changed(&f.rel));
                }
                ingest.file(path, &f.rel, parent)?
            }
            None => ingest_file(ingest, f, parent)?,
        };
        let Ingested { mode, id, size } = done;
        files.insert(f.rel.clone(), Entry { name: String::new(), mode, executable: f.executable, size, id });
    }
    Ok(files)
}

/// A file that came to its name between the listing and the reading has an executable bit of its own.
fn refuse_other_modes(list: &[NewFile]) -> Result<()> {
    for f in list {
        let Content::Disk(path) = &f.content else { continue };
        // One that went after it was read is in the version as it was.
        match fs::metadata(path) {
            Ok(m) if (m.permissions().mode() & 0o100 != 0) != f.executable => return Err(changed(&f.rel)),
            _ => {}
        }
    }
    Ok(())
}

/// Ingests a file, wherever it is.
fn ingest_file(ingest: &mut Ingest<'_>, f: &NewFile, parent: Option<&Entry>) -> Result<Ingested> {
    match &f.content {
        Content::Disk(path) => ingest_cached(ingest, path, &f.rel, parent),
        Content::Memory(source) => ingest.source(&**source, Path::new(&f.rel), &f.rel, parent),
        Content::Stored(stored) => stored.join(ingest, &f.rel),
    }
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
        policy: Policy { max_depth: repo.config.max_depth(), allow_damaged },
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

/// What a commit is made of.
struct Made<'a> {
    tree: Id,
    parent: Option<Id>,
    files: &'a Files,
    report: &'a Report,
    resume: Option<Resume>,
}

fn finish(
    ingest: &mut Ingest<'_>,
    request: &CommitRequest,
    repo: &Repo,
    made: &Made<'_>,
    prepared: Option<&Prepared>,
) -> Result<(Commit, Id)> {
    let Made { tree, parent, files, report, resume } = *made;
    let json = serde_json::to_vec(report).map_err(|e| RepoError::io("cannot write the report")(e.into()))?;
    let report_id = ingest.object(Kind::Blob, &json)?;
    let side = prepared.into_iter().flat_map(|p| &p.side);
    let side = side.map(|bytes| ingest.object(Kind::Blob, bytes)).collect::<Result<_>>()?;
    let stored_bytes = ingest.payload_bytes() + request.files.iter().flatten().map(NewFile::stored_bytes).sum::<u64>();
    let summary = Summary {
        files: files.len() as u64,
        tensors: report.total,
        new_tensors: report.tensors.len() as u64,
        logical_bytes: files.values().map(|e| e.size).sum(),
        stored_bytes,
    };
    let commit = Commit {
        tree,
        parents: parent.into_iter().collect(),
        author: request.author.clone().unwrap_or_else(|| repo.config.signature()),
        message: request.message.clone(),
        step: request.step,
        epoch: request.epoch,
        metrics: request.metrics.clone(),
        meta: request.meta.clone(),
        summary,
        report: Some(report_id),
        resumed_from: request.resumed_from,
        quality: prepared.map(|p| p.quality.to_json()).transpose()?,
        side,
        resume,
        unknown: Vec::new(),
    };
    commit.check_bounds().map_err(RepoError::TooLong)?;
    let id = ingest.object(Kind::Commit, &commit.encode())?;
    Ok((commit, id))
}
