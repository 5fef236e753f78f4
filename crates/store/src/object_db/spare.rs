//! Buffers that are used again while one operation reads many tensors: a fresh one costs a page fault for every 4 KiB
//! of it, about as much as decoding into it.

use mdl_codec::{SEGMENT_BYTES, locks::Mutex};

/// Most bytes that are kept, as many as a batch of tensors has.
const MOST: usize = 64 << 20;

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// A buffer of this length. What is in it is of no meaning.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let mut list = self.0.lock();
        // The one that grows least; a short one is left for those who want no more.
        let fits = list.iter().position(|b| b.capacity() >= len && b.capacity() / 2 <= len);
        let found = fits.map(|at| list.swap_remove(at));
        drop(list);
        let mut buffer = found.unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Takes back a buffer.
    pub fn give(&self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 && buffer.capacity() <= 2 * SEGMENT_BYTES {
            let mut list = self.0.lock();
            if list.iter().map(Vec::capacity).sum::<usize>() + buffer.capacity() <= MOST {
                list.push(buffer);
            }
        }
    }

    /// Lets go of all: the operation has ended.
    pub fn clear(&self) {
        *self.0.lock() = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_the_length_that_is_asked_for() {
        let spare = Spare::default();
        let mut first = spare.take(1000);
        first.fill(7);
        let place = first.as_ptr();
        spare.give(first);
        let again = spare.take(900);
        assert_eq!((again.len(), again.as_ptr()), (900, place));
        spare.give(again);
        let short = spare.take(100);
        assert_ne!(short.as_ptr(), place, "too long for so little");
        spare.clear();
        assert_eq!(spare.take(1000), vec![0; 1000]);
    }
}
