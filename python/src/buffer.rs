//! Memory that belongs to Python objects, seen as bytes. With `nn/team` the only unsafe code of
//! this crate.

use mdl_codec::Span;
use mdl_codec_cuda::Queue;
use pyo3::prelude::*;

/// Bytes of a Python object that lives elsewhere.
///
/// Invariant, kept by `python/mdl`, which alone makes these: `start..start + len` is memory of the process that `owner`
/// keeps alive and in place, and nothing resizes it. Another thread may write to the tensor at the same time, as with
/// `torch.save`: each byte is then the old one or the new one. What must not see later values is
/// copied first (`files::Arena`).
#[derive(Debug)]
pub struct Lent {
    start: usize,
    len: usize,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

impl Lent {
    pub fn new(start: usize, len: usize, owner: Py<PyAny>) -> Lent {
        Lent { start, len, _owner: owner }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, to be read.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the invariant above; a length of zero may come with a null address and was answered before.
        unsafe { std::slice::from_raw_parts(self.start as *const u8, self.len) }
    }

    /// The bytes, to be filled. Only `self` hands them out: a tensor is made for one load and shared only afterwards.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
    }
}

/// Bytes of a GPU's memory that a caller in Python lends for one call: they are allocated, and what wrote them is done
/// or comes before on the queue that goes with them.
pub fn lent(device: u32, address: u64, len: usize) -> Span {
    // SAFETY: the callers' invariant, above.
    unsafe { Span::new(device, address, len) }
}

/// A stream of torch's, by its handle; torch never destroys one.
pub fn queue(handle: u64) -> Queue {
    // SAFETY: streams of torch live as long as the process. Memory comes from tensors, which torch's allocator keeps in
    // the stream's order.
    unsafe { Queue::new(handle) }
}

/// Bytes of a Python object in a GPU's memory.
///
/// Invariant, kept by `python/mdl`: the GPU's memory there is the owner's, nothing on any stream writes to it any more,
/// and it is in place as long as the owner is.
#[derive(Debug)]
pub struct There {
    span: Span,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

impl There {
    /// Memory at an address of GPU number `device`.
    pub fn new(device: u32, address: usize, len: usize, owner: Py<PyAny>) -> There {
        // SAFETY: the invariant above.
        let span = unsafe { Span::new(device, address as u64, len) };
        There { span, _owner: owner }
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }
}
