//! Device driver traits: memory, streams, kernel launches.

pub(crate) mod compile;
pub(crate) mod cuda;
pub(crate) mod profile;
mod session;
#[cfg(feature = "shim")]
pub(crate) mod shim;

use crate::{Kernel, Result};
pub(crate) use profile::Timed;
pub(crate) use session::{Buffer, Lane, Session, View};
use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
};

/// An order of work on a device: what is put on one stream happens one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The driver's, by its number.
    Own(usize),
    /// The caller's, by its handle: kernels and copies inside the memory go there.
    Lent(u64),
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    /// An address of the device, or 0.
    Ptr(u64),
    U32(u32),
}

/// Operations of a device. Work on a stream is asynchronous where nothing else is said.
///
/// Invariant of all addresses: they are of memory that `alloc` gave, or that the engine's caller vouches for, and the
/// length that goes with them lies in it. `Session` keeps it for its buffers; a kernel touches no more than the comment
/// above it says, which the module that launches it has checked.
pub(crate) trait Driver: Send + Sync + Debug {
    /// Name for people, such as `cuda:0 (NVIDIA H100 80GB HBM3, sm_90)`.
    fn name(&self) -> String;
    /// Memory, aligned to 256 bytes, of unspecified content.
    fn alloc(&self, len: usize) -> Result<u64>;
    /// Gives memory back; nothing that uses it may be under way.
    fn free(&self, address: u64);
    /// What the memory holds is no longer needed: the test driver overwrites it, so that a kernel that still reads it
    /// shows.
    fn spoil(&self, _address: u64, _len: usize) {}
    fn stream(&self) -> Result<Stream>;
    /// Copies to the device. `from` is pageable memory, or stays as it is until the stream was waited for.
    fn upload(&self, on: Stream, to: u64, from: &[u8]) -> Result<()>;
    /// Waits for the stream and copies from the device.
    fn download(&self, on: Stream, from: u64, to: &mut [u8]) -> Result<()>;
    fn fill(&self, on: Stream, at: u64, len: usize, byte: u8) -> Result<()>;
    /// Copies inside the device's memory; what is read and what is written do not overlap.
    fn copy(&self, on: Stream, from: u64, to: u64, len: usize) -> Result<()>;
    /// Starts a kernel on a grid of blocks of `threads` (a multiple of 32).
    fn launch(&self, on: Stream, kernel: Kernel, grid: (u32, u32), threads: u32, args: &[Arg]) -> Result<()>;
    /// Waits until everything on the stream has happened.
    fn wait(&self, on: Stream) -> Result<()>;
    /// Whether kernels and copies inside the memory are timed from now on.
    fn profile(&self, on: bool);
    /// Names, milliseconds and numbers of launches of what was timed since the last call; waits for it.
    fn profiled(&self) -> Vec<Timed>;
    fn traffic(&self) -> &Traffic;
}

/// Name under which [`Driver::copy`] is timed.
pub(crate) const COPY: &str = "memcpy";

/// Bytes that went over the bus.
#[derive(Debug, Default)]
pub struct Traffic {
    up: AtomicU64,
    down: AtomicU64,
}

impl Traffic {
    /// Bytes copied to the device so far.
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Bytes copied from the device so far.
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    pub(crate) fn add_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
