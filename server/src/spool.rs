//! Bytes on their way in: written to a file of the server's own, hashed, bounded; gone if nobody keeps them. Neighbours: uploads,
//! commits and LFS take these. It must not know what they become.

use crate::problem::{FULL, Problem, Result, is_full};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::StatusCode;
use sha2::{Digest, Sha256};
use std::{
    fmt::Display,
    fs,
    io::Write,
    path::{Path, PathBuf},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

/// Bytes gathered before they are written.
const BATCH: usize = 1 << 20;

/// Where bytes wait.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
    max: u64,
}

/// A file that was received. Dropping it removes it.
#[derive(Debug)]
pub struct Spooled {
    path: PathBuf,
    /// Length in bytes.
    pub len: u64,
    /// SHA-256 of the bytes.
    pub sha256: [u8; 32],
    kept: bool,
}

impl Spooled {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to `to` (of the same file system), durably: it is then the caller's.
    ///
    /// # Errors
    /// The medium failed.
    pub fn keep(mut self, to: &Path) -> Result<()> {
        let failed = |e: std::io::Error| medium(e);
        fs::File::open(&self.path).and_then(|f| f.sync_all()).map_err(failed)?;
        let dir = to.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(failed)?;
        fs::rename(&self.path, to).map_err(failed)?;
        self.kept = true;
        fs::File::open(dir).and_then(|d| d.sync_all()).map_err(failed)
    }
}

impl Drop for Spooled {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the medium said, for the log; the client hears whether there was no more room.
pub fn medium(error: std::io::Error) -> Problem {
    if is_full(&error) {
        tracing::error!(%error, "no room for an upload");
        return Problem::new(StatusCode::INSUFFICIENT_STORAGE, "io", FULL);
    }
    Problem::internal(error)
}

impl Spool {
    /// A spool in a directory of the server's own. What a server that was killed left there is removed.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(dir: PathBuf, max: u64) -> Result<Spool> {
        crate::state::make(&dir)?;
        for entry in fs::read_dir(&dir).map_err(medium)?.flatten() {
            let _ = fs::remove_file(entry.path());
        }
        Ok(Spool { dir, max })
    }

    /// The longest file it takes.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Receives a file, at most `limit` bytes (and never more than the spool takes).
    ///
    /// # Errors
    /// It is longer; the client stopped in the middle; the medium failed. Nothing is left behind.
    pub async fn receive<S, E>(&self, stream: S, limit: Option<u64>) -> Result<Spooled>
    where
        S: Stream<Item = std::result::Result<Bytes, E>>,
        E: Display,
    {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = self.dir.join(format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let max = limit.unwrap_or(self.max).min(self.max);
        let mut done = Spooled {
            path,
            len: 0,
            sha256: [0; 32],
            kept: false,
        };
        let mut sink = Sink::new(fs::File::create(&done.path).map_err(medium)?);
        let mut stream = pin!(stream);
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| Problem::usage(format!("the upload broke off: {e}")))?;
            done.len += chunk.len() as u64;
            if done.len > max {
                return Err(Problem::too_large(format!("more than {max} bytes")));
            }
            batch.extend_from_slice(&chunk);
            if batch.len() >= BATCH {
                (sink, batch) = sink.take(batch).await?;
            }
        }
        let (sink, _) = sink.take(batch).await?;
        done.sha256 = sink.hasher.finalize().into();
        Ok(done)
    }
}

struct Sink {
    file: fs::File,
    hasher: Sha256,
}

impl Sink {
    fn new(file: fs::File) -> Sink {
        Sink {
            file,
            hasher: Sha256::new(),
        }
    }

    /// Hashing and writing block: not where requests are answered.
    async fn take(mut self, mut batch: Vec<u8>) -> Result<(Sink, Vec<u8>)> {
        crate::app::work(move || {
            self.hasher.update(&batch);
            self.file.write_all(&batch).map_err(medium)?;
            batch.clear();
            Ok((self, batch))
        })
        .await
    }
}
