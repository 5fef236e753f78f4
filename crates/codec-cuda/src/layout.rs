//! Places for lists in one piece of memory, and bytes on their way there.

use crate::{Buffer, Result, Session};
use std::ops::Range;

/// Places for lists in one piece of memory: each begins where vectors may.
#[derive(Debug, Default)]
pub(crate) struct Layout<const ALIGN: usize = 16>(usize);

impl<const ALIGN: usize> Layout<ALIGN> {
    /// Where the next `len` bytes begin.
    pub(crate) fn take(&mut self, len: usize) -> usize {
        let at = self.0;
        self.0 += len.next_multiple_of(ALIGN);
        at
    }

    /// Where the next `len` bytes are.
    pub(crate) fn range(&mut self, len: usize) -> Range<usize> {
        let at = self.take(len);
        at..at + len
    }

    /// Bytes of all of it.
    pub(crate) fn len(&self) -> usize {
        self.0
    }
}

/// Where arrays of these lengths begin in one piece of memory, and how long it is.
pub(crate) fn places(lengths: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut layout = Layout::<16>::default();
    let starts = lengths.map(|len| layout.take(len)).collect();
    (starts, layout.len())
}

/// Bytes on their way to the device.
#[derive(Debug, Default)]
pub(crate) struct Load(Vec<u8>);

impl Load {
    /// Adds bytes, and says where they will be. At least 8 zeros or other lists follow them.
    pub(crate) fn put(&mut self, bytes: impl IntoIterator<Item = u8>) -> u64 {
        let at = self.0.len();
        self.0.extend(bytes);
        self.0.resize((self.0.len() + 8).next_multiple_of(16), 0);
        at as u64
    }

    /// As [`put`](Self::put), of words.
    pub(crate) fn put_words(&mut self, words: &[u64]) -> u64 {
        let at = self.0.len();
        self.0.resize((at + 8 * words.len() + 8).next_multiple_of(16), 0);
        let to = self.0[at..].as_chunks_mut::<8>().0;
        to.iter_mut().zip(words).for_each(|(to, w)| *to = w.to_le_bytes());
        at as u64
    }

    /// All of it on the device.
    pub(crate) fn send<'s>(&self, session: &'s Session) -> Result<Buffer<'s>> {
        // No copy is empty.
        session.upload(if self.0.is_empty() { &[0; 16] } else { &self.0 })
    }
}

/// A word of two 4-byte fields.
pub(crate) fn pair(low: usize, high: usize) -> u64 {
    low as u64 | (high as u64) << 32
}
