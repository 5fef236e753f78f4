//! Retry policy: how often and for how long a request is tried again.

use super::{
    answer::Refused,
    client::{THINK, pause},
};
use std::time::{Duration, Instant};

const TRIES: u32 = 7;
/// Where no answer ever came, the URL may be wrong: the error should come soon.
const FIRST_TRIES: u32 = 3;
/// Longest pause that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
/// After this long nothing is tried again.
const ENOUGH: Duration = Duration::from_secs(300);

/// A try that failed.
pub(super) enum Failure {
    Final(Refused),
    /// It may go better next time, after a pause that the server may have asked for.
    Again(Refused, Option<Duration>),
}

/// What has been tried so far.
#[derive(Debug)]
pub(super) struct Retries {
    since: Instant,
    tries: u32,
    enough: Duration,
}

impl Retries {
    /// For a request that takes long at the server, or not.
    pub fn new(thinks: bool) -> Retries {
        Retries { since: Instant::now(), tries: 0, enough: if thinks { THINK } else { ENOUGH } }
    }

    /// How long to pause before the next try; an error where none can help, or there were enough. `reached`: whether
    /// the server ever answered.
    pub fn pause_after(&mut self, failure: Failure, reached: bool) -> Result<Duration, Refused> {
        let (refused, asked) = match failure {
            Failure::Final(refused) => return Err(refused),
            Failure::Again(refused, asked) => (refused, asked),
        };
        self.tries += 1;
        let pause = pause(self.tries).max(asked.unwrap_or_default().min(LONGEST_ASKED));
        let most = if reached { TRIES } else { FIRST_TRIES };
        if self.tries >= most || self.since.elapsed() + pause > self.enough { Err(refused) } else { Ok(pause) }
    }
}
