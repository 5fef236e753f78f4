//! Files that arrive in pieces, over several requests and runs of the server. Neighbours: `api::uploads` are the routes, `writing` takes
//! the pieces, commits take what is whole. It must not know what the files become.
//!
//! Two files each: `ID` has the bytes that arrived, and its length is all that is known of how far it is; `ID.json` says what it is to be.

mod writing;

pub(crate) use writing::OFFSET;

use crate::{
    app::work,
    problem::{Problem, Result},
    registry::RepoName,
    spool::medium,
    state::{make, now_ms, random_hex, write_private},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::sync::{OwnedMutexGuard, watch};

/// Name of the directory in the server's own.
const DIR: &str = "uploads";
/// Uploads that a repository may have at a time.
const MAX_UPLOADS: usize = 1000;
const ID_BYTES: usize = 16;
/// How long nothing may arrive before an upload is dropped.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// How long a request waits for another one that has the upload.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an upload is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal digits, if the client said it.
    pub sha256: Option<String>,
    /// When it began: milliseconds since 1970.
    pub created_ms: i64,
    /// Whether it is whole and what was said of it is true.
    #[serde(default)]
    pub checked: bool,
}

/// An upload and how far it is.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its name.
    pub id: String,
    /// What it is to be.
    pub plan: Plan,
    /// Bytes that arrived.
    pub offset: u64,
    /// When it is dropped if nothing more arrives: milliseconds since 1970.
    pub expires_ms: i64,
}

/// Whoever writes to an upload, reads it or removes it has this.
#[derive(Debug)]
struct Gate {
    /// Raised by those who want the writer to give way: a client whose connection broke is back before the server noticed.
    wanted: watch::Sender<u64>,
    one: Arc<tokio::sync::Mutex<()>>,
}

/// A whole upload that is being used: nobody else can have it until this is dropped.
#[derive(Debug)]
pub struct Taken {
    /// Where its bytes are.
    pub path: PathBuf,
    /// Length in bytes.
    pub size: u64,
    _held: OwnedMutexGuard<()>,
}

/// The uploads under way.
#[derive(Debug)]
pub struct Uploads {
    dir: PathBuf,
    max_bytes: u64,
    gates: Mutex<HashMap<PathBuf, Arc<Gate>>>,
    making: Mutex<()>,
}

fn said(path: &Path) -> PathBuf {
    path.with_extension("json")
}

fn missing(id: &str) -> Problem {
    let shown: String = id.chars().take(64).collect();
    Problem::not_found("upload", shown)
}

fn in_use() -> Problem {
    Problem::conflict("another request has this upload").hint("try again in a moment")
}

impl Uploads {
    /// The uploads in a state directory; all of a repository together may have `max_bytes`.
    pub fn new(state: &Path, max_bytes: u64) -> Uploads {
        Uploads {
            dir: state.join(DIR),
            max_bytes,
            gates: Mutex::default(),
            making: Mutex::default(),
        }
    }

    fn of(&self, repo: &RepoName) -> PathBuf {
        self.dir.join(repo.owner()).join(repo.name())
    }

    /// Where an upload is, if its name can be one's.
    fn path(&self, repo: &RepoName, id: &str) -> Result<PathBuf> {
        let fits = id.len() == 2 * ID_BYTES && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if fits {
            Ok(self.of(repo).join(id))
        } else {
            Err(missing(id))
        }
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Gate>>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self, path: &Path) -> Arc<Gate> {
        let new = || {
            let (wanted, one) = (watch::Sender::new(0), Arc::default());
            Arc::new(Gate { wanted, one })
        };
        self.gates().entry(path.to_owned()).or_insert_with(new).clone()
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// Too long, or too many; the medium failed.
    pub fn begin(&self, repo: &RepoName, size: u64, sha256: Option<String>) -> Result<Upload> {
        if size > self.max_bytes {
            return Err(Problem::too_large(format!("more than {} bytes", self.max_bytes)));
        }
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let others = self.all(repo)?;
        let promised = others.iter().map(|u| u.plan.size).fold(size, u64::saturating_add);
        if others.len() >= MAX_UPLOADS || promised > self.max_bytes {
            return Err(Problem::conflict("the repository has too many uploads under way")
                .hint("commit them, DELETE those that nobody needs, or wait until they are a day old"));
        }
        let id = random_hex(ID_BYTES)?;
        let path = self.path(repo, &id)?;
        make(&self.of(repo))?;
        let created_ms = now_ms();
        let plan = Plan {
            size,
            sha256,
            created_ms,
            checked: false,
        };
        fs::File::create_new(&path).map_err(medium)?;
        write_plan(&path, &plan).inspect_err(|_| drop(fs::remove_file(&path)))?;
        if size == 0 {
            check(&path, &plan)?;
        }
        self.find(repo, &id)
    }

    /// An upload and how far it is.
    ///
    /// # Errors
    /// There is none of the name; the medium failed.
    pub fn find(&self, repo: &RepoName, id: &str) -> Result<Upload> {
        let path = self.path(repo, id)?;
        look(&path, id)?.ok_or_else(|| missing(id))
    }

    /// All of a repository.
    ///
    /// # Errors
    /// The medium failed.
    pub fn all(&self, repo: &RepoName) -> Result<Vec<Upload>> {
        let mut all = Vec::new();
        for path in files(&self.of(repo))? {
            if let Some(id) = path.file_name().and_then(|n| n.to_str()).filter(|n| !n.contains('.')) {
                all.extend(look(&path, id)?);
            }
        }
        all.sort_by(|a, b| (a.plan.created_ms, &a.id).cmp(&(b.plan.created_ms, &b.id)));
        Ok(all)
    }

    /// Removes an upload; one that is being written is stopped first.
    ///
    /// # Errors
    /// There is none of the name; a commit is taking it; the medium failed.
    pub async fn remove(&self, repo: &RepoName, id: &str) -> Result<()> {
        let path = self.path(repo, id)?;
        self.find(repo, id)?;
        let _held = self.turn(&path).await?;
        work(move || remove(&path)).await
    }

    /// Waits for the upload, having asked whoever writes to it to stop.
    async fn turn(&self, path: &Path) -> Result<OwnedMutexGuard<()>> {
        let gate = self.gate(path);
        gate.wanted.send_modify(|n| *n += 1);
        let turn = tokio::time::timeout(PATIENCE, gate.one.clone().lock_owned());
        turn.await.map_err(|_| in_use())
    }

    /// Takes a whole upload for use.
    ///
    /// # Errors
    /// There is none of the name; it is not whole; it is not what it was said to be; somebody else has it; the medium failed.
    pub fn take(&self, repo: &RepoName, id: &str) -> Result<Taken> {
        let path = self.path(repo, id)?;
        self.find(repo, id)?;
        let held = self.gate(&path).one.clone().try_lock_owned().map_err(|_| in_use())?;
        let upload = self.find(repo, id)?;
        if upload.offset < upload.plan.size {
            let message = format!("upload {id} has {} of {} bytes", upload.offset, upload.plan.size);
            return Err(Problem::conflict(message).hint("send the rest first"));
        }
        check(&path, &upload.plan)?;
        Ok(Taken {
            size: upload.plan.size,
            path,
            _held: held,
        })
    }

    /// Drops what nobody added to for long.
    pub fn sweep(&self, idle: Duration) {
        let dirs = |dir: &Path| files(dir).unwrap_or_default();
        for path in dirs(&self.dir).iter().flat_map(|d| dirs(d)).flat_map(|d| dirs(&d)) {
            let age = path.metadata().and_then(|m| m.modified());
            let age = age.ok().and_then(|t| SystemTime::now().duration_since(t).ok());
            let data = path.with_extension("");
            // The record alone grows old while bytes arrive.
            let is_record = path != data && data.is_file() && path.extension().is_some_and(|e| e == "json");
            if is_record || age.is_none_or(|age| age < idle) {
                continue;
            }
            let gate = self.gate(&data);
            if let Ok(_held) = gate.one.clone().try_lock_owned() {
                let _ = fs::remove_file(&path);
                let _ = remove(&data);
            }
        }
        self.gates()
            .retain(|path, gate| Arc::strong_count(gate) > 1 || path.exists());
    }
}

impl Taken {
    /// Removes it: it has been used.
    pub fn used(self) {
        if let Err(problem) = remove(&self.path) {
            tracing::warn!(why = problem.message, "an upload that was used stays");
        }
    }
}

/// Makes sure, once, that a whole upload is what was said, and that it stays.
fn check(path: &Path, plan: &Plan) -> Result<()> {
    if plan.checked {
        return Ok(());
    }
    let file = fs::File::open(path).map_err(medium)?;
    if let Some(said) = &plan.sha256 {
        let found = sha256(&file).map_err(medium)?;
        if !found.eq_ignore_ascii_case(said) {
            remove(path)?;
            let message = format!("the bytes that arrived have SHA-256 {found}, not {said}; they are gone");
            return Err(Problem::new(http::StatusCode::UNPROCESSABLE_ENTITY, "user", message)
                .hint("send the file again from the start"));
        }
    }
    file.sync_all().map_err(medium)?;
    let plan = Plan {
        checked: true,
        ..plan.clone()
    };
    write_plan(path, &plan)
}

fn write_plan(path: &Path, plan: &Plan) -> Result<()> {
    let json = serde_json::to_vec(plan).map_err(Problem::internal)?;
    write_private(&said(path), &json).map_err(medium)
}

/// The record goes first: bytes without one are no upload.
fn remove(path: &Path) -> Result<()> {
    for path in [said(path), path.to_owned()] {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(medium(e)),
            _ => {}
        }
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries.flatten().map(|e| e.path()).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(medium(e)),
    }
}

fn look(path: &Path, id: &str) -> Result<Option<Upload>> {
    let read = fs::metadata(path).and_then(|meta| Ok((meta.len(), meta.modified()?, fs::read(said(path))?)));
    let (offset, modified, json) = match read {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(medium(e)),
    };
    let plan: Plan = serde_json::from_slice(&json).map_err(Problem::internal)?;
    let end = modified.checked_add(IDLE).unwrap_or(modified);
    let expires = jiff::Timestamp::try_from(end).map_or(0, jiff::Timestamp::as_millisecond);
    Ok(Some(Upload {
        id: id.to_owned(),
        plan,
        offset,
        expires_ms: expires,
    }))
}

fn sha256(mut file: &fs::File) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()),
            n => hasher.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}
