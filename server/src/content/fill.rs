//! Decodes files into the cache, and finds what their bytes are known by elsewhere. Neighbours: `cache` says who decodes, `mdl-repo`
//! does it. It must not know requests.

use super::{
    cache::{Decoded, Found, Key, key},
    decoders::POUR,
};
use crate::{
    app::{App, work},
    problem::{Problem, Result},
};
use mdl_objects::Entry;
use mdl_repo::{Digests, Repo, RepoError, Silent};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::{
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// Between looks at what somebody else is computing.
const LOOK: Duration = Duration::from_millis(20);
/// Pieces on their way to be hashed.
const AHEAD: usize = 16;

/// A file of the cache that has all bytes or is about to have them; none where there is no room for it.
///
/// # Errors
/// The medium failed.
pub async fn decoded(app: &App, repo: &Arc<Repo>, entry: &Entry) -> Result<Option<Arc<Decoded>>> {
    let (claim, wanted) = (app.clone(), entry.clone());
    match work(move || claim.content().cache.claim(&wanted)).await? {
        Found::TooLarge => Ok(None),
        Found::There(found) => {
            app.metrics().cache_hits.inc();
            Ok(Some(found))
        }
        Found::Yours(decoded, path) => {
            app.metrics().cache_misses.inc();
            // On its own: others wait for it, whatever becomes of this request.
            tokio::spawn(fill(app.clone(), repo.clone(), entry.clone(), decoded.clone(), path));
            Ok(Some(decoded))
        }
    }
}

async fn fill(app: App, repo: Arc<Repo>, entry: Entry, decoded: Arc<Decoded>, path: PathBuf) {
    let permit = app.content().decoders.permit(POUR).await;
    let done = tokio::task::spawn_blocking({
        let (app, entry, decoded, path) = (app.clone(), entry.clone(), decoded.clone(), path.clone());
        move || {
            let mut at = 0;
            let outcome = hashed(&repo, &entry, &mut |bytes| {
                let written = decoded.file.write_all_at(bytes, at);
                written.map_err(RepoError::io("cannot write a decoded file"))?;
                at += bytes.len() as u64;
                Ok(at).map(|at| decoded.report(super::cache::State::Partly(at)))
            });
            let outcome = outcome.map(|digests| app.content().remember(&repo, &entry, digests));
            let outcome = outcome.map_err(|e| e.to_string());
            app.content().cache.finish(&entry, &decoded, &path, outcome);
            app.metrics().cache_bytes.set(app.content().cache.bytes() as i64);
        }
    });
    if done.await.is_err() {
        let why = Err("a decoder ended".to_owned());
        app.content().cache.finish(&entry, &decoded, &path, why);
    }
    drop(permit);
}

/// Hands a file's bytes on, and hashes them on a thread beside it.
fn hashed(
    repo: &Repo,
    entry: &Entry,
    sink: &mut dyn FnMut(&[u8]) -> mdl_repo::Result<()>,
) -> mdl_repo::Result<Digests> {
    let (pieces, rest) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    let len = entry.size;
    std::thread::scope(|scope| {
        let hasher = scope.spawn(move || {
            let mut hashes = Hashes::new(len);
            for piece in rest {
                hashes.update(&piece);
            }
            hashes.finish()
        });
        let poured = repo.odb().pour(entry, &Silent, &mut |bytes| {
            // A hasher that ended says so when it is joined.
            let _ = pieces.send(bytes.to_vec());
            sink(bytes)
        });
        drop(pieces);
        let digests = hasher.join().map_err(|_| RepoError::user("hashing failed", ""))?;
        poured.map(|()| digests)
    })
}

/// The hashes that other tools know files by.
pub struct Hashes {
    sha256: Sha256,
    git: Sha1,
    len: u64,
}

impl Hashes {
    /// Of a file of `len` bytes.
    pub fn new(len: u64) -> Hashes {
        let mut git = Sha1::new();
        git.update(format!("blob {len}\0"));
        Hashes {
            sha256: Sha256::new(),
            git,
            len,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.git.update(bytes);
    }

    /// Once all bytes were taken.
    pub fn finish(self) -> Digests {
        Digests {
            sha256: self.sha256.finalize().into(),
            git: self.git.finalize().into(),
            len: self.len,
        }
    }
}

/// As [`super::digests`].
pub async fn digests(app: &App, repo: &Arc<Repo>, entry: &Entry, wait: Duration) -> Result<Option<Digests>> {
    if let Some(known) = known(app, repo, entry).await? {
        return Ok(Some(known));
    }
    if wait.is_zero() {
        return Ok(None);
    }
    let end = Instant::now() + wait;
    if let Ok(computed) = tokio::time::timeout(wait, compute(app, repo, entry, end)).await {
        computed?;
    }
    known(app, repo, entry).await
}

async fn known(app: &App, repo: &Arc<Repo>, entry: &Entry) -> Result<Option<Digests>> {
    if let Some(found) = app.content().digests.get(&key(entry)) {
        return Ok(Some(found));
    }
    let (app, repo, entry) = (app.clone(), repo.clone(), entry.clone());
    work(move || {
        let found = repo.odb().digest(&entry.id).filter(|d| d.len == entry.size);
        if let Some(found) = &found {
            app.content().digests.insert(key(&entry), *found);
        }
        Ok(found)
    })
    .await
}

async fn compute(app: &App, repo: &Arc<Repo>, entry: &Entry, end: Instant) -> Result<()> {
    let key = key(entry);
    if !app.content().start_hashing(&key) {
        while app.content().is_hashing(&key) && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        return Ok(());
    }
    let hashing = Hashing(app.clone(), key);
    let (app, repo, entry) = (app.clone(), repo.clone(), entry.clone());
    // On its own: it goes on when nobody waits any more, so that the next who asks finds it done.
    let task = tokio::spawn(async move {
        let _hashing = hashing;
        match decoded(&app, &repo, &entry).await? {
            Some(file) => {
                file.whole().await?;
                // One of an earlier run has bytes, but perhaps nobody knows their hashes any more.
                if known(&app, &repo, &entry).await?.is_none() {
                    work(move || {
                        app.content().remember(&repo, &entry, read(&file)?);
                        Ok(())
                    })
                    .await?;
                }
            }
            None => {
                let _permit = app.content().decoders.permit(POUR).await;
                work(move || {
                    let digests = hashed(&repo, &entry, &mut |_| Ok(()))?;
                    app.content().remember(&repo, &entry, digests);
                    Ok(())
                })
                .await?;
            }
        }
        Ok(())
    });
    task.await
        .map_err(|e| Problem::internal(format!("a task ended: {e}")))?
}

fn read(file: &Decoded) -> Result<Digests> {
    let mut hashes = Hashes::new(file.len);
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < file.len {
        let n = file.file.read_at(&mut buffer, at).map_err(Problem::internal)?;
        let part = buffer.get(..n).filter(|p| !p.is_empty());
        hashes.update(part.ok_or_else(|| Problem::internal("a decoded file is too short"))?);
        at += n as u64;
    }
    Ok(hashes.finish())
}

/// Somebody is computing a file's hashes.
struct Hashing(App, Key);

impl Drop for Hashing {
    fn drop(&mut self) {
        self.0.content().end_hashing(&self.1);
    }
}
