//! How much is decoded at a time, so that memory stays within what the operator gave. Neighbours: everything that decodes takes a
//! permit. It must not know what is decoded.

use crate::problem::{Problem, Result};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory that one unit stands for.
const UNIT: u64 = 64 << 20;
/// Units of a whole file that is decoded in order: a batch of decoded tensors, and some segments for each thread.
pub const POUR: u32 = 4;
/// Units of a part of a file.
pub const PART: u32 = 1;

/// Permits to decode.
#[derive(Clone, Debug)]
pub struct Decoders {
    permits: Arc<Semaphore>,
    all: u32,
}

/// Memory that somebody may use until this is dropped.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "held")] Option<OwnedSemaphorePermit>);

impl Decoders {
    /// As many as fit into so many bytes; at least one whole file at a time.
    pub fn new(memory: u64) -> Decoders {
        let all = u32::try_from(memory / UNIT).unwrap_or(1 << 12).clamp(POUR, 1 << 12);
        Decoders {
            permits: Arc::new(Semaphore::new(all as usize)),
            all,
        }
    }

    /// Waits for memory.
    pub async fn permit(&self, units: u32) -> Permit {
        // It is never closed.
        Permit(self.permits.clone().acquire_many_owned(units.min(self.all)).await.ok())
    }

    /// Whether somebody who wants to decode a whole file has to wait.
    pub fn crowded(&self) -> bool {
        self.permits.available_permits() < POUR as usize
    }

    /// Memory at once, or not at all.
    ///
    /// # Errors
    /// There is none now.
    pub fn try_permit(&self, units: u32) -> Result<Permit> {
        let permit = self.permits.clone().try_acquire_many_owned(units.min(self.all));
        permit
            .map(|p| Permit(Some(p)))
            .map_err(|_| Problem::busy("too much is being decoded", 1))
    }
}
