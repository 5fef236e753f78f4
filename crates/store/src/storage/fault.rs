//! Fault injection below a storage: kills, full disks, input/output errors at a chosen change.
//!
//! The model: what a storage call reported as done survives a kill, everything else is as if it had not happened,
//! except that an append may leave a part of its bytes. An upload that was not finished is gone.

use crate::{
    RepoError, Result,
    storage::{Guard, Key, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::{
    io::{Error, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What goes wrong, and at which change (counted from 1; every upload, write, finish, swap, append, delete and sweep is
/// one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// From here on nothing works, as if the process were gone. The change itself does not happen.
    Kill(u64),
    /// As `Kill`; if the change is an append, half of its bytes are written.
    Tear(u64),
    /// This change fails with an input/output error and does not happen; later ones work.
    Fail(u64),
    /// This change happens, but is reported as failed; later ones work.
    LoseReply(u64),
    /// This change and all later ones that need space fail; those that need none work.
    Full(u64),
}

#[derive(Debug)]
struct State {
    fault: Option<Fault>,
    changes: AtomicU64,
    dead: AtomicBool,
}

enum Verdict {
    Go,
    GoThenFail,
    Tear,
}

/// A storage with a fault.
#[derive(Clone, Debug)]
pub struct FaultStorage {
    inner: Arc<dyn Storage>,
    state: Arc<State>,
}

fn failure(kind: ErrorKind, why: &str) -> RepoError {
    RepoError::io("injected fault")(Error::new(kind, why.to_owned()))
}

impl State {
    fn alive(&self) -> Result<()> {
        if self.dead.load(Ordering::SeqCst) { Err(failure(ErrorKind::Other, "killed")) } else { Ok(()) }
    }

    fn change(&self, needs_space: bool) -> Result<Verdict> {
        self.alive()?;
        let now = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault {
            Some(Fault::Tear(at)) if now == at => {
                self.dead.store(true, Ordering::SeqCst);
                Ok(Verdict::Tear)
            }
            Some(Fault::Kill(at)) if now == at => {
                self.dead.store(true, Ordering::SeqCst);
                self.alive().map(|()| Verdict::Go)
            }
            Some(Fault::Fail(at)) if now == at => Err(failure(ErrorKind::Other, "input/output error")),
            Some(Fault::LoseReply(at)) if now == at => Ok(Verdict::GoThenFail),
            Some(Fault::Full(from)) if now >= from && needs_space => {
                Err(failure(ErrorKind::StorageFull, "no space left on device"))
            }
            _ => Ok(Verdict::Go),
        }
    }

    /// Runs a change that is whole or not at all.
    fn run<T>(&self, needs_space: bool, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run_or_tear(needs_space, f, || Ok(()))
    }

    /// Runs a change of which a part may happen.
    fn run_or_tear<T>(
        &self,
        needs_space: bool,
        f: impl FnOnce() -> Result<T>,
        tear: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        match self.change(needs_space)? {
            Verdict::Go => f(),
            Verdict::GoThenFail => {
                f()?;
                Err(failure(ErrorKind::Other, "the reply was lost"))
            }
            Verdict::Tear => {
                tear()?;
                Err(failure(ErrorKind::Other, "killed"))
            }
        }
    }
}

impl FaultStorage {
    /// Wraps `inner`; with no fault everything passes through, counted.
    pub fn new(inner: Arc<dyn Storage>, fault: Option<Fault>) -> FaultStorage {
        let state = Arc::new(State { fault, changes: AtomicU64::new(0), dead: AtomicBool::new(false) });
        FaultStorage { inner, state }
    }

    /// Changes asked for so far.
    pub fn changes(&self) -> u64 {
        self.state.changes.load(Ordering::SeqCst)
    }
}

struct FaultUpload {
    inner: Box<dyn Upload>,
    state: Arc<State>,
}

impl Upload for FaultUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let FaultUpload { inner, state } = self;
        state.run(true, || inner.write(bytes))
    }

    fn finish(self: Box<Self>, key: &Key) -> Result<()> {
        let FaultUpload { inner, state } = *self;
        state.run(true, || inner.finish(key))
    }
}

impl Storage for FaultStorage {
    fn get_within(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>> {
        self.state.alive()?;
        self.inner.get_within(key, most)
    }

    fn read_at(&self, key: &Key, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.state.alive()?;
        self.inner.read_at(key, offset, buf)
    }

    fn room(&self) -> Result<Option<u64>> {
        self.inner.room()
    }

    fn size(&self, key: &Key) -> Result<Option<u64>> {
        self.state.alive()?;
        self.inner.size(key)
    }

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        self.state.alive()?;
        self.inner.list(prefix)
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        let inner = self.state.run(true, || self.inner.upload())?;
        let state = self.state.clone();
        Ok(Box::new(FaultUpload { inner, state }))
    }

    fn swap(&self, key: &Key, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.state.run(new.is_some(), || self.inner.swap(key, expected, new))
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let half = &bytes[..bytes.len() / 2];
        self.state.run_or_tear(true, || self.inner.append(key, bytes), || self.inner.append(key, half))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.state.run(false, || self.inner.delete(key))
    }

    fn excludes(&self) -> bool {
        self.inner.excludes()
    }

    fn lock_shared(&self) -> Result<Box<dyn Guard>> {
        self.state.alive()?;
        self.inner.lock_shared()
    }

    fn lock_exclusive(&self) -> Result<Box<dyn Guard>> {
        self.state.alive()?;
        self.inner.lock_exclusive()
    }

    fn sweep_uploads(&self, dry_run: bool) -> Result<u64> {
        if dry_run {
            self.state.alive()?;
            return self.inner.sweep_uploads(true);
        }
        self.state.run(false, || self.inner.sweep_uploads(false))
    }
}
