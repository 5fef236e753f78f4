//! Makes the commit of a `POST .../commits` request, once its files were received.

use crate::{
    api::commits::{
        meta::{Base, FromUpload, Meta},
        receive::Received,
        replay::{Fingerprint, Key},
    },
    app::App,
    auth::Access,
    incoming::Taken,
    problem::{Problem, Result},
    request::revision,
};
use http::StatusCode;
use mdl_files::ReadAt;
use mdl_objects::Id;
use mdl_repo::{
    CommitRequest, Content, Direction, Head, LossyRequest, NewFile, Policy, RefName, Repo, RepoError, Silent, Source,
    check_ref_name,
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
    pub key: Option<(Key, Fingerprint)>,
}

/// Outcome of the request.
pub(super) enum Outcome {
    Made(Id),
    Replayed(Id),
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

fn refused(why: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "user", why)
}

/// Returns the full name of the branch: the named one, else HEAD's.
///
/// # Errors
/// An invalid name; HEAD is detached, and no branch was named.
pub(super) fn branch(repo: &Repo, said: Option<&str>) -> Result<String> {
    match (said, repo.refs().head()?) {
        (Some(name), _) => {
            check_ref_name(name)?;
            Ok(name.to_owned())
        }
        (None, Head::Branch(name)) => Ok(name),
        (None, Head::Detached(_)) => Err(refused("HEAD is on no branch").hint("name one with `branch`")),
    }
}

fn policy(repo: &Repo, name: &str) -> Result<Policy> {
    let unknown = || refused(format!("there is no policy {:?}", name.chars().take(100).collect::<String>()));
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
///
/// # Errors
/// The branch is not where it should be; what cannot be committed; damaged objects; an I/O error.
pub(super) fn make(app: &App, order: &Order) -> Result<Outcome> {
    let repo = &order.access.repo;
    let lossy = order.meta.policy.as_deref().map(|name| policy(repo, name)).transpose()?;
    let uploads = take(app, order)?;
    let resumed_from = order.meta.resumed_from.as_deref();
    let resumed_from = resumed_from.map(|rev| revision::resolve(repo, rev)).transpose()?;
    let full = RefName::branch(&order.branch)?;
    let mut tries = 0;
    let (old, id) = loop {
        if let Some((key, print)) = &order.key
            && let Some(earlier) = key.find(repo, &order.branch)?
        {
            earlier.refuse_other(earlier.print == *print)?;
            return Ok(Outcome::Replayed(earlier.id));
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
    order.access.moved(app, &full, old, Some(id));
    Ok(Outcome::Made(id))
}

fn take<'a>(app: &App, order: &'a Order) -> Result<Vec<(&'a FromUpload, Taken)>> {
    let (mut taken, key) = (Vec::new(), order.access.key()?);
    let mut left = app.options().max_upload;
    for said in &order.meta.uploads {
        if taken.iter().any(|(other, _): &(&FromUpload, Taken)| other.upload == said.upload) {
            return Err(refused(format!("upload {:?} is named twice", said.upload)));
        }
        let got = app.incoming().uploads().take(&key, &said.upload).map_err(|e| match e.status {
            StatusCode::NOT_FOUND => refused(e.message),
            _ => e,
        })?;
        let rest = left.checked_sub(got.size);
        left = rest.ok_or_else(|| Problem::too_large(format!("more than {} bytes", app.options().max_upload)))?;
        taken.push((said, got));
    }
    Ok(taken)
}

fn request(
    order: &Order,
    uploads: &[(&FromUpload, Taken)],
    tip: Option<Id>,
    resumed_from: Option<Id>,
    lossy: bool,
) -> Result<CommitRequest> {
    let (meta, repo) = (&order.meta, &order.access.repo);
    let mut said = meta.meta.clone();
    if let Some((key, print)) = &order.key {
        said.insert(super::meta::IDEMPOTENCY.to_owned(), key.record(print));
    }
    Ok(CommitRequest {
        files: Some(files(order, uploads, tip, lossy)?),
        message: meta.message(),
        branch: Some(order.branch.clone()),
        expects: Some(meta.expected()?.unwrap_or(tip)),
        author: order.access.caller.signature(&repo.config().signature()),
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
fn files(order: &Order, uploads: &[(&FromUpload, Taken)], tip: Option<Id>, lossy: bool) -> Result<Vec<NewFile>> {
    let (meta, repo) = (&order.meta, &order.access.repo);
    let mut files = kept(repo, meta, tip)?;
    let content = |path: PathBuf, size: u64| match lossy {
        // Candidates are made from files on disk.
        true => Content::Disk(path),
        false => Content::Memory(Arc::new(OnDisk { path, size })),
    };
    for (rel, received) in &order.files {
        let Some(spooled) = &received.spooled else { continue };
        let file = NewFile {
            rel: rel.clone(),
            executable: received.executable,
            content: content(spooled.path().to_owned(), spooled.len),
        };
        files.insert(rel.clone(), file);
    }
    for (said, taken) in uploads {
        if order.files.contains_key(&said.path) {
            return Err(refused(format!("{:?} was sent and is an upload too", said.path)));
        }
        let file = NewFile {
            rel: said.path.clone(),
            executable: said.executable,
            content: content(taken.path.clone(), taken.size),
        };
        files.insert(said.path.clone(), file);
    }
    for path in &meta.executable {
        let file =
            files.get_mut(path).ok_or_else(|| refused(format!("{path:?} is to be executable and is no file")))?;
        file.executable = true;
    }
    Ok(files.into_values().collect())
}

fn kept(repo: &Repo, meta: &Meta, tip: Option<Id>) -> Result<BTreeMap<String, NewFile>> {
    if meta.base == Base::Empty {
        return Ok(BTreeMap::new());
    }
    let parent = match tip {
        Some(id) => Some(id),
        None => repo.refs().head_commit()?,
    };
    let stored = parent.map_or(Ok(Vec::new()), |id| mdl_repo::stored(repo, &id))?;
    let mut files = BTreeMap::new();
    for (rel, stored) in stored {
        let file = NewFile { rel: rel.clone(), executable: stored.executable(), content: Content::Stored(stored) };
        files.insert(rel, file);
    }
    for path in &meta.remove {
        let before = files.len();
        match path.ends_with('/') {
            true => files.retain(|rel, _| !rel.starts_with(path.as_str())),
            false => drop(files.remove(path)),
        }
        if files.len() == before {
            return Err(refused(format!("{path:?} is to be removed and is not there")));
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
    let done = match lossy {
        None => mdl_repo::commit(repo, request, &Silent)?,
        Some(policy) => {
            let mut lossy = LossyRequest {
                policy: policy.clone(),
                evaluator: None,
                direction: Direction::LowerIsBetter,
                grads: None,
            };
            mdl_repo::commit_lossy(repo, request, &mut lossy, &Silent)?
        }
    };
    Ok(done.id)
}
