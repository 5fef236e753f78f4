//! Memory budget for decoding, shared fairly between clients. Everything that decodes holds a permit.

use crate::{
    problem::{Problem, Result},
    tasks::fair::{Limits, Party, Pool, QueueFull},
};

/// Memory that one unit stands for.
const UNIT: u64 = 64 << 20;
/// Units for streaming a whole file: a batch of decoded tensors, and some segments for each thread.
pub const STREAM_UNITS: u32 = 4;
/// Units of a part of a file.
pub const PART: u32 = 1;
/// Permits at a time: each may keep a thread waiting for its client.
const PERMITS: usize = 256;
/// Requests that wait for memory, and those of one client.
const WAITING: usize = 512;
const WAITING_PER_CLIENT: usize = 128;
/// Seconds after which a client may try again that found the queue full.
const RETRY_AFTER: u32 = 5;

/// Permits to decode.
#[derive(Clone, Debug)]
pub struct Decoders(pub(super) Pool);

/// Memory that may be used until this is dropped.
pub use crate::tasks::fair::Share as Permit;

impl Decoders {
    /// As many permits as fit into so many bytes; at least one whole file at a time. One client holds at most half of
    /// them, one repository at most three quarters.
    pub fn new(memory: u64) -> Decoders {
        let all = u32::try_from(memory / UNIT).unwrap_or(1 << 12).clamp(STREAM_UNITS, 1 << 12);
        Decoders(Pool::new(Limits {
            all,
            per_client: all / 2,
            per_repo: all - all / 4,
            shares: PERMITS,
            waiting: WAITING,
            waiting_per_client: WAITING_PER_CLIENT,
        }))
    }

    /// Waits for memory, fairly; the place in the queue is lost when the request is dropped. 503: too many wait.
    pub async fn permit(&self, party: &Party, units: u32) -> Result<Permit> {
        let busy = |QueueFull| Problem::busy("too many requests wait for memory to decode in", RETRY_AFTER);
        self.0.take(party, units).await.map_err(busy)
    }
}
