//! Progress reports of long work, and its cancellation.

use crate::{RepoError, Result};

/// Receives progress, from any thread.
pub trait Progress: Sync {
    /// Work begins: `total` units (bytes, unless `what` says otherwise) are ahead; 0 if unknown.
    fn begin(&self, what: &str, total: u64);
    /// `n` more units are done.
    fn advance(&self, n: u64);
    /// The work has ended.
    fn end(&self);
    /// Another process holds what is needed: said once, after a while.
    fn waiting(&self, _what: &str) {}
    /// Whether to give up what is waited for, where the work could be done later.
    fn gives_up_waiting(&self) -> bool {
        self.stopped()
    }
    /// Whether the caller has cancelled the work. It is asked between two steps, often, and never between steps that
    /// must go together; the work then ends with [`RepoError::Stopped`] and leaves a sound repository. Once true it
    /// stays true.
    fn stopped(&self) -> bool {
        false
    }
}

/// An error where `what` is not wanted any more.
pub fn go_on(progress: &dyn Progress, what: &'static str) -> Result<()> {
    match progress.stopped() {
        true => Err(RepoError::Stopped { what }),
        false => Ok(()),
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn end(&self) {}
}
