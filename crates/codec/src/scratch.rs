//! Scratch memory that a thread keeps between blocks. Neighbours: `planes` and `delta` decode through it. It must not
//! outlive a block's work: nobody may rely on what is in it.
//!
//! A fresh buffer for every block would be mapped, faulted in page by page and unmapped again, which costs more than
//! some of the work done in it.

use std::cell::Cell;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `f` on `n` bytes of unspecified content. A call inside `f` gets another buffer.
pub(crate) fn with_scratch<R>(n: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = BUFFER.take();
    if buffer.len() < n {
        buffer.resize(n, 0);
    }
    let r = f(&mut buffer[..n]);
    BUFFER.set(buffer);
    r
}
