//! Reads little-endian fields and bounded pieces of a source.

use crate::{
    check::short_reason,
    layout::{Format, ReadAt, ScanError},
};
use std::io;

/// Why a scanner stopped, before the caller adds which format it was scanning.
#[derive(Debug)]
pub(crate) enum Trouble {
    Bad(String),
    Io(io::Error),
}

impl Trouble {
    /// The public error for a file that claims to be `format`.
    pub(crate) fn in_format(self, format: Format) -> ScanError {
        match self {
            Trouble::Bad(reason) => ScanError::Damaged { format, reason: short_reason(&reason) },
            Trouble::Io(e) => ScanError::Io(e),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Trouble {
        Trouble::Io(e)
    }
}

/// An error about structure, as a result of any type.
pub(crate) fn bad<T>(reason: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Bad(reason.into()))
}

/// The `len` bytes at `offset`, or `None` where they leave the source. Nothing is allocated before that is known, so a
/// lying length costs nothing.
pub(crate) fn take(src: &dyn ReadAt, offset: u64, len: u64) -> io::Result<Option<Vec<u8>>> {
    let inside = offset.checked_add(len).is_some_and(|end| end <= src.size());
    let (true, Ok(len)) = (inside, usize::try_from(len)) else {
        return Ok(None);
    };
    let mut buf = vec![0; len];
    src.read_at(offset, &mut buf)?;
    Ok(Some(buf))
}

/// The first bytes of the source: `len` of them, or all there are.
pub(crate) fn head(src: &dyn ReadAt, len: u64) -> io::Result<Vec<u8>> {
    Ok(take(src, 0, len.min(src.size()))?.unwrap_or_default())
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// A forward reader with a small window, for structures whose length is only known by walking them.
pub(crate) struct Cursor<'a> {
    src: &'a dyn ReadAt,
    limit: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// Bytes fetched from the source at once by a [`Cursor`].
const WINDOW: u64 = 64 << 10;

fn past_end() -> Trouble {
    Trouble::Bad("the header runs past the end of the file (incompletely written?)".into())
}

impl<'a> Cursor<'a> {
    /// Reads `src` from its start up to `limit`, which lies inside it.
    pub(crate) fn new(src: &'a dyn ReadAt, limit: u64) -> Cursor<'a> {
        Cursor { src, limit: limit.min(src.size()), at: 0, window: Vec::new(), window_at: 0 }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Trouble> {
        self.at = self.at.checked_add(len).filter(|&end| end <= self.limit).ok_or_else(past_end)?;
        Ok(())
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>, Trouble> {
        let at = self.at;
        self.skip(len)?;
        take(self.src, at, len)?.ok_or_else(past_end)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Trouble> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Trouble> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Trouble> {
        let at = self.at;
        self.skip(N as u64)?;
        if let Some(found) = self.in_window(at) {
            return Ok(found);
        }
        let len = WINDOW.min(self.src.size().saturating_sub(at));
        self.window = take(self.src, at, len)?.unwrap_or_default();
        self.window_at = at;
        self.in_window(at).ok_or_else(past_end)
    }

    fn in_window<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let from = usize::try_from(at.checked_sub(self.window_at)?).ok()?;
        array_at(&self.window, from)
    }
}
