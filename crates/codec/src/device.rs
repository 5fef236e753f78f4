//! The `Device` trait: hashing, encoding and decoding tensors in a device's memory.

use crate::{Dtype, Encoded, Result, quant::lattice::Lattice};
use std::{fmt::Debug, sync::Arc};

/// Bytes in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    device: u32,
    address: u64,
    len: usize,
}

impl Span {
    /// `len` bytes at an address of device number `device`.
    ///
    /// # Safety
    /// The device's memory there is allocated, whatever wrote it is done, and both stay so while the span is used.
    pub unsafe fn new(device: u32, address: u64, len: usize) -> Span {
        Span { device, address, len }
    }

    /// Number of the device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes `start..start + len` of it, if they are inside.
    pub fn part(&self, start: usize, len: usize) -> Option<Span> {
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then_some(Span { device: self.device, address: self.address + start as u64, len })
    }
}

/// Memory that a device keeps until this is dropped.
pub trait Held: Send + Sync + Debug {
    /// Where it is.
    fn span(&self) -> Span;
}

/// A tensor to be encoded where it is, all segments of it.
#[derive(Clone, Debug)]
pub struct Resident<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Its bytes, little-endian.
    pub content: Span,
    /// The bytes of its parent's tensor, as long as its own.
    pub base: Option<Span>,
    /// Of that tensor's own base. Without a base it is not looked at.
    pub grandparent: Option<Span>,
    /// On which lattice it is thought to lie.
    pub lattice: Option<&'a Arc<Lattice>>,
}

/// Encoded segments of one tensor, to be decoded on a device; all of one stored tensor, so that the bases are the
/// same for all.
#[derive(Clone, Copy, Debug)]
pub struct EncodedTensor<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Decoded length of the tensor in bytes.
    pub len: usize,
    /// Every segment's encoding, in order.
    pub segments: &'a [Vec<u8>],
    /// The whole decoded bases that its schemes need.
    pub base: Option<Span>,
    /// Likewise.
    pub grandparent: Option<Span>,
}

/// Work on tensors in a device's memory. Bytes of tensors do not leave it: encodings, samples and counts do.
///
/// Errors are [`CodecError::Device`](crate::CodecError::Device) where the device cannot (it has no memory left, say):
/// the caller then reads the tensor and goes on with the host's engine.
pub trait Device: Send + Sync + Debug {
    /// Its number.
    fn ordinal(&self) -> u32;

    /// BLAKE3 in key derivation mode for `context`, of head and content, for each tensor.
    fn hash(&self, context: &str, tensors: &[(Vec<u8>, Span)]) -> Result<Vec<[u8; 32]>>;

    /// Encodes tensors as [`crate::Engine::encode`] does segment by segment.
    fn encode(&self, tensors: &[Resident<'_>]) -> Result<Vec<Vec<Encoded>>>;

    /// Decodes a tensor into memory of the device.
    ///
    /// # Errors
    /// Corrupt bytes; the device cannot.
    fn decode(&self, tensor: EncodedTensor<'_>) -> Result<Box<dyn Held>>;

    /// Copies bytes to the host.
    fn read(&self, span: Span, out: &mut [u8]) -> Result<()>;

    /// Nothing is to be done for a while: memory that was kept for the next piece of work goes back.
    fn release_memory(&self);

    /// Bytes copied to and from the device so far.
    fn traffic(&self) -> (u64, u64);
}
