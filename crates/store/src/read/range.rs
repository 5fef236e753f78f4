//! Reads a byte range of a file of a version: only what the range touches is decoded.

use crate::{RepoError, Result, object_db::Odb, read::restore::gaps};
use mdl_objects::{Entry, Kind, Manifest, Mode};
use rayon::prelude::*;

impl Odb {
    /// Bytes `start..start + len` of a file of a version; less where the file ends before. A tensor of which only a
    /// part is asked for is not verified by its id, but by the checksums of its payload and its bases'.
    pub fn read_range(&self, entry: &Entry, start: u64, len: u64) -> Result<Vec<u8>> {
        let end = start.saturating_add(len).min(entry.size);
        if start >= end {
            return Ok(Vec::new());
        }
        match entry.mode {
            Mode::Tree => Err(RepoError::user(format!("{} is a directory", entry.name), "name a file")),
            Mode::Blob => {
                let bytes = self.read(&entry.id, Kind::Blob)?;
                let part = bytes.get(start as usize..end as usize);
                part.map(<[u8]>::to_vec).ok_or_else(|| disagree(entry))
            }
            Mode::Manifest => {
                let manifest = self.manifest(&entry.id)?;
                if manifest.size != entry.size {
                    return Err(disagree(entry));
                }
                self.read_parts(&manifest, start, end)
            }
        }
    }

    fn read_parts(&self, manifest: &Manifest, start: u64, end: u64) -> Result<Vec<u8>> {
        let touched = manifest.tensors.iter().filter_map(|t| {
            let size = t.byte_len()?;
            let (from, to) = (t.offset.max(start), (t.offset + size).min(end));
            (from < to).then_some((t, size, from, to))
        });
        // Threads of the pool must not wait for objects that others of them fetch.
        self.prefetch(touched.clone().map(|(t, ..)| t.id))?;
        let tensors: Vec<(u64, Vec<u8>)> = touched
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|(t, size, from, to)| {
                let reader = self.tensor(&t.id)?;
                let whole = to - from == size;
                let bytes = if whole { reader.read()? } else { reader.range(from - t.offset, to - from)? };
                Ok((from, bytes))
            })
            .collect::<Result<_>>()?;
        // Everything was read by now, so the length is one that the repository has earned.
        let skeleton = self.skeleton_parts(manifest, start, end)?;
        let mut out = vec![0; (end - start) as usize];
        for (at, bytes) in tensors.into_iter().chain(skeleton) {
            let at = (at - start) as usize;
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
        Ok(out)
    }

    /// The runs of the skeleton that lie in `start..end`, by their place in the file.
    fn skeleton_parts(&self, manifest: &Manifest, start: u64, end: u64) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut out = Vec::new();
        let mut gaps = gaps(manifest).into_iter();
        let mut gap = gaps.next();
        for chunk in &manifest.skeleton {
            // Where the chunk's bytes go: (place in the file, place in the chunk, length).
            let (mut runs, mut inside) = (Vec::new(), 0);
            while inside < chunk.len {
                let (at, room) = gap.ok_or_else(|| RepoError::corrupt("a manifest", "its skeleton is too long"))?;
                let now = room.min(chunk.len - inside);
                runs.push((at, inside, now));
                inside += now;
                gap = if now == room { gaps.next() } else { Some((at + now, room - now)) };
            }
            let touched = |(at, inside, len): (u64, u64, u64)| {
                let (from, to) = (at.max(start), (at + len).min(end));
                (from < to).then(|| (from, (inside + from - at) as usize, (to - from) as usize))
            };
            let runs: Vec<_> = runs.into_iter().filter_map(touched).collect();
            if runs.is_empty() {
                continue;
            }
            let bytes = self.read(&chunk.id, Kind::Blob)?;
            if bytes.len() as u64 != chunk.len {
                return Err(RepoError::corrupt("a manifest", "a chunk is not as long as it says"));
            }
            for (at, from, len) in runs {
                let part = bytes.get(from..from + len);
                let part = part.ok_or_else(|| RepoError::corrupt("a manifest", "a chunk is shorter than it says"))?;
                out.push((at, part.to_vec()));
            }
        }
        Ok(out)
    }
}

fn disagree(entry: &Entry) -> RepoError {
    RepoError::corrupt(format!("file {}", entry.name), "tree and contents disagree on its length")
}
