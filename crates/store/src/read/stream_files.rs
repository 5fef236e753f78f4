//! Streams one file of a version from its first byte to its last, verified.
//!
//! Memory: a batch of small tensors, or a few segments of a large one for each thread, and a chunk of the skeleton.

use crate::{
    Progress, Result,
    object_db::Odb,
    progress::go_on,
    read::parts::{FileContents, FilePart, FileParts, PartOf, SkeletonReader, disagree},
};
use mdl_objects::{Entry, Manifest};
use rayon::prelude::*;

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
    /// large tensor that turns out to be damaged, bytes have been handed on before the error: after any error they are
    /// not the file.
    pub fn stream_files(
        &self,
        entry: &Entry,
        progress: &dyn Progress,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.prefetch_files(std::iter::once(entry))?;
        let mut out = Out { progress, sink, short: Vec::new(), done: 0 };
        match self.contents(entry)? {
            FileContents::Bytes(bytes) => out.put(&bytes)?,
            FileContents::Parts(manifest) => {
                let done = self.stream_parts(&manifest, &mut out);
                self.spare.clear();
                done?;
            }
        }
        out.flush()?;
        if out.done == entry.size { Ok(()) } else { Err(disagree(entry)) }
    }

    fn stream_parts(&self, manifest: &Manifest, out: &mut Out<'_>) -> Result<()> {
        let mut skeleton = SkeletonReader::new(self);
        let parts: Vec<FilePart<'_>> = FileParts::new(manifest).collect();
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            go_on(out.progress, WHAT)?;
            let (now, later) = rest.split_at(together(rest));
            rest = later;
            if let [FilePart { object: PartOf::Tensor(t), len, .. }] = now
                && *len > LARGE
            {
                let progress = out.progress;
                self.tensor_in(t)?.stream(|bytes| {
                    go_on(progress, WHAT)?;
                    out.put(bytes)
                })?;
                continue;
            }
            let decode = |part: &FilePart<'_>| match part.object {
                PartOf::Tensor(t) => self.tensor_in(t)?.read(),
                PartOf::Skeleton(_) => Ok(Vec::new()),
            };
            let decoded: Vec<Vec<u8>> = now.par_iter().map(decode).collect::<Result<_>>()?;
            for (part, bytes) in now.iter().zip(decoded) {
                match part.object {
                    PartOf::Tensor(_) => out.put(&bytes)?,
                    PartOf::Skeleton(chunk) => {
                        if part.from == 0 {
                            go_on(out.progress, WHAT)?;
                        }
                        out.put(skeleton.read(chunk, part)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// How many of these parts are put together: the tensors among them are decoded side by side, a large one alone.
fn together(parts: &[FilePart<'_>]) -> usize {
    let mut sum = 0u64;
    let fits = |part: &&FilePart<'_>| match part.object {
        PartOf::Skeleton(_) => true,
        PartOf::Tensor(_) => {
            sum = sum.saturating_add(part.len);
            part.len <= LARGE && sum <= BATCH
        }
    };
    parts.iter().take_while(fits).count().max(1)
}

/// The sink, and what is gathered for it.
struct Out<'a> {
    progress: &'a dyn Progress,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    short: Vec<u8>,
    /// Bytes that were put so far.
    done: u64,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.done += bytes.len() as u64;
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
