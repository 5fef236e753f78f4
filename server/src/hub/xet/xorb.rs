//! Reads chunks of xorbs: as they are, LZ4, or LZ4 of the bytes in four groups by their place in a word.

use super::{shard::Segment, wrong};
use crate::problem::{Result, storage_failed};
use lz4_flex::frame::FrameDecoder;
use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::PathBuf,
};

/// Before each chunk: version, compressed length (24 bits), scheme, length (24 bits).
const HEADER: usize = 8;
/// Begins what may stand behind the chunks.
const FOOTER: &[u8] = b"XETBLOB";
/// Most chunks of a xorb.
const MOST: usize = 8192;
/// Xorbs whose places of chunks are remembered.
const REMEMBERED: usize = 64;

/// Finds and reads chunks.
pub(super) struct Xorbs<F> {
    path: F,
    /// Where each chunk of a xorb begins.
    places: HashMap<String, Vec<u64>>,
}

impl<F: Fn(&str) -> PathBuf> Xorbs<F> {
    /// `path` is where the xorb of a hash lies.
    pub(super) fn new(path: F) -> Xorbs<F> {
        Xorbs { path, places: HashMap::new() }
    }

    /// Gives `put` the bytes of a segment, chunk by chunk.
    pub(super) fn read(&mut self, segment: &Segment, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let opened = File::open((self.path)(&segment.xorb)).map_err(|e| match e.kind() {
            ErrorKind::NotFound => wrong(&format!("xorb {} was not sent", segment.xorb)),
            _ => storage_failed(e),
        });
        let mut file = BufReader::new(opened?);
        if !self.places.contains_key(&segment.xorb) {
            if self.places.len() >= REMEMBERED {
                self.places.clear();
            }
            self.places.insert(segment.xorb.clone(), places(&mut file)?);
        }
        let all = &self.places[&segment.xorb];
        let found = all.get(segment.chunks.start as usize..segment.chunks.end as usize);
        let found = found.ok_or_else(|| wrong(&format!("xorb {} has fewer chunks", segment.xorb)))?;
        let mut left = segment.bytes;
        if let Some(first) = found.first() {
            file.seek(SeekFrom::Start(*first)).map_err(storage_failed)?;
        }
        for _ in found {
            let Some(chunk) = chunk(&mut file)? else { return Err(wrong("a xorb is cut off")) };
            let len = chunk.len() as u64;
            left = left.checked_sub(len).ok_or_else(|| wrong("chunks are longer than the shard says"))?;
            put(&chunk)?;
        }
        if left == 0 { Ok(()) } else { Err(wrong("chunks are shorter than the shard says")) }
    }
}

struct Header {
    compressed: usize,
    scheme: u8,
    len: usize,
}

/// The header at this place; none where no chunk follows.
fn header(file: &mut BufReader<impl Read>) -> Result<Option<Header>> {
    if file.fill_buf().map_err(storage_failed)?.is_empty() {
        return Ok(None);
    }
    let mut h = [0; HEADER];
    read_exact(file, &mut h)?;
    if h.starts_with(FOOTER) {
        return Ok(None);
    }
    let short = |a, b, c| usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    match h[0] {
        0 => Ok(Some(Header { compressed: short(h[1], h[2], h[3]), scheme: h[4], len: short(h[5], h[6], h[7]) })),
        version => Err(wrong(&format!("chunks of version {version} are not known here"))),
    }
}

/// Where the chunks begin.
fn places(file: &mut BufReader<File>) -> Result<Vec<u64>> {
    let (mut out, mut at) = (Vec::new(), 0u64);
    while let Some(h) = header(file)? {
        if out.len() == MOST {
            return Err(wrong(&format!("a xorb has at most {MOST} chunks")));
        }
        out.push(at);
        at += (HEADER + h.compressed) as u64;
        file.seek_relative(h.compressed as i64).map_err(storage_failed)?;
    }
    Ok(out)
}

/// The chunk at this place.
fn chunk(file: &mut BufReader<impl Read>) -> Result<Option<Vec<u8>>> {
    let Some(h) = header(file)? else { return Ok(None) };
    let mut stored = vec![0; h.compressed];
    read_exact(file, &mut stored)?;
    let chunk = match h.scheme {
        0 => stored,
        1 => decompressed(&stored, h.len)?,
        2 => regrouped(&decompressed(&stored, h.len)?),
        scheme => return Err(wrong(&format!("chunks of scheme {scheme} are not known here"))),
    };
    if chunk.len() == h.len { Ok(Some(chunk)) } else { Err(wrong("a chunk has another length than it says")) }
}

fn read_exact(file: &mut impl Read, out: &mut [u8]) -> Result<()> {
    file.read_exact(out).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => wrong("a xorb is cut off"),
        _ => storage_failed(e),
    })
}

/// At most one byte more than `len`, so that a wrong length shows and a bomb does no harm.
fn decompressed(frame: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(len);
    let read = FrameDecoder::new(frame).take(len as u64 + 1).read_to_end(&mut out);
    read.map_err(|e| wrong(&format!("a chunk is no LZ4 frame: {e}")))?;
    Ok(out)
}

/// The bytes in their order: first come those at places 0, 4, 8, ..., then those at 1, 5, 9, ..., and so on.
fn regrouped(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    let mut from = bytes.iter();
    for group in 0..4 {
        out.iter_mut().skip(group).step_by(4).zip(&mut from).for_each(|(to, byte)| *to = *byte);
    }
    out
}
