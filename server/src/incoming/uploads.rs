//! Resumable uploads: files that arrive in parts, over several requests and restarts of the server.
//!
//! Two files each: `ID` has the received bytes, and its length is the upload's offset; `ID.json` describes the upload.

use crate::{
    app::work,
    incoming::{
        quota::{Holder, NO_TOKEN},
        room,
        room::Room,
    },
    problem::{Problem, Result, storage_failed},
    process::state::{entries, now_ms, random_hex, write_private},
    registry::RepoKey,
    tasks::keyed_mutex::{KeyedGuard, KeyedMutex},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;

/// Name of their directory in a repository's.
pub(super) const KIND: &str = "uploads";
/// Uploads that a repository may have at a time.
const MAX_UPLOADS: usize = 1000;
const ID_BYTES: usize = 16;
/// How long an upload may be idle before it is dropped.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// How long a request waits for another one that holds the upload.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Description of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadPlan {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal digits, if the client said it.
    pub sha256: Option<String>,
    /// When it began: milliseconds since 1970.
    pub created_ms: i64,
    /// Whether it is complete and matches its length and hash.
    #[serde(default)]
    pub checked: bool,
    /// Id of the token that began it.
    #[serde(default = "no_token")]
    pub by: String,
}

fn no_token() -> String {
    NO_TOKEN.to_owned()
}

/// An upload and its offset.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its name.
    pub id: String,
    /// Its description.
    pub plan: UploadPlan,
    /// Bytes that arrived.
    pub offset: u64,
    /// When it is dropped if nothing more arrives: milliseconds since 1970.
    pub expires_ms: i64,
}

/// A complete upload in use: no other request can have it until this is dropped.
#[derive(Debug)]
pub struct TakenUpload {
    /// Where its bytes are.
    pub path: PathBuf,
    /// Length in bytes.
    pub size: u64,
    room: Arc<Room>,
    _held: KeyedGuard,
}

/// All resumable uploads.
#[derive(Debug)]
pub struct Uploads {
    room: Arc<Room>,
    max: u64,
    /// Held by what writes to an upload, reads it or removes it.
    locks: KeyedMutex<PathBuf>,
    /// Wakes writers to make them give way: a client may resume before the server noticed that its connection broke.
    writers: Mutex<HashMap<PathBuf, Arc<Notify>>>,
    beginning: KeyedMutex<RepoKey>,
}

fn plan_path(path: &Path) -> PathBuf {
    path.with_extension("json")
}

pub(super) fn missing(id: &str) -> Problem {
    Problem::not_found("upload", id.chars().take(64).collect::<String>())
}

fn in_use() -> Problem {
    Problem::conflict("another request has this upload").hint("try again in a moment")
}

/// Whether the file has an upload's bytes, as opposed to its plan.
fn is_data(path: &Path) -> bool {
    path.extension().is_none()
}

impl Uploads {
    /// One has at most `max` bytes. Those that an earlier process left are counted.
    pub(super) fn new(room: Arc<Room>, max: u64) -> Uploads {
        for (repo, dir) in room.repositories() {
            for path in entries(&dir.join(KIND)).iter().filter(|p| is_data(p)) {
                if let Ok(Some(upload)) = look(path, "") {
                    room.hold_again(&repo, path, Some(upload.plan.by), upload.plan.size);
                }
            }
        }
        Uploads { room, max, locks: KeyedMutex::default(), writers: Mutex::default(), beginning: KeyedMutex::default() }
    }

    /// Returns the path of an upload, if its name is valid.
    pub(super) fn path(&self, repo: &RepoKey, id: &str) -> Result<PathBuf> {
        let fits = id.len() == 2 * ID_BYTES && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match fits {
            true => Ok(self.room.dir(repo, KIND).join(id)),
            false => Err(missing(id)),
        }
    }

    /// Begins an upload, unless it is too long or there are too many.
    pub async fn begin(self: &Arc<Self>, holder: Holder, size: u64, sha256: Option<String>) -> Result<Upload> {
        if size > self.max {
            return Err(room::too_large(self.max));
        }
        let alone = self.beginning.lock(holder.repo.clone()).await;
        let uploads = self.clone();
        work(move || {
            let _alone = alone;
            uploads.make(&holder, size, sha256)
        })
        .await
    }

    fn make(&self, holder: &Holder, size: u64, sha256: Option<String>) -> Result<Upload> {
        let repo = &holder.repo;
        let dir = self.room.make(repo, KIND)?;
        if room::list(&dir)?.iter().filter(|p| is_data(p)).count() >= MAX_UPLOADS {
            return Err(Problem::conflict("the repository has too many uploads under way")
                .hint("commit them, DELETE those that are not needed, or wait until they are a day old"));
        }
        let reservation = self.room.quota.reserve(holder, size)?;
        let id = random_hex(ID_BYTES)?;
        let path = self.path(repo, &id)?;
        let plan = UploadPlan { size, sha256, created_ms: now_ms(), checked: false, by: holder.token.clone() };
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(storage_failed)?;
        write_plan(&path, &plan).inspect_err(|_| drop(drop_upload(&self.room, &path)))?;
        self.room.hold(&path, reservation);
        if size == 0 {
            self.check(&path, &plan)?;
        }
        self.find(repo, &id)
    }

    /// An upload and its offset.
    pub fn find(&self, repo: &RepoKey, id: &str) -> Result<Upload> {
        let path = self.path(repo, id)?;
        look(&path, id)?.ok_or_else(|| missing(id))
    }

    /// Returns all uploads of a repository.
    pub fn all(&self, repo: &RepoKey) -> Result<Vec<Upload>> {
        let mut all = Vec::new();
        for path in room::list(&self.room.dir(repo, KIND))? {
            if let Some(id) = path.file_name().and_then(|n| n.to_str()).filter(|_| is_data(&path)) {
                all.extend(look(&path, id)?);
            }
        }
        all.sort_by(|a, b| (a.plan.created_ms, &a.id).cmp(&(b.plan.created_ms, &b.id)));
        Ok(all)
    }

    /// Removes an upload that no commit is taking; one that is being written is stopped first.
    pub async fn remove(&self, repo: &RepoKey, id: &str) -> Result<()> {
        let path = self.path(repo, id)?;
        self.find(repo, id)?;
        let _held = self.lock(&path).await?;
        let room = self.room.clone();
        work(move || drop_upload(&room, &path)).await
    }

    /// Locks the upload, after asking its current writer to stop.
    pub(super) async fn lock(&self, path: &Path) -> Result<KeyedGuard> {
        if let Some(writer) = self.writers.lock().get(path) {
            writer.notify_one();
        }
        let lock = self.locks.lock(path.to_owned());
        tokio::time::timeout(WAIT_LIMIT, lock).await.map_err(|_| in_use())
    }

    /// Registers a writer of an upload, which is notified when another request wants it.
    pub(super) fn writer(self: &Arc<Self>, path: &Path) -> Writer {
        let wanted = Arc::<Notify>::default();
        self.writers.lock().insert(path.to_owned(), wanted.clone());
        Writer { uploads: self.clone(), path: path.to_owned(), wanted }
    }

    /// Takes a complete upload for use that matches its length and hash, and that no other request has.
    pub fn take(&self, repo: &RepoKey, id: &str) -> Result<TakenUpload> {
        let path = self.path(repo, id)?;
        self.find(repo, id)?;
        let held = self.locks.try_lock(path.clone()).ok_or_else(in_use)?;
        let upload = self.find(repo, id)?;
        if upload.offset < upload.plan.size {
            let message = format!("upload {id} has {} of {} bytes", upload.offset, upload.plan.size);
            return Err(Problem::conflict(message).hint("send the rest first"));
        }
        self.check(&path, &upload.plan)?;
        Ok(TakenUpload { size: upload.plan.size, path, room: self.room.clone(), _held: held })
    }

    /// Checks a complete upload's hash once, and makes it durable.
    pub(super) fn check(&self, path: &Path, plan: &UploadPlan) -> Result<()> {
        if plan.checked {
            return Ok(());
        }
        let file = fs::File::open(path).map_err(storage_failed)?;
        if let Some(said) = &plan.sha256 {
            let found = sha256(&file).map_err(storage_failed)?;
            if !found.eq_ignore_ascii_case(said) {
                drop_upload(&self.room, path)?;
                let message = format!("the bytes that arrived have SHA-256 {found}, not {said}; they are gone");
                return Err(Problem::refused(message).hint("send the file again from the start"));
            }
        }
        file.sync_all().map_err(storage_failed)?;
        write_plan(path, &UploadPlan { checked: true, ..plan.clone() })
    }

    /// Drops uploads that were idle for long.
    pub fn sweep(&self, idle: Duration) {
        for (_, dir) in self.room.repositories() {
            for path in entries(&dir.join(KIND)) {
                let data = path.with_extension("");
                // The plan alone grows old while bytes arrive.
                let is_plan = path != data && data.is_file();
                if is_plan || room::age(&path).is_none_or(|age| age < idle) {
                    continue;
                }
                if let Some(_held) = self.locks.try_lock(data.clone()) {
                    let _ = fs::remove_file(&path);
                    let _ = drop_upload(&self.room, &data);
                }
            }
        }
    }
}

/// The writer of an upload, registered until this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    uploads: Arc<Uploads>,
    path: PathBuf,
    /// Notified when another request wants the upload.
    pub(super) wanted: Arc<Notify>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.uploads.writers.lock().remove(&self.path);
    }
}

impl TakenUpload {
    /// Removes the upload after use.
    pub fn used(self) {
        if let Err(problem) = drop_upload(&self.room, &self.path) {
            tracing::warn!(why = problem.message, "an upload that was used stays");
        }
    }
}

fn write_plan(path: &Path, plan: &UploadPlan) -> Result<()> {
    let json = serde_json::to_vec(plan).map_err(Problem::internal)?;
    write_private(&plan_path(path), &json).map_err(storage_failed)
}

/// The plan goes first: bytes without one are no upload.
fn drop_upload(room: &Room, path: &Path) -> Result<()> {
    room::remove(&plan_path(path))?;
    room.remove(path)
}

fn look(path: &Path, id: &str) -> Result<Option<Upload>> {
    let read = fs::metadata(path).and_then(|meta| Ok((meta.len(), meta.modified()?, fs::read(plan_path(path))?)));
    let (offset, modified, json) = match read {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(storage_failed(e)),
    };
    let plan: UploadPlan = serde_json::from_slice(&json).map_err(Problem::internal)?;
    let end = modified.checked_add(IDLE).unwrap_or(modified);
    let expires = jiff::Timestamp::try_from(end).map_or(0, jiff::Timestamp::as_millisecond);
    Ok(Some(Upload { id: id.to_owned(), plan, offset, expires_ms: expires }))
}

fn sha256(mut file: &fs::File) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            n => hasher.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}
