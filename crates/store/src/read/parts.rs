//! The parts of a file of a version, in the order of the file: bytes of its skeleton, and tensors.

use crate::{RepoError, Result, object_db::Odb};
use mdl_objects::{Chunk, Entry, Id, Kind, Manifest, Mode, TensorRef};
use std::{iter::Peekable, slice};

/// The object that the bytes of a part are in.
#[derive(Clone, Copy)]
pub(super) enum PartOf<'a> {
    Skeleton(&'a Chunk),
    Tensor(&'a TensorRef),
}

impl PartOf<'_> {
    pub fn id(self) -> Id {
        match self {
            PartOf::Skeleton(chunk) => chunk.id,
            PartOf::Tensor(tensor) => tensor.id,
        }
    }
}

/// Bytes of a file that lie side by side in one object.
#[derive(Clone, Copy)]
pub(super) struct FilePart<'a> {
    pub object: PartOf<'a>,
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the chunk or tensor.
    pub from: u64,
    pub len: u64,
}

impl FilePart<'_> {
    /// What of it lies in `start..end` of the file, if anything does.
    pub fn within(self, start: u64, end: u64) -> Option<Self> {
        let (first, last) = (self.offset.max(start), (self.offset + self.len).min(end));
        let from = self.from + first.saturating_sub(self.offset);
        (first < last).then(|| FilePart { offset: first, from, len: last - first, ..self })
    }
}

/// Walks the parts of a file. A manifest that was decoded fills its file: skeleton and tensors end together.
pub(super) struct FileParts<'a> {
    tensors: Peekable<slice::Iter<'a, TensorRef>>,
    chunks: slice::Iter<'a, Chunk>,
    /// The present chunk of the skeleton, and how much of it is used up.
    chunk: Option<(&'a Chunk, u64)>,
    at: u64,
    size: u64,
}

impl<'a> FileParts<'a> {
    pub fn new(manifest: &'a Manifest) -> FileParts<'a> {
        let (tensors, chunks) = (manifest.tensors.iter().peekable(), manifest.skeleton.iter());
        FileParts { tensors, chunks, chunk: None, at: 0, size: manifest.size }
    }
}

impl<'a> Iterator for FileParts<'a> {
    type Item = FilePart<'a>;

    fn next(&mut self) -> Option<FilePart<'a>> {
        let offset = self.at;
        let gap = self.tensors.peek().map_or(self.size, |t| t.offset).saturating_sub(offset);
        let part = if gap > 0 {
            let (chunk, from) = self.chunk.take().or_else(|| Some((self.chunks.next()?, 0)))?;
            let len = gap.min(chunk.len - from);
            self.chunk = Some((chunk, from + len)).filter(|(_, used)| *used < chunk.len);
            FilePart { object: PartOf::Skeleton(chunk), offset, from, len }
        } else {
            let t = self.tensors.next()?;
            FilePart { object: PartOf::Tensor(t), offset, from: 0, len: t.byte_len().unwrap_or(0) }
        };
        self.at += part.len;
        Some(part)
    }
}

/// Reads parts of the skeleton. The latest chunk is kept: it may have more of them.
pub(super) struct SkeletonReader<'a> {
    odb: &'a Odb,
    latest: Option<Id>,
    bytes: Vec<u8>,
}

impl<'a> SkeletonReader<'a> {
    pub fn new(odb: &'a Odb) -> SkeletonReader<'a> {
        SkeletonReader { odb, latest: None, bytes: Vec::new() }
    }

    /// The bytes of a part of this chunk.
    pub fn read(&mut self, chunk: &Chunk, part: &FilePart<'_>) -> Result<&[u8]> {
        if self.latest != Some(chunk.id) {
            (self.bytes, self.latest) = (self.odb.read(&chunk.id, Kind::Blob)?, Some(chunk.id));
        }
        let whole = Some(self.bytes.as_slice()).filter(|b| b.len() as u64 == chunk.len);
        let bytes = whole.and_then(|b| b.get(part.from as usize..(part.from + part.len) as usize));
        bytes
            .ok_or_else(|| RepoError::corrupt(format!("blob {}", chunk.id.short()), "its length is not the manifest's"))
    }
}

/// A file of a version: its bytes, or what they are put together from.
pub(super) enum FileContents {
    Bytes(Vec<u8>),
    Parts(Manifest),
}

impl Odb {
    /// Looks a file up, whose length must be what its tree says.
    pub(super) fn contents(&self, entry: &Entry) -> Result<FileContents> {
        let contents = match entry.mode {
            Mode::Blob => FileContents::Bytes(self.read(&entry.id, Kind::Blob)?),
            Mode::Manifest => FileContents::Parts(self.manifest(&entry.id)?),
            Mode::Tree => return Err(RepoError::user(format!("{} is a directory", entry.name), "name a file")),
        };
        let size = match &contents {
            FileContents::Bytes(bytes) => bytes.len() as u64,
            FileContents::Parts(manifest) => manifest.size,
        };
        if size == entry.size { Ok(contents) } else { Err(disagree(entry)) }
    }
}

pub(super) fn disagree(entry: &Entry) -> RepoError {
    RepoError::corrupt(format!("file {}", entry.name), "tree and contents disagree on its length")
}
