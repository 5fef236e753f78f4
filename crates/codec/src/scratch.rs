//! Per-thread scratch memory, kept between blocks.
//!
//! A fresh buffer for every block would be mapped, faulted in page by page and unmapped again, which costs more than
//! some of the work done in it.

use std::cell::Cell;

thread_local! {
    static FREE: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

/// Runs `f` on `n` bytes of unspecified content. A call inside `f` gets another buffer.
pub(crate) fn with_scratch<R>(n: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut free = FREE.take();
    let mut buffer = free.pop().unwrap_or_default();
    FREE.set(free);
    if buffer.len() < n {
        buffer.clear();
        buffer.resize(n, 0);
    }
    let r = f(&mut buffer[..n]);
    let mut free = FREE.take();
    free.push(buffer);
    FREE.set(free);
    r
}
