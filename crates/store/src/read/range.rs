//! Reads a byte range of a file of a version: only what the range touches is decoded.

use crate::{
    Result,
    object_db::Odb,
    read::parts::{FileContents, FilePart, FileParts, PartOf, SkeletonReader},
};
use mdl_objects::{Entry, Manifest, Mode};
use rayon::prelude::*;

impl Odb {
    /// Bytes `start..start + len` of a file of a version; less where the file ends before. A tensor of which only a
    /// part is asked for is not verified by its id, but by the checksums of its payload and its bases'.
    pub fn read_range(&self, entry: &Entry, start: u64, len: u64) -> Result<Vec<u8>> {
        let end = start.saturating_add(len).min(entry.size);
        if start >= end {
            return Ok(Vec::new());
        }
        match self.contents(entry)? {
            FileContents::Bytes(bytes) => Ok(bytes[start as usize..end as usize].to_vec()),
            FileContents::Parts(manifest) => self.read_parts(&manifest, start, end),
        }
    }

    /// Fetches what bytes `start..start + len` of a file need, as far as a partial repository lacks it: for callers who
    /// then read in a pool, where a thread that fetches might take on a second read, which waits for its own.
    ///
    /// # Errors
    /// Manifests that cannot be read; what cannot be fetched.
    pub fn prefetch_range(&self, entry: &Entry, start: u64, len: u64) -> Result<()> {
        let end = start.saturating_add(len).min(entry.size);
        if !self.is_partial() || start >= end {
            return Ok(());
        }
        if entry.mode == Mode::Blob {
            return self.prefetch(std::iter::once(entry.id));
        }
        let FileContents::Parts(manifest) = self.contents(entry)? else { return Ok(()) };
        self.prefetch(FileParts::new(&manifest).filter_map(|p| p.within(start, end)).map(|part| part.object.id()))
    }

    fn read_parts(&self, manifest: &Manifest, start: u64, end: u64) -> Result<Vec<u8>> {
        let parts: Vec<FilePart<'_>> = FileParts::new(manifest).filter_map(|p| p.within(start, end)).collect();
        let tensors = parts.iter().filter_map(|part| match part.object {
            PartOf::Tensor(t) => Some((part, t)),
            PartOf::Skeleton(_) => None,
        });
        // Threads of the pool must not wait for objects that others of them fetch.
        self.prefetch(parts.iter().map(|part| part.object.id()))?;
        let mut read: Vec<(u64, Vec<u8>)> = tensors
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|(part, t)| {
                let reader = self.tensor(&t.id)?;
                let whole = Some(part.len) == t.byte_len();
                let bytes = if whole { reader.read()? } else { reader.range(part.from, part.len)? };
                Ok((part.offset, bytes))
            })
            .collect::<Result<_>>()?;
        let mut skeleton = SkeletonReader::new(self);
        for part in &parts {
            if let PartOf::Skeleton(chunk) = part.object {
                read.push((part.offset, skeleton.read(chunk, part)?.to_vec()));
            }
        }
        // Everything was read by now, so the length is one that the repository has earned.
        let mut out = vec![0; (end - start) as usize];
        for (at, bytes) in read {
            let at = (at - start) as usize;
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
        Ok(out)
    }
}
