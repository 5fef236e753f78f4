//! Streaming reader of tar archives, one file after the other.
//!
//! ustar, GNU's long names and pax. Nothing is held in memory but one header and one name, whatever the archive says.

use crate::problem::{Problem, Result};
use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt, stream};
use std::fmt::Display;

const BLOCK: usize = 512;
/// Longest record of GNU's or pax's about the next file.
const MAX_RECORD: u64 = 64 << 10;
/// Most headers, of files and of all else.
const MAX_HEADERS: usize = 100_000;
/// Most padding behind the end: writers fill a record, of 10 KB as a rule.
const MAX_TAIL: u64 = 16 << 20;

/// A file in an archive.
#[derive(Debug)]
pub(super) struct Member {
    pub path: String,
    pub size: u64,
    pub executable: bool,
}

/// A streamed archive.
#[derive(Debug)]
pub(super) struct Archive<S> {
    bytes: S,
    held: Bytes,
    /// Of the file that is being read: what is left of it, and of the block it ends in.
    left: u64,
    padding: u64,
    headers: usize,
}

fn broken(why: impl Display) -> Problem {
    Problem::usage(format!("the tar cannot be read: {why}"))
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// Records (GNU, pax) that precede a file and describe it.
#[derive(Default)]
struct NextFile {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<S: Stream<Item = std::result::Result<Bytes, E>> + Unpin, E: Display> Archive<S> {
    pub(super) fn new(bytes: S) -> Archive<S> {
        Archive { bytes, held: Bytes::new(), left: 0, padding: 0, headers: 0 }
    }

    /// At most `max` bytes; none at the end.
    async fn some(&mut self, max: u64) -> Result<Option<Bytes>> {
        while self.held.is_empty() {
            match self.bytes.next().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(Problem::usage(format!("the upload broke off: {e}"))),
                Some(Ok(chunk)) => self.held = chunk,
            }
        }
        let n = usize::try_from(max).unwrap_or(usize::MAX).min(self.held.len());
        Ok(Some(self.held.split_to(n)))
    }

    async fn exactly(&mut self, n: usize) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            match self.some((n - out.len()) as u64).await? {
                Some(chunk) => out.extend_from_slice(&chunk),
                None if out.is_empty() => return Ok(None),
                None => return Err(broken("it breaks off")),
            }
        }
        Ok(Some(out))
    }

    async fn skip(&mut self, mut n: u64) -> Result<()> {
        while n > 0 {
            let chunk = self.some(n).await?.ok_or_else(|| broken("it breaks off"))?;
            n -= chunk.remaining() as u64;
        }
        Ok(())
    }

    async fn record(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > MAX_RECORD {
            return Err(Problem::refused("a name in the tar is too long"));
        }
        let out = self.exactly(size as usize).await?;
        self.skip(padding(size)).await?;
        match out {
            Some(out) => Ok(out),
            None if size == 0 => Ok(Vec::new()),
            None => Err(broken("it breaks off")),
        }
    }

    /// Returns the next file; none at the end. Skips what was not read of the file before.
    pub(super) async fn next(&mut self) -> Result<Option<Member>> {
        self.skip(self.left.saturating_add(self.padding)).await?;
        (self.left, self.padding) = (0, 0);
        let mut notes = NextFile::default();
        loop {
            let block = self.exactly(BLOCK).await?.ok_or_else(|| broken("its end is missing"))?;
            if block.iter().all(|b| *b == 0) {
                self.tail().await?;
                return Ok(None);
            }
            self.headers += 1;
            if self.headers > MAX_HEADERS {
                return Err(Problem::refused("the tar has too many entries"));
            }
            let header = header(&block)?;
            let size = header.entry_size().map_err(broken)?;
            match header.entry_type().as_byte() {
                b'L' => {
                    let mut name = self.record(size).await?;
                    name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
                    notes.path = Some(name);
                }
                b'K' | b'g' => drop(self.record(size).await?),
                b'x' => pax(&self.record(size).await?, &mut notes)?,
                b'0' | 0 | b'7' => {
                    let size = notes.size.unwrap_or(size);
                    let path = name(notes.path.take().unwrap_or_else(|| header.path_bytes().into_owned()))?;
                    if path.ends_with('/') && size == 0 {
                        notes = NextFile::default();
                        continue;
                    }
                    (self.left, self.padding) = (size, padding(size));
                    let executable = header.mode().is_ok_and(|m| m & 0o111 != 0);
                    return Ok(Some(Member { path, size, executable }));
                }
                b'5' => notes = NextFile::default(),
                kind => {
                    let what = match kind {
                        b'1' | b'2' => "a link",
                        b'3' | b'4' | b'6' => "a device or pipe",
                        b'S' => "a sparse file",
                        _ => "something that is no file",
                    };
                    let path: String = String::from_utf8_lossy(&header.path_bytes()).chars().take(200).collect();
                    return Err(Problem::refused(format!("{path:?} in the tar is {what}: only files are taken")));
                }
            }
        }
    }

    /// The bytes of the file that `next` came to.
    pub(super) fn content(&mut self) -> impl Stream<Item = std::result::Result<Bytes, String>> + use<'_, S, E> {
        stream::try_unfold(self, |archive| async move {
            if archive.left == 0 {
                return Ok(None);
            }
            match archive.some(archive.left).await {
                Ok(Some(chunk)) => {
                    archive.left -= chunk.len() as u64;
                    Ok(Some((chunk, archive)))
                }
                Ok(None) => Err("the tar breaks off".to_owned()),
                Err(problem) => Err(problem.message),
            }
        })
    }

    async fn tail(&mut self) -> Result<()> {
        let mut left = MAX_TAIL;
        while let Some(chunk) = self.some(u64::MAX).await? {
            let sound = chunk.iter().all(|b| *b == 0);
            match left.checked_sub(chunk.len() as u64).filter(|_| sound) {
                Some(rest) => left = rest,
                None => return Err(broken("there is something behind its end")),
            }
        }
        Ok(())
    }
}

fn header(block: &[u8]) -> Result<tar::Header> {
    let mut header = tar::Header::new_old();
    header.as_mut_bytes().copy_from_slice(block.get(..BLOCK).unwrap_or(&[0; BLOCK]));
    // The checksum counts its own eight bytes as spaces.
    let counted = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
    let sum: u32 = block.iter().enumerate().map(counted).sum();
    match header.cksum() {
        Ok(said) if said == sum => Ok(header),
        _ => Err(broken("a header's checksum is wrong")),
    }
}

/// `LEN KEY=VALUE\n`, any number of times.
fn pax(mut record: &[u8], notes: &mut NextFile) -> Result<()> {
    let bad = || broken("a pax record is malformed");
    while !record.is_empty() {
        let space = record.iter().position(|b| *b == b' ').ok_or_else(bad)?;
        let (digits, _) = record.split_at(space);
        let len = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<usize>().ok());
        let (line, rest) = len.and_then(|len| record.split_at_checked(len)).ok_or_else(bad)?;
        let line = line.get(space + 1..).and_then(|l| l.strip_suffix(b"\n")).ok_or_else(bad)?;
        let equals = line.iter().position(|b| *b == b'=').ok_or_else(bad)?;
        let (key, value) = (line.get(..equals).unwrap_or_default(), line.get(equals + 1..).unwrap_or_default());
        match key {
            b"path" => notes.path = Some(value.to_owned()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
                notes.size = Some(size.ok_or_else(bad)?);
            }
            _ if key.starts_with(b"GNU.sparse") => {
                return Err(Problem::refused("a sparse file in the tar: only files are taken"));
            }
            _ => {}
        }
        record = rest;
    }
    Ok(())
}

/// Strips `./`; the caller checks whether the name is valid.
fn name(bytes: Vec<u8>) -> Result<String> {
    let name = String::from_utf8(bytes).map_err(|_| Problem::refused("a name in the tar is not UTF-8"))?;
    let mut rest = name.as_str();
    while let Some(inner) = rest.strip_prefix("./") {
        rest = inner;
    }
    Ok(rest.to_owned())
}
