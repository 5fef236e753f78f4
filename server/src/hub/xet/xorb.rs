//! Reads chunks of xorbs: as they are, LZ4, or LZ4 of the bytes in four groups by their place in a word.

use super::{shard::Segment, wrong};
use crate::problem::{Result, storage_failed};
use lz4_flex::frame::FrameDecoder;
use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom},
};

/// Before each chunk: version, compressed length (24 bits), scheme, length (24 bits).
const HEADER: usize = 8;
/// Begins what may stand behind the chunks.
const FOOTER: &[u8] = b"XETBLOB";
/// Most chunks of a xorb.
const MOST: usize = 8192;
/// Places of chunks that are remembered.
const REMEMBERED: usize = 2 << 20;
/// Most headers that are read to find places: many times those of the chunks that a shard has room for, so that none
/// gets work out of the server by going back and forth between xorbs.
const LOOKS: usize = 32 << 20;

/// Finds and reads chunks.
pub(super) struct Xorbs<F> {
    open: F,
    /// Where each chunk of a xorb begins.
    places: HashMap<[u8; 32], Vec<u64>>,
    remembered: usize,
    looks: usize,
}

impl<R: Read + Seek, F: Fn(&str) -> io::Result<R>> Xorbs<F> {
    /// `open` opens the xorb of a hash, which is given as hex digits.
    pub(super) fn new(open: F) -> Xorbs<F> {
        Xorbs { open, places: HashMap::new(), remembered: 0, looks: 0 }
    }

    /// Gives `put` the bytes of a segment, chunk by chunk.
    pub(super) fn read(&mut self, segment: &Segment, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let name = hex::encode(segment.xorb);
        let opened = (self.open)(&name).map_err(|e| match e.kind() {
            ErrorKind::NotFound => wrong(&format!("xorb {name} was not sent")),
            _ => storage_failed(e),
        });
        let mut file = BufReader::new(opened?);
        let all = self.places(segment.xorb, &mut file)?;
        let found = all.get(segment.chunks.start as usize..segment.chunks.end as usize);
        let found = found.ok_or_else(|| wrong(&format!("xorb {name} has fewer chunks")))?;
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

    fn places(&mut self, xorb: [u8; 32], file: &mut BufReader<R>) -> Result<&[u64]> {
        if !self.places.contains_key(&xorb) {
            let found = places(file)?;
            self.looks += found.len();
            if self.looks > LOOKS {
                return Err(wrong("the shard goes back and forth between too many xorbs"));
            }
            if self.remembered + found.len() > REMEMBERED {
                self.places.clear();
                self.remembered = 0;
            }
            self.remembered += found.len();
            self.places.insert(xorb, found);
        }
        Ok(&self.places[&xorb])
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
        0 => {
            let head = Header { compressed: short(h[1], h[2], h[3]), scheme: h[4], len: short(h[5], h[6], h[7]) };
            if head.len == 0 { Err(wrong("a xorb has a chunk without bytes")) } else { Ok(Some(head)) }
        }
        version => Err(wrong(&format!("chunks of version {version} are not known here"))),
    }
}

/// Where the chunks begin.
fn places(file: &mut BufReader<impl Read + Seek>) -> Result<Vec<u64>> {
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
