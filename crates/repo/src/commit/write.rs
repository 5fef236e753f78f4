//! Writes all of a commit except the ref's move: files become objects in a pack, and the commit that names them.

use crate::{
    commit::{
        CommitRequest, Committed, OWN,
        approximation::{Approximation, as_it_stands, refuse_written_since},
        disk_room::need_room,
        new_file::{Content, NewFile},
        resume,
        target::{Target, target_of},
    },
    repo::Repo,
    signing::Signer,
};
use mdl_lossy::{Prepared, Quality};
use mdl_objects::{Commit, Entry, Id, Kind, Resume, Summary};
use mdl_store::{
    Progress, RepoError, Result, Unchanged,
    object_db::Files,
    progress::go_on,
    transaction::WriteTransaction,
    write::{
        Chains, FileState, Hints, Ingest, Ingested, Policy, Report, STORING, Sink, changed, ingest_cached, store_trees,
    },
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// A commit that is stored, durably, and that no ref holds yet. While it lives no collector runs.
#[derive(Debug)]
pub(crate) struct Written<'r> {
    pub target: Target,
    pub id: Id,
    pub commit: Commit,
    pub report: Report,
    pub quality: Option<Quality>,
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

/// All of a commit except the ref's move.
pub(crate) fn write_commit<'r>(
    repo: &'r Repo,
    request: &CommitRequest,
    source: &Path,
    list: &[NewFile],
    prepared: Option<&Prepared>,
    progress: &dyn Progress,
) -> Result<Written<'r>> {
    // No collector may run between the look-ups ("is it stored already?") and the ref's move.
    let transaction = WriteTransaction::begin(repo)?;
    let target = target_of(repo, request, source)?;
    write_commit_to(repo, request, (source, list), prepared, (transaction, target), progress)
}

/// The same, on top of another version than the one that the request's branch is at.
pub(crate) fn write_commit_to<'r>(
    repo: &'r Repo,
    request: &CommitRequest,
    (source, list): (&Path, &[NewFile]),
    prepared: Option<&Prepared>,
    (transaction, target): (WriteTransaction<'r>, Target),
    progress: &dyn Progress,
) -> Result<Written<'r>> {
    // A key that is missing is told before all is read.
    let signer = request.signing.signer(repo, "commit")?;
    let sizes: u64 = list.iter().map(NewFile::size).sum::<Result<_>>()?;
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
    let parent_commit = parent.map(|id| as_it_stands(repo, &id)).transpose()?;
    let old = parent_commit.as_ref().map_or(Ok(Files::new()), |c| repo.odb().files(&c.tree))?;
    if prepared.is_none() {
        // How little a reconstruction takes cannot be told from the versions before.
        need_room(repo, list, parent_commit.as_ref())?;
    }
    let policy = Policy {
        chains: prepared.map_or(Chains::skip(repo.config.max_depth()), |p| Chains::in_line(p.max_depth)),
        allow_damaged: request.allow_damaged,
    };
    let windowed = prepared.filter(|p| p.keep.keeps_exact() && !p.files.is_empty());
    progress.begin("committing", if windowed.is_some() { sizes.saturating_mul(2) } else { sizes });
    let beside = windowed.map(|p| {
        let from = parent_commit.as_ref();
        Approximation::store(repo, &transaction, list, from, (p, policy), progress)
    });
    let beside = beside.transpose()?;
    let (replaced, hints) = match prepared {
        Some(p) if beside.is_none() => (Some(p), &p.hints),
        Some(_) => (None, &Hints::default()),
        None => (None, &request.hints),
    };
    let sink = Sink::Pack(&mut pack);
    let mut ingest = Ingest { odb: repo.odb(), sink, policy, hints, progress, report: Report::default() };
    // The exact contents take least as what the approximation leaves out, and then go without anything leaning on them.
    let files = ingest_all(&mut ingest, list, beside.as_ref().map_or(&old, |b| &b.files), replaced)?;
    let exact_bytes = beside.as_ref().map(|_| ingest.payload_bytes());
    if let Some(p) = windowed {
        refuse_written_since(list, p)?;
    }
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
    // The one that lasts is reported on.
    let beside = beside.filter(|b| b.tree != tree);
    let mut report = std::mem::take(&mut ingest.report);
    if let Some(b) = &beside {
        report = b.report.clone();
    }
    if let Some(p) = prepared {
        report.errors(&p.errors);
    }
    let mut quality = prepared.map(|p| p.quality.clone());
    if let Some(quality) = &mut quality {
        quality.exact_bytes = exact_bytes.filter(|_| beside.is_some());
    }
    let lost = quality.as_ref().filter(|_| beside.is_none());
    let derive = || resume::derive(repo.odb(), list, &files, lost);
    let resume = request.resume.map(|label| resume::given(label, lost)).or_else(derive);
    let made = Made {
        tree,
        parent,
        files: &files,
        report: &report,
        resume,
        beside: beside.as_ref(),
        signer: signer.as_deref(),
    };
    let (commit, id) = finish(&mut ingest, request, repo, &made, prepared.zip(quality.as_ref()))?;
    drop(ingest);
    // From here on it is a commit.
    go_on(progress, STORING)?;
    transaction.publish(pack)?;
    Ok(Written { target, id, commit, report, quality, transaction })
}

pub(super) fn ingest_all(
    ingest: &mut Ingest<'_>,
    list: &[NewFile],
    old: &Files,
    prepared: Option<&Prepared>,
) -> Result<Files> {
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
pub(super) fn ingest_file(ingest: &mut Ingest<'_>, f: &NewFile, parent: Option<&Entry>) -> Result<Ingested> {
    match &f.content {
        Content::Disk(path) => ingest_cached(ingest, path, &f.rel, parent),
        Content::Memory(source) => ingest.source(&**source, Path::new(&f.rel), &f.rel, parent),
        Content::Stored(stored) => stored.join(ingest, &f.rel),
    }
}

/// What a commit is made of.
struct Made<'a> {
    tree: Id,
    parent: Option<Id>,
    files: &'a Files,
    report: &'a Report,
    resume: Option<Resume>,
    beside: Option<&'a Approximation>,
    signer: Option<&'a Signer>,
}

fn finish(
    ingest: &mut Ingest<'_>,
    request: &CommitRequest,
    repo: &Repo,
    made: &Made<'_>,
    prepared: Option<(&Prepared, &Quality)>,
) -> Result<(Commit, Id)> {
    let Made { tree, parent, files, report, resume, beside, signer } = *made;
    let json = serde_json::to_vec(report).map_err(|e| RepoError::io("cannot write the report")(e.into()))?;
    let report_id = ingest.object(Kind::Blob, &json)?;
    let side = prepared.into_iter().flat_map(|(p, _)| &p.side);
    let side = side.map(|bytes| ingest.object(Kind::Blob, bytes)).collect::<Result<_>>()?;
    let beside_bytes = beside.map_or(0, |b| b.bytes);
    let stored_bytes =
        beside_bytes + ingest.payload_bytes() + request.files.iter().flatten().map(NewFile::stored_bytes).sum::<u64>();
    let summary = Summary {
        files: files.len() as u64,
        tensors: report.total,
        new_tensors: report.tensors.len() as u64,
        logical_bytes: files.values().map(|e| e.size).sum(),
        stored_bytes,
    };
    let mut commit = Commit {
        tree,
        parents: parent.into_iter().chain(request.other_parents.iter().copied()).collect(),
        author: request.author.clone().unwrap_or_else(|| repo.config.signature()),
        message: request.message.clone(),
        step: request.step,
        epoch: request.epoch,
        metrics: request.metrics.clone(),
        meta: request.meta.clone(),
        summary,
        report: Some(report_id),
        resumed_from: request.resumed_from,
        quality: prepared.map(|(_, quality)| quality.to_json()).transpose()?,
        side,
        resume,
        approximation: beside.map(|b| b.tree),
        provenance: request.provenance.clone(),
        signature: None,
        unknown: Vec::new(),
    };
    commit.check_bounds().map_err(RepoError::TooLong)?;
    commit.signature = signer.map(|key| key.sign(&commit.signed_bytes())).transpose()?;
    let id = ingest.object(Kind::Commit, &commit.encode())?;
    Ok((commit, id))
}
