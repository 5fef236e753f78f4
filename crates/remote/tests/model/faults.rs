//! A storage that fails, dies or lets a writer in at a chosen call, and a progress that does so between two steps of a verb.

use mdl_repo::{
    Progress, RepoError, Result,
    storage::{Guard, Key, Prefix, Storage, Stored, Swap, Upload},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Change,
    /// A change that needs space.
    Growth,
    /// Neither: locks.
    Other,
}

enum Verdict {
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

fn failure(kind: io::ErrorKind, why: &str) -> RepoError {
    RepoError::io("injected fault")(io::Error::new(kind, why.to_owned()))
}

fn eio() -> RepoError {
    RepoError::io("injected fault")(io::Error::from_raw_os_error(libc::EIO))
}

impl Trigger {
    fn lock(&self) -> MutexGuard<'_, Armed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the fault happen at the nth call, read or change from now (counted from 1).
    pub fn arm(&self, fault: Fault, at: u64) {
        *self.lock() = Armed {
            fault: Some((fault, at)),
            ..Armed::default()
        };
    }

    /// Has a writer come in at the nth call from now.
    pub fn arm_hook(&self, hook: Hook, at: u64) {
        *self.lock() = Armed {
            hook: Some((hook, at)),
            ..Armed::default()
        };
    }

    /// Ends it; returns whether the fault happened, and whether the process is gone.
    pub fn disarm(&self) -> (bool, bool) {
        let armed = std::mem::take(&mut *self.lock());
        (armed.fired, armed.dead)
    }

    fn call(&self, call: Call) -> Result<Verdict> {
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

    fn run<T>(&self, call: Call, f: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.call(call)? {
            Verdict::Go => f(),
            Verdict::GoThenFail => f().and_then(|_| Err(eio())),
            Verdict::Tear => Err(failure(io::ErrorKind::Other, "killed")),
        }
    }
}

/// A storage in a directory, with a trigger.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    root: PathBuf,
    trigger: Trigger,
}

impl<S: Storage> Faulty<S> {
    pub fn new(inner: S, root: &Path, trigger: Trigger) -> Faulty<S> {
        let root = root.to_owned();
        Faulty { inner, root, trigger }
    }
}

struct FaultyUpload {
    inner: Box<dyn Upload>,
    owner: Owner,
}

/// The process that an upload is of.
struct Owner {
    root: PathBuf,
    trigger: Trigger,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.trigger.lock().dead {
            // What a dead writer leaves. Its lock went with it, and the next collection sweeps it.
            let _ = fs::write(self.root.join("tmp/1-0-dead"), b"half a pack");
        }
    }
}

impl Upload for FaultyUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let FaultyUpload { inner, owner } = self;
        owner.trigger.run(Call::Growth, || inner.write(bytes))
    }

    fn finish(self: Box<Self>, key: &Key) -> Result<()> {
        let FaultyUpload { inner, owner } = *self;
        owner.trigger.run(Call::Growth, || inner.finish(key))
    }
}

impl<S: Storage> Storage for Faulty<S> {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.trigger.run(Call::Read, || self.inner.get_within(key, most))
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.trigger.run(Call::Read, || self.inner.read_at(key, offset, buf))
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        self.trigger.run(Call::Read, || self.inner.size(key))
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<Stored>> {
        self.trigger.run(Call::Read, || self.inner.list(prefix))
    }

    fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        self.trigger.run(Call::Read, || self.inner.keys(prefix))
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        let inner = self.trigger.run(Call::Growth, || self.inner.upload())?;
        let owner = Owner {
            root: self.root.clone(),
            trigger: self.trigger.clone(),
        };
        Ok(Box::new(FaultyUpload { inner, owner }))
    }

    fn adopt(&self, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
        self.trigger
            .run(Call::Growth, || self.inner.adopt(file, len, tail, key))
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let call = if new.is_some() { Call::Growth } else { Call::Change };
        self.trigger.run(call, || self.inner.swap(key, expected, new))
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        match self.trigger.call(Call::Growth)? {
            Verdict::Go => self.inner.append(key, bytes),
            Verdict::GoThenFail => self.inner.append(key, bytes).and_then(|()| Err(eio())),
            Verdict::Tear => {
                self.inner.append(key, &bytes[..bytes.len() / 2])?;
                Err(failure(io::ErrorKind::Other, "killed"))
            }
        }
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.trigger.run(Call::Change, || self.inner.delete(key))
    }

    fn excludes(&self) -> bool {
        self.inner.excludes()
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        self.trigger.run(Call::Other, || self.inner.lock_shared())
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        self.trigger.run(Call::Other, || self.inner.lock_exclusive())
    }

    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        let call = if dry_run { Call::Read } else { Call::Change };
        self.trigger.run(call, || self.inner.sweep_uploads(dry_run))
    }
}

/// Progress that lets a writer in, or says that the work is not wanted any more, at the nth time it is told or asked something.
#[derive(Default)]
pub struct Interruption {
    told: AtomicU64,
    hook: Mutex<Option<(Hook, u64)>>,
    stop: Option<u64>,
}

impl Interruption {
    pub fn by_writer(hook: Hook, at: u64) -> Interruption {
        Interruption {
            hook: Mutex::new(Some((hook, at))),
            ..Interruption::default()
        }
    }

    pub fn by_stop(at: u64) -> Interruption {
        Interruption {
            stop: Some(at),
            ..Interruption::default()
        }
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
