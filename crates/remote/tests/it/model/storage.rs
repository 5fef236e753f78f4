//! A storage in a directory that does what a trigger says.

use crate::model::faults::{Call, Trigger, Verdict, eio, failure};
use mdl_repo::{
    Result,
    storage::{Guard, Key, Prefix, Storage, StoredKey, Swap, Upload},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
        if self.trigger.is_dead() {
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

    fn list(&self, prefix: &Prefix) -> Result<Vec<StoredKey>> {
        self.trigger.run(Call::Read, || self.inner.list(prefix))
    }

    fn keys(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        self.trigger.run(Call::Read, || self.inner.keys(prefix))
    }

    fn upload(&self) -> Result<Box<dyn Upload>> {
        let inner = self.trigger.run(Call::Growth, || self.inner.upload())?;
        let owner = Owner { root: self.root.clone(), trigger: self.trigger.clone() };
        Ok(Box::new(FaultyUpload { inner, owner }))
    }

    fn adopt(&self, file: &Path, len: u64, tail: &[u8], key: &Key) -> Result<()> {
        self.trigger.run(Call::Growth, || self.inner.adopt(file, len, tail, key))
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
