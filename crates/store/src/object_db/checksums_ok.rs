//! Verifies a payload's checksum once, before parts of it are read.
//!
//! A part of a tensor cannot be verified by the tensor's id, which covers the whole; but each payload has a checksum.
//! So before the first part is used the payload is read through, a piece at a time, as are those of all that it stands
//! on.

use crate::{
    RepoError, Result,
    object_db::{Location, Odb},
    pack::{CHUNK, PackId},
};
use mdl_objects::Id;
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// Payloads that are remembered; when there are more it begins anew.
const MOST: usize = 1 << 16;

/// Payloads that this process has found to be what was written.
#[derive(Debug, Default)]
pub(crate) struct ChecksumsOk(Mutex<HashSet<(PackId, Id)>>);

impl ChecksumsOk {
    fn has(&self, key: &(PackId, Id)) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn add(&self, key: (PackId, Id)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key);
    }
}

impl Odb {
    pub(crate) fn check_payload(&self, at: &Location) -> Result<()> {
        let key = (at.pack.id, at.record.id);
        if self.sound.has(&key) {
            return Ok(());
        }
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; at.record.len.min(CHUNK) as usize];
        let mut done = 0;
        while done < at.record.len {
            let n = (at.record.len - done).min(CHUNK) as usize;
            at.pack.payload_range(self.storage(), &at.record, done, &mut buffer[..n])?;
            hasher.update(&buffer[..n]);
            done += n as u64;
        }
        if !hasher.finalize().as_bytes().starts_with(&at.record.check) {
            let what = format!("{} {} in pack {}", at.record.kind, at.record.id.short(), at.pack.id);
            return Err(RepoError::corrupt(what, "stored bytes changed"));
        }
        self.sound.add(key);
        Ok(())
    }
}
