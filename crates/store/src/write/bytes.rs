//! Ingests bytes that are no tensor: the gaps between extents, cut into content-defined chunks.

use crate::{
    Result,
    object_db::Odb,
    pack::{NewObject, payload::wrap},
    write::{SMALL_FILE, Sink},
};
use fastcdc::v2020::{Error as CutError, StreamCDC};
use mdl_files::{Layout, ReadAt};
use mdl_objects::{Chunk, Id, Kind};
use rayon::prelude::*;
use std::io::{self, Read};

/// Smallest, average and largest chunk of FastCDC (2020, normalisation level 1): part of a long file's identity.
const MIN: usize = 256 << 10;
const AVERAGE: usize = 1 << 20;
const MAX: usize = 4 << 20;
/// Chunks that are compressed side by side.
const GROUP: usize = 8;

/// What no extent covers, as one stream.
pub(super) struct Gaps<'a> {
    source: &'a dyn ReadAt,
    /// Ranges still to be read, last first.
    ranges: Vec<(u64, u64)>,
    total: u64,
}

impl<'a> Gaps<'a> {
    pub fn new(source: &'a dyn ReadAt, layout: &Layout) -> Gaps<'a> {
        let mut ranges = Vec::with_capacity(layout.extents.len() + 1);
        let mut at = 0;
        for e in &layout.extents {
            if e.offset > at {
                ranges.push((at, e.offset));
            }
            // `scan` has checked that extents are disjoint, sorted and inside the file.
            at = e.offset + e.byte_len().unwrap_or(0);
        }
        if source.size() > at {
            ranges.push((at, source.size()));
        }
        let total = ranges.iter().map(|(a, b)| b - a).sum();
        ranges.reverse();
        Gaps { source, ranges, total }
    }
}

impl Read for Gaps<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let Some((start, end)) = self.ranges.last_mut() else {
                break;
            };
            let n = (*end - *start).min((buf.len() - filled) as u64) as usize;
            self.source.read_at(*start, &mut buf[filled..filled + n])?;
            *start += n as u64;
            filled += n;
            if start == end {
                self.ranges.pop();
            }
        }
        Ok(filled)
    }
}

/// Cuts a stream into chunks and hands them on in groups. A short stream is one chunk.
pub(super) fn cut(mut gaps: Gaps<'_>, mut sink: impl FnMut(io::Result<Vec<Vec<u8>>>) -> Result<()>) -> Result<()> {
    if gaps.total == 0 {
        return Ok(());
    }
    if gaps.total <= SMALL_FILE {
        let mut all = vec![0; gaps.total as usize];
        return match gaps.read_exact(&mut all) {
            Ok(()) => sink(Ok(vec![all])),
            Err(e) => sink(Err(e)),
        };
    }
    let mut group = Vec::with_capacity(GROUP);
    for chunk in StreamCDC::new(gaps, MIN, AVERAGE, MAX) {
        match chunk {
            Ok(c) => group.push(c.data),
            Err(CutError::IoError(e)) => return sink(Err(e)),
            Err(e) => return sink(Err(io::Error::other(e.to_string()))),
        }
        if group.len() == GROUP {
            sink(Ok(std::mem::take(&mut group)))?;
        }
    }
    if group.is_empty() { Ok(()) } else { sink(Ok(group)) }
}

/// Stores a group of blobs where they are new; hashing and compression run in parallel, the pack is written in order.
pub(super) fn store(odb: &Odb, sink: &mut Sink<'_>, group: &[Vec<u8>]) -> Result<Vec<Chunk>> {
    let wanted = matches!(sink, Sink::Pack(_));
    let ready: Vec<(Chunk, Option<Vec<u8>>)> = group
        .par_iter()
        .map(|content| {
            let chunk = Chunk { id: Id::from_content(Kind::Blob, content), len: content.len() as u64 };
            let payload = if wanted && !odb.contains(&chunk.id)? { Some(wrap(content)) } else { None };
            Ok((chunk, payload))
        })
        .collect::<Result<_>>()?;
    let mut chunks = Vec::with_capacity(ready.len());
    for (chunk, payload) in ready {
        if let (Sink::Pack(pack), Some(payload)) = (&mut *sink, payload) {
            let object = NewObject {
                id: chunk.id,
                kind: Kind::Blob,
                depth: 0,
                base: None,
                grandparent: None,
                logical: chunk.len,
            };
            pack.add(object, &payload)?;
        }
        chunks.push(chunk);
    }
    Ok(chunks)
}
