//! Makes the commit of a `POST .../commits` request, once its files were received.

use crate::{
    api::commits::{
        meta::{Base, FromUpload, Meta},
        receive::Received,
        replay::Key,
    },
    incoming::TakenUpload,
    request::prelude::*,
};
use mdl_files::ReadAt;
use mdl_repo::{
    CommitRequest, Content, Direction, LossyRequest, NewFile, Policy, Silent, Source, StoredFile, check_ref_name,
};
use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

/// How often the commit is retried when other writers move the branch meanwhile.
const TRIES: usize = 5;

/// A received commit request.
pub(super) struct Order {
    pub access: Access,
    pub branch: String,
    pub meta: Meta,
    pub files: BTreeMap<String, Received>,
    pub key: Option<Key>,
}

/// The commit that a request asked for.
pub(super) struct Committed {
    pub id: Id,
    /// Whether an earlier request with the same key made it.
    pub replayed: bool,
}

/// An incoming file, opened only while it is read: there may be more than the limit on open files.
struct OnDisk {
    path: PathBuf,
    size: u64,
}

impl ReadAt for OnDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        File::open(&self.path)?.read_exact_at(buf, offset)
    }
}

impl Source for OnDisk {}

/// The files of a new version, by their names.
pub(crate) type Files = BTreeMap<String, NewFile>;

/// The files of a version, for one that keeps them.
pub(crate) fn stored_files(repo: &Repo, commit: Option<Id>) -> Result<Files> {
    let stored = commit.map_or(Ok(Vec::new()), |id| mdl_repo::stored(repo, &id))?.into_iter();
    let keep = |(rel, stored): (String, StoredFile)| {
        (rel.clone(), NewFile { rel, executable: stored.executable(), content: Content::Stored(stored) })
    };
    Ok(stored.map(keep).collect())
}

/// Returns the short name of the branch: the named one, else HEAD's.
pub(super) fn branch(repo: &Repo, said: Option<&str>) -> Result<String> {
    let head = revision::head_branch(repo)?;
    said.map(check_ref_name).transpose()?;
    let none = || Problem::refused("HEAD is on no branch").hint("name one with `branch`");
    said.map(str::to_owned).or(head).ok_or_else(none)
}

fn policy(repo: &Repo, name: &str) -> Result<Policy> {
    let unknown = || Problem::refused(format!("there is no policy {:?}", name.chars().take(100).collect::<String>()));
    // A name with a slash or `.toml` would be a file of this machine.
    if name.contains('/') || name.ends_with(".toml") {
        return Err(unknown());
    }
    mdl_repo::policy(repo, name).map_err(|e| match e {
        RepoError::NotFound { .. } => unknown(),
        e => e.into(),
    })
}

/// Makes the commit; removes the uploads it used.
pub(super) fn make(order: &Order) -> Result<Committed> {
    let (app, repo) = (&order.access.app, &order.access.repo);
    let lossy = order.meta.policy.as_deref().map(|name| policy(repo, name)).transpose()?;
    let uploads = take(order)?;
    let resumed_from = order.meta.resumed_from.as_deref();
    let resumed_from = resumed_from.map(|rev| revision::resolve(repo, rev)).transpose()?;
    let full = RefName::branch(&order.branch)?;
    let mut tries = 0;
    let (old, id) = loop {
        if let Some(key) = &order.key
            && let Some(earlier) = key.find(repo, &order.branch)?
        {
            earlier.refuse_other(earlier.print == key.print)?;
            return Ok(Committed { id: earlier.id, replayed: true });
        }
        // Read after the branch's commits: a concurrent commit between the two moves it.
        let tip = repo.refs().get(&full)?;
        let request = request(order, &uploads, tip, resumed_from, lossy.is_some())?;
        match commit(repo, &request, lossy.as_ref()) {
            Ok(id) => break (tip, id),
            Err(RepoError::Conflict { .. } | RepoError::Overtaken)
                if order.meta.expected.is_none() && tries < TRIES =>
            {
                tries += 1
            }
            Err(e) => return Err(named(e, &request).into()),
        }
    };
    uploads.into_iter().for_each(|(_, taken)| taken.used());
    app.metrics().commits.inc();
    order.access.moved(&full, old, Some(id));
    Ok(Committed { id, replayed: false })
}

fn take(order: &Order) -> Result<Vec<(&FromUpload, TakenUpload)>> {
    let (mut taken, key, incoming) = (Vec::new(), order.access.key()?, order.access.app.incoming());
    let mut left = incoming.max_upload;
    for said in &order.meta.uploads {
        if taken.iter().any(|(other, _): &(&FromUpload, TakenUpload)| other.upload == said.upload) {
            return Err(Problem::refused(format!("upload {:?} is named twice", said.upload)));
        }
        let got = incoming.uploads.take(&key, &said.upload).map_err(|e| match e.status {
            StatusCode::NOT_FOUND => Problem::refused(e.message),
            _ => e,
        })?;
        let rest = left.checked_sub(got.size);
        left = rest.ok_or_else(|| Problem::too_large(format!("more than {} bytes", incoming.max_upload)))?;
        taken.push((said, got));
    }
    Ok(taken)
}

fn request(
    order: &Order,
    uploads: &[(&FromUpload, TakenUpload)],
    tip: Option<Id>,
    resumed_from: Option<Id>,
    lossy: bool,
) -> Result<CommitRequest> {
    let meta = &order.meta;
    let mut said = meta.meta.clone();
    if let Some(key) = &order.key {
        said.insert(super::meta::IDEMPOTENCY.to_owned(), key.record());
    }
    Ok(CommitRequest {
        files: Some(files(order, uploads, tip, lossy)?),
        message: meta.message(),
        branch: Some(order.branch.clone()),
        expects: Some(meta.expected()?.unwrap_or(tip)),
        author: order.access.signature(),
        step: meta.step,
        epoch: meta.epoch,
        metrics: meta.metrics.clone(),
        meta: said,
        allow_empty: meta.allow_empty,
        allow_damaged: meta.allow_damaged,
        resumed_from,
        ..CommitRequest::default()
    })
}

/// Returns the files of the version: those of the base, less removed ones, overlaid by those that were sent.
fn files(order: &Order, uploads: &[(&FromUpload, TakenUpload)], tip: Option<Id>, lossy: bool) -> Result<Vec<NewFile>> {
    let (meta, repo) = (&order.meta, &order.access.repo);
    let mut files = kept(repo, meta, tip)?;
    let content = |path: PathBuf, size: u64| match lossy {
        // Candidates are made from files on disk.
        true => Content::Disk(path),
        false => Content::Memory(Arc::new(OnDisk { path, size })),
    };
    for (rel, received) in &order.files {
        let Some(kept) = &received.kept else { continue };
        let content = content(kept.path().to_owned(), kept.len);
        files.insert(rel.clone(), NewFile { rel: rel.clone(), executable: received.executable, content });
    }
    for (said, taken) in uploads {
        if order.files.contains_key(&said.path) {
            return Err(Problem::refused(format!("{:?} was sent and is an upload too", said.path)));
        }
        let (rel, content) = (said.path.clone(), content(taken.path.clone(), taken.size));
        files.insert(rel.clone(), NewFile { rel, executable: said.executable, content });
    }
    for path in &meta.executable {
        let file = files
            .get_mut(path)
            .ok_or_else(|| Problem::refused(format!("{path:?} is to be executable and is no file")))?;
        file.executable = true;
    }
    Ok(files.into_values().collect())
}

fn kept(repo: &Repo, meta: &Meta, tip: Option<Id>) -> Result<Files> {
    if meta.base == Base::Empty {
        return Ok(Files::new());
    }
    let parent = match tip {
        Some(id) => Some(id),
        None => repo.refs().head_commit()?,
    };
    let mut files = stored_files(repo, parent)?;
    for path in &meta.remove {
        let before = files.len();
        match path.ends_with('/') {
            true => files.retain(|rel, _| !rel.starts_with(path.as_str())),
            false => drop(files.remove(path)),
        }
        if files.len() == before {
            return Err(Problem::refused(format!("{path:?} is to be removed and is not there")));
        }
    }
    Ok(files)
}

/// Hides where an incoming file is kept on the server: errors name its path in the version.
fn named(error: RepoError, request: &CommitRequest) -> RepoError {
    let RepoError::Scan { path, source } = error else {
        return error;
    };
    let mut files = request.files.iter().flatten();
    let found = files.find(|f| matches!(&f.content, Content::Disk(disk) if *disk == path));
    RepoError::Scan { path: found.map_or(path, |f| PathBuf::from(&f.rel)), source }
}

fn commit(repo: &Repo, request: &CommitRequest, lossy: Option<&Policy>) -> mdl_repo::Result<Id> {
    let done = match lossy.cloned() {
        None => mdl_repo::commit(repo, request, &Silent)?,
        Some(policy) => {
            let direction = Direction::LowerIsBetter;
            let mut lossy = LossyRequest { policy, evaluator: None, direction, grads: None, since: None };
            mdl_repo::commit_lossy(repo, request, &mut lossy, &Silent)?
        }
    };
    Ok(done.id)
}
