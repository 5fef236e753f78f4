//! Decodes files into the cache, and computes their SHA-256 and git blob ids.

use crate::{
    app::work,
    content::{
        Reader,
        cache::{Claim, Decoded, Failure, State, key},
        decoders::{Permit, STREAM_UNITS},
    },
    problem::{Problem, Result},
};
use http::StatusCode;
use mdl_objects::Entry;
use mdl_repo::{Digests, Repo, RepoError, Silent};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, mpsc},
    time::Duration,
};

/// Pieces queued for hashing.
const AHEAD: usize = 4;
/// Bytes of a file that are read at a time to hash them.
const PIECE: usize = 1 << 20;

/// Returns a cached file, decoded or being decoded; `None` if there is no room for it.
///
/// Each request waits for memory in its own queue place, and the first that gets it decodes for all: none waits behind
/// another client's. 503: too many wait already.
pub async fn decoded(reader: &Reader, entry: &Entry) -> Result<Option<Arc<Decoded>>> {
    let app = &reader.app;
    let (claim, wanted) = (app.clone(), entry.clone());
    let decoded = match work(move || Ok(claim.content().cache.claim(&wanted))).await? {
        Claim::NoRoom => return Ok(None),
        Claim::There(found) => {
            app.metrics().cache_hits.inc();
            found
        }
        Claim::New(decoded) => {
            app.metrics().cache_misses.inc();
            decoded
        }
    };
    if decoded.is_waiting() {
        tokio::select! {
            permit = app.content().decoders.permit(&reader.party, STREAM_UNITS) => {
                let permit = permit?;
                if decoded.begin() {
                    // A task of its own: other requests wait for it, even if this one is dropped.
                    tokio::spawn(fill(reader.clone(), entry.clone(), decoded.clone(), permit));
                }
            }
            () = decoded.begun() => {}
        }
    }
    Ok(Some(decoded))
}

async fn fill(reader: Reader, entry: Entry, decoded: Arc<Decoded>, permit: Permit) {
    let app = reader.app.clone();
    let done = tokio::task::spawn_blocking({
        let (entry, decoded) = (entry.clone(), decoded.clone());
        move || {
            let _permit = permit;
            let Reader { app, repo, .. } = reader;
            let outcome = write(&repo, &entry, &decoded);
            let outcome = outcome.map(|digests| app.content().remember(&repo, &entry, digests));
            app.content().cache.finish(&entry, &decoded, outcome);
            app.metrics().cache_bytes.set(app.content().cache.bytes() as i64);
        }
    });
    if done.await.is_err() {
        let why = Failure::Content("a decoder ended".to_owned());
        app.content().cache.finish(&entry, &decoded, Err(why));
    }
}

/// Decodes a file into its cache file.
fn write(repo: &Repo, entry: &Entry, decoded: &Decoded) -> std::result::Result<Digests, Failure> {
    let (mut at, mut refused) = (0, false);
    let outcome = hashed(repo, entry, &mut |bytes| {
        let written = decoded.file.write_all_at(bytes, at);
        refused = written.is_err();
        written.map_err(RepoError::io("cannot write a decoded file"))?;
        at += bytes.len() as u64;
        decoded.report(State::Partly(at));
        Ok(())
    });
    outcome.map_err(|error| {
        tracing::warn!(%error, "a file was not decoded into the cache");
        match refused {
            true => Failure::Disk,
            false => Failure::Content(error.to_string()),
        }
    })
}

/// Passes a file's bytes on, and hashes them on another thread.
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
        let streamed = repo.odb().stream_files(entry, &Silent, &mut |bytes| {
            // If the hasher ended, joining it returns its error.
            let _ = pieces.send(bytes.to_vec());
            sink(bytes)
        });
        drop(pieces);
        let digests = hasher.join().map_err(|_| RepoError::user("hashing failed", ""))?;
        streamed.map(|()| digests)
    })
}

/// Hashes that other tools use: SHA-256 and git blob id.
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
        Hashes { sha256: Sha256::new(), git, len }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.git.update(bytes);
    }

    /// Of a file that is there.
    pub fn of_file(file: &File, len: u64) -> io::Result<Digests> {
        let (mut hashes, mut buffer, mut at) = (Hashes::new(len), vec![0; PIECE], 0);
        while at < len {
            buffer.truncate(usize::try_from(len - at).unwrap_or(PIECE));
            file.read_exact_at(&mut buffer, at)?;
            hashes.update(&buffer);
            at += buffer.len() as u64;
        }
        Ok(hashes.finish())
    }

    /// Once all bytes were taken.
    pub fn finish(self) -> Digests {
        Digests { sha256: self.sha256.finalize().into(), git: self.git.finalize().into(), len: self.len }
    }
}

/// Returns a file's SHA-256 and git blob id, computed once. If that takes longer than `wait`, it goes on in the
/// background and the result is `None`; with a `wait` of zero it is not started.
pub async fn digests(reader: &Reader, entry: &Entry, wait: Duration) -> Result<Option<Digests>> {
    if let Some(known) = known(reader, entry).await? {
        return Ok(Some(known));
    }
    if wait.is_zero() {
        return Ok(None);
    }
    match tokio::time::timeout(wait, compute(reader, entry)).await {
        // The decoders are overloaded: no hash yet.
        Ok(Err(problem)) if problem.status == StatusCode::SERVICE_UNAVAILABLE => return Ok(None),
        Ok(computed) => computed?,
        Err(_) => {}
    }
    known(reader, entry).await
}

async fn known(reader: &Reader, entry: &Entry) -> Result<Option<Digests>> {
    if let Some(found) = reader.app.content().digests.get(&key(entry)) {
        return Ok(Some(found));
    }
    let (Reader { app, repo, .. }, entry) = (reader.clone(), entry.clone());
    work(move || {
        let found = repo.odb().digest(&entry.id).filter(|d| d.len == entry.size);
        if let Some(found) = &found {
            app.content().digests.insert(key(&entry), *found);
        }
        Ok(found)
    })
    .await
}

/// Computes a file's hashes, or waits until another request's computation has ended.
async fn compute(reader: &Reader, entry: &Entry) -> Result<()> {
    let locks = &reader.app.content().hashing;
    let Some(hashing) = locks.try_lock(key(entry)) else {
        drop(locks.lock(key(entry)).await);
        return Ok(());
    };
    let (reader, entry) = (reader.clone(), entry.clone());
    // A task of its own: it goes on when no request waits any more, so that the next one finds it done.
    let task = tokio::spawn(async move {
        let _hashing = hashing;
        let Some(file) = decoded(&reader, &entry).await? else {
            return hash_alone(reader, entry).await;
        };
        match file.whole().await {
            Err(Failure::Disk) => return hash_alone(reader, entry).await,
            whole => whole?,
        }
        // A file cached by an earlier run has bytes, but its hashes may be forgotten.
        if known(&reader, &entry).await?.is_none() {
            work(move || {
                let digests = Hashes::of_file(&file.file, file.len).map_err(Problem::internal)?;
                reader.app.content().remember(&reader.repo, &entry, digests);
                Ok(())
            })
            .await?;
        }
        Ok(())
    });
    task.await.map_err(|e| Problem::internal(format!("a task ended: {e}")))?
}

/// Hashes a file that the cache has no room for.
async fn hash_alone(reader: Reader, entry: Entry) -> Result<()> {
    let permit = reader.app.content().decoders.permit(&reader.party, STREAM_UNITS).await?;
    work(move || {
        let _permit = permit;
        let digests = hashed(&reader.repo, &entry, &mut |_| Ok(()))?;
        reader.app.content().remember(&reader.repo, &entry, digests);
        Ok(())
    })
    .await
}
