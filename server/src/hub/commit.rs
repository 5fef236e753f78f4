//! Hub route `POST .../commit/{rev}`: commits changed and deleted files on top of a branch.

use crate::{
    api::{Files, stored_files},
    content::Hashes,
    hub::{
        changes::{Change, Changes},
        preupload::UploadQuery,
        short,
        site::Site,
    },
    incoming::{Holder, Place},
    request::prelude::*,
};
use axum::body::Body;
use mdl_repo::{CommitRequest, Content, NewFile, Silent};
use serde_json::{Value, json};
use std::{fs::File, path::Path as FilePath};

/// How often a commit is retried because the branch moved meanwhile.
const TRIES: usize = 6;

/// `POST /api/models/{owner}/{name}/commit/{rev}`.
pub(super) async fn commit(
    Write(access): Write,
    site: Site,
    Path(at): Path<AtRev>,
    Query(query): Query<UploadQuery>,
    body: Body,
) -> Result<Json<Value>> {
    query.check()?;
    let holder = access.holder()?;
    let changes = Changes::read(body.into_data_stream(), access.app.incoming(), &holder).await?;
    let alone = access.app.commit_lock().lock(holder.repo.clone()).await;
    let name = access.name.clone();
    let id = work(move || {
        let _alone = alone;
        let job = Job { access, holder, changes, branch: at.rev };
        let id = job.run()?;
        let known_as = Versions::new(&job.access.repo).cache_id(id)?;
        // The client need not wait for this.
        tokio::task::spawn_blocking(move || job.remember(&id));
        Ok(known_as)
    })
    .await?;
    let oid = short(&id);
    Ok(Json(json!({
        "success": true,
        "commitOid": oid,
        "commitUrl": site.link(&format!("/{name}/commit/{oid}")),
        "hookOutput": "",
    })))
}

/// One commit that is to be made.
struct Job {
    access: Access,
    holder: Holder,
    changes: Changes,
    branch: String,
}

impl Job {
    fn run(&self) -> Result<Id> {
        let repo = &self.access.repo;
        let branch = target(repo, &self.branch)?;
        let full = RefName::branch(&branch)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let tip = repo.refs().get(&full)?;
            self.check_parent(tip)?;
            let files: Vec<NewFile> = self.files(tip)?.into_values().collect();
            let request = CommitRequest {
                allow_empty: files.is_empty() && tip.is_some(),
                files: Some(files),
                message: self.changes.header.message(),
                branch: Some(branch.clone()),
                expects: Some(tip),
                author: self.access.signature(),
                // The Hub accepts any bytes: a damaged checkpoint is stored as plain bytes.
                allow_damaged: true,
                ..CommitRequest::default()
            };
            match (mdl_repo::commit(repo, &request, &Silent), tip) {
                (Ok(done), _) => {
                    self.access.app.metrics().commits.inc();
                    self.access.moved(&full, tip, Some(done.id));
                    return Ok(done.id);
                }
                (Err(RepoError::Conflict { .. } | RepoError::Overtaken), _) if tries < TRIES => {}
                // A retry after a lost answer, or a commit without changes.
                (Err(RepoError::NothingToCommit(_)), Some(tip)) => return Ok(tip),
                (Err(e), _) => return Err(e.into()),
            }
        }
    }

    /// Checks the parent commit, if the client named one.
    fn check_parent(&self, tip: Option<Id>) -> Result<()> {
        let Some(parent) = self.changes.header.parent_commit.as_deref().filter(|p| !p.is_empty()) else {
            return Ok(());
        };
        let parent = parent.to_ascii_lowercase();
        let mut versions = Versions::new(&self.access.repo);
        let known_as = tip.map(|tip| versions.cache_id(tip)).transpose()?;
        let named = |id: Option<Id>| id.is_some_and(|id| id.to_hex().starts_with(&parent));
        let same = parent.len() >= 5 && (named(tip) || named(known_as));
        let message = "A commit has happened since. Please refresh and try again.";
        match same {
            true => Ok(()),
            false => Err(Problem::new(StatusCode::PRECONDITION_FAILED, "conflict", message)),
        }
    }

    /// All files of the new version.
    fn files(&self, tip: Option<Id>) -> Result<Files> {
        let repo = &self.access.repo;
        let mut files = stored_files(repo, tip)?;
        let executable: Vec<&String> =
            self.changes.put.keys().filter(|p| files.get(*p).is_some_and(|f| f.executable)).collect();
        self.delete(&mut files)?;
        let (mut bytes, max) = (self.changes.bytes, self.access.app.incoming().max_upload);
        for (path, change) in &self.changes.put {
            let (content, size) = self.content(path, change)?;
            bytes = bytes.saturating_add(size);
            if bytes > max {
                return Err(Problem::too_large(format!("more than {max} bytes in a commit")));
            }
            let file = NewFile { rel: path.clone(), executable: executable.contains(&path), content };
            files.insert(path.clone(), file);
        }
        Ok(files)
    }

    fn delete(&self, files: &mut Files) -> Result<()> {
        let missing = |path: &str| {
            let shown: String = path.chars().take(300).collect();
            let message = format!("A file with this name doesn't exist: {shown:?}");
            Problem::new(StatusCode::NOT_FOUND, "not_found", message).code("EntryNotFound")
        };
        for path in &self.changes.deleted {
            files.remove(path).ok_or_else(|| missing(path))?;
        }
        for folder in &self.changes.deleted_folders {
            let prefix = format!("{}/", folder.trim_matches('/'));
            let before = files.len();
            files.retain(|path, _| !path.starts_with(&prefix));
            if files.len() == before {
                return Err(missing(folder));
            }
        }
        Ok(())
    }

    /// Returns the contents of a file, and how many bytes beyond those inside the commit they are.
    fn content(&self, path: &str, change: &Change) -> Result<(Content, u64)> {
        let (oid, said) = match change {
            Change::Put(received) => return Ok((Content::Disk(received.path().to_owned()), 0)),
            Change::Lfs { oid, size } => (oid, *size),
        };
        let objects = &self.access.app.incoming().objects;
        let found = objects
            .find(&self.holder.repo, &self.access.repo, oid)
            .filter(|o| said.is_none_or(|size| size == o.size))
            .ok_or_else(|| {
                Problem::usage(format!("the object of {path:?} was not uploaded"))
                    .hint("upload it by the LFS batch API first")
            })?;
        let content = match found.place {
            Place::Raw(path) => Content::Disk(path),
            Place::Version(entry) => Content::Stored(mdl_repo::stored_file(&self.access.repo, &entry)?),
        };
        Ok((content, found.size))
    }

    /// Remembers SHA-256 and git blob id of the new files: computed from the upload, without decoding.
    fn remember(&self, id: &Id) {
        let repo = &self.access.repo;
        let files = mdl_repo::files(repo, id);
        let Ok(files) = files else { return };
        for (path, change) in &self.changes.put {
            let Ok((Content::Disk(disk), _)) = self.content(path, change) else { continue };
            let Some(entry) = files.get(path).filter(|e| repo.odb().digest(&e.id).is_none()) else {
                continue;
            };
            match hashed(&disk, entry.size) {
                Ok(digests) => self.access.app.content().remember(repo, entry, digests),
                Err(error) => tracing::warn!(%error, "cannot hash an upload"),
            }
        }
    }
}

fn hashed(path: &FilePath, size: u64) -> std::io::Result<mdl_repo::Digests> {
    let file = File::open(path)?;
    match file.metadata()?.len() == size {
        true => Hashes::of_file(&file, size),
        false => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// The branch that a revision names.
fn target(repo: &Repo, rev: &str) -> Result<String> {
    let short = rev.strip_prefix(HEADS).unwrap_or(rev);
    let full = RefName::branch(short).ok();
    if full.is_some_and(|full| repo.refs().get(&full).ok().flatten().is_some()) {
        return Ok(short.to_owned());
    }
    if let ("main" | "HEAD", Some(default)) = (short, revision::head_branch(repo)?) {
        return Ok(default);
    }
    if repo.refs().head_commit()?.is_none() {
        return Ok(short.to_owned());
    }
    revision::resolve(repo, rev)?;
    Err(Problem::usage(format!("{rev:?} is no branch")).hint("commit to a branch"))
}
