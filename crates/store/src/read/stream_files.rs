//! Streams one file of a version from its first byte to its last, verified.
//!
//! Memory: a batch of small tensors, or a few segments of a large one for each thread, and a chunk of the skeleton.

use crate::{Progress, RepoError, Result, object_db::Odb, progress::go_on};
use mdl_objects::{Chunk, Entry, Kind, Manifest, Mode, TensorRef};
use rayon::prelude::*;
use std::slice;

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the transfer";
/// Decoded bytes of small tensors that are in memory at once.
const BATCH: u64 = 64 << 20;
/// A longer tensor is streamed: its own segments keep the threads busy.
const LARGE: u64 = 16 << 20;
/// Shorter pieces are handed on together.
const PIECE: usize = 256 << 10;

impl Odb {
    /// Streams the bytes of a file of a version to `sink`, in their order. Every object is verified by its id; of a
    /// large tensor that turns out to be damaged, bytes have been handed on before the error.
    ///
    /// # Errors
    /// Absent or damaged objects; whatever `sink` returns; `Stopped`. What was handed on is then not the file.
    pub fn stream_files(
        &self,
        entry: &Entry,
        progress: &dyn Progress,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.prefetch_files(std::iter::once(entry))?;
        let mut out = Out { progress, sink, short: Vec::new(), poured: 0 };
        match entry.mode {
            Mode::Blob => out.put(&self.read(&entry.id, Kind::Blob)?)?,
            Mode::Manifest => {
                let manifest = self.manifest(&entry.id)?;
                if manifest.size != entry.size {
                    return Err(disagree(entry));
                }
                self.stream_parts(&manifest, &mut out)?;
            }
            Mode::Tree => return Err(RepoError::user(format!("{} is a directory", entry.name), "name a file")),
        }
        out.flush()?;
        match out.poured == entry.size {
            true => Ok(()),
            false => Err(disagree(entry)),
        }
    }

    fn stream_parts(&self, manifest: &Manifest, out: &mut Out<'_>) -> Result<()> {
        let mut skeleton = Skeleton { odb: self, chunks: manifest.skeleton.iter(), bytes: Vec::new(), at: 0 };
        let mut rest = manifest.tensors.as_slice();
        while let Some(first) = rest.first() {
            go_on(out.progress, WHAT)?;
            let (now, later) = rest.split_at(together(rest));
            rest = later;
            if now.len() == 1 && len_of(first) > LARGE {
                skeleton.stream_files(first.offset, out)?;
                let progress = out.progress;
                self.tensor_in(first)?.stream(|bytes| {
                    go_on(progress, WHAT)?;
                    out.put(bytes)
                })?;
                continue;
            }
            let decoded: Vec<Vec<u8>> = now.par_iter().map(|t| self.tensor_in(t)?.read()).collect::<Result<_>>()?;
            for (t, bytes) in now.iter().zip(decoded) {
                skeleton.stream_files(t.offset, out)?;
                out.put(&bytes)?;
            }
        }
        skeleton.stream_files(manifest.size, out)
    }
}

/// How many of these tensors are decoded together: a large one alone.
fn together(tensors: &[TensorRef]) -> usize {
    let mut sum = 0u64;
    let fits = |t: &&TensorRef| {
        sum = sum.saturating_add(len_of(t));
        len_of(t) <= LARGE && sum <= BATCH
    };
    tensors.iter().take_while(fits).count().max(1)
}

fn len_of(t: &TensorRef) -> u64 {
    t.byte_len().unwrap_or(u64::MAX)
}

fn disagree(entry: &Entry) -> RepoError {
    RepoError::corrupt(format!("file {}", entry.name), "tree and contents disagree on its length")
}

/// The sink, and what is gathered for it.
struct Out<'a> {
    progress: &'a dyn Progress,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    short: Vec<u8>,
    /// Bytes that were put, all in all: the place in the file.
    poured: u64,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.poured += bytes.len() as u64;
        self.progress.advance(bytes.len() as u64);
        if bytes.len() < PIECE {
            self.short.extend_from_slice(bytes);
            return if self.short.len() < PIECE { Ok(()) } else { self.flush() };
        }
        self.flush()?;
        (self.sink)(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        if self.short.is_empty() {
            return Ok(());
        }
        (self.sink)(&self.short)?;
        self.short.clear();
        Ok(())
    }
}

/// The skeleton, chunk after chunk.
struct Skeleton<'a> {
    odb: &'a Odb,
    chunks: slice::Iter<'a, Chunk>,
    /// The present chunk, and how much of it is used up.
    bytes: Vec<u8>,
    at: usize,
}

impl Skeleton<'_> {
    /// Fills the file up to a place.
    fn stream_files(&mut self, until: u64, out: &mut Out<'_>) -> Result<()> {
        while out.poured < until {
            let left = self.bytes.get(self.at..).unwrap_or_default();
            if left.is_empty() {
                go_on(out.progress, WHAT)?;
                self.next_chunk()?;
                continue;
            }
            let n = usize::try_from(until - out.poured).map_or(left.len(), |n| n.min(left.len()));
            out.put(&left[..n])?;
            self.at += n;
        }
        Ok(())
    }

    fn next_chunk(&mut self) -> Result<()> {
        let chunk = self.chunks.next();
        let chunk = chunk.ok_or_else(|| RepoError::corrupt("a manifest", "its skeleton is too short"))?;
        (self.bytes, self.at) = (self.odb.read(&chunk.id, Kind::Blob)?, 0);
        match self.bytes.len() as u64 == chunk.len {
            true => Ok(()),
            false => Err(RepoError::corrupt(format!("blob {}", chunk.id.short()), "its length is not the manifest's")),
        }
    }
}
