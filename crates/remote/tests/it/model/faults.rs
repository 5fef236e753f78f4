//! What goes wrong at a chosen call of a storage, and a progress that lets a writer in, or stops, between two steps of
//! a verb.

use mdl_repo::{Progress, RepoError, Result};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// What goes wrong at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any call, reads too: an input/output error, once.
    Fail,
    /// A read: an input/output error, once.
    FailRead,
    /// A change that happens, but is reported as failed.
    LoseReply,
    /// This change and all later ones that need space: the disk is full.
    Full,
    /// From this change on nothing works, as if the process were gone.
    Kill,
    /// As `Kill`; if the change is an append, half of its bytes are written.
    Tear,
}

/// What a writer does in the middle of a verb.
pub type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Armed {
    fault: Option<(Fault, u64)>,
    hook: Option<(Hook, u64)>,
    calls: u64,
    reads: u64,
    changes: u64,
    fired: bool,
    full: bool,
    dead: bool,
}

/// What a storage is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Change,
    /// A change that needs space.
    Growth,
    /// Neither: locks.
    Other,
}

/// What becomes of a call.
pub enum Verdict {
    Go,
    GoThenFail,
    Tear,
}

/// Shared by a storage, its uploads, and whoever arms it.
#[derive(Clone, Default)]
pub struct Trigger(Arc<Mutex<Armed>>);

impl std::fmt::Debug for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trigger")
    }
}

pub fn failure(kind: io::ErrorKind, why: &str) -> RepoError {
    RepoError::io("injected fault")(io::Error::new(kind, why.to_owned()))
}

pub fn eio() -> RepoError {
    RepoError::io("injected fault")(io::Error::from_raw_os_error(libc::EIO))
}

impl Trigger {
    fn lock(&self) -> MutexGuard<'_, Armed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the fault happen at the nth call, read or change from now (counted from 1).
    pub fn arm(&self, fault: Fault, at: u64) {
        *self.lock() = Armed { fault: Some((fault, at)), ..Armed::default() };
    }

    /// Has a writer come in at the nth call from now.
    pub fn arm_hook(&self, hook: Hook, at: u64) {
        *self.lock() = Armed { hook: Some((hook, at)), ..Armed::default() };
    }

    /// Ends it; returns whether the fault happened, and whether the process is gone.
    pub fn disarm(&self) -> (bool, bool) {
        let armed = std::mem::take(&mut *self.lock());
        (armed.fired, armed.dead)
    }

    /// Counts a call, and says what becomes of it.
    pub fn call(&self, call: Call) -> Result<Verdict> {
        let mut armed = self.lock();
        armed.calls += 1;
        match call {
            Call::Read => armed.reads += 1,
            Call::Change | Call::Growth => armed.changes += 1,
            Call::Other => {}
        }
        if armed.hook.as_ref().is_some_and(|(_, at)| *at <= armed.calls)
            && let Some((hook, _)) = armed.hook.take()
        {
            drop(armed);
            hook();
            return Ok(Verdict::Go);
        }
        if armed.dead {
            return Err(failure(io::ErrorKind::Other, "killed"));
        }
        if armed.full && call == Call::Growth {
            return Err(failure(io::ErrorKind::StorageFull, "no space left on device"));
        }
        let Some((fault, at)) = armed.fault.filter(|_| !armed.fired) else {
            return Ok(Verdict::Go);
        };
        let is_change = matches!(call, Call::Change | Call::Growth);
        let due = match fault {
            Fault::Fail => armed.calls >= at && call != Call::Other,
            Fault::FailRead => armed.reads >= at && call == Call::Read,
            Fault::Full => armed.changes >= at && call == Call::Growth,
            _ => armed.changes >= at && is_change,
        };
        if !due {
            return Ok(Verdict::Go);
        }
        armed.fired = true;
        match fault {
            Fault::Fail | Fault::FailRead => Err(eio()),
            Fault::LoseReply => Ok(Verdict::GoThenFail),
            Fault::Full => {
                armed.full = true;
                Err(failure(io::ErrorKind::StorageFull, "no space left on device"))
            }
            Fault::Kill => {
                armed.dead = true;
                Err(failure(io::ErrorKind::Other, "killed"))
            }
            Fault::Tear => {
                armed.dead = true;
                Ok(Verdict::Tear)
            }
        }
    }

    /// Whether the process is gone.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    pub fn run<T>(&self, call: Call, f: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.call(call)? {
            Verdict::Go => f(),
            Verdict::GoThenFail => f().and_then(|_| Err(eio())),
            Verdict::Tear => Err(failure(io::ErrorKind::Other, "killed")),
        }
    }
}

/// Progress that lets a writer in, or says that the work is not wanted any more, at the nth time it is told or asked
/// something.
#[derive(Default)]
pub struct Interruption {
    told: AtomicU64,
    hook: Mutex<Option<(Hook, u64)>>,
    stop: Option<u64>,
}

impl Interruption {
    pub fn by_writer(hook: Hook, at: u64) -> Interruption {
        Interruption { hook: Mutex::new(Some((hook, at))), ..Interruption::default() }
    }

    pub fn by_stop(at: u64) -> Interruption {
        Interruption { stop: Some(at), ..Interruption::default() }
    }

    fn tick(&self) -> u64 {
        let now = self.told.fetch_add(1, Ordering::SeqCst) + 1;
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        if hook.as_ref().is_some_and(|(_, at)| *at <= now)
            && let Some((hook, _)) = hook.take()
        {
            hook();
        }
        now
    }
}

impl Progress for Interruption {
    fn begin(&self, _what: &str, _total: u64) {
        self.tick();
    }

    fn advance(&self, _n: u64) {
        self.tick();
    }

    fn end(&self) {
        self.tick();
    }

    fn stopped(&self) -> bool {
        let now = self.tick();
        self.stop.is_some_and(|at| now >= at)
    }
}
