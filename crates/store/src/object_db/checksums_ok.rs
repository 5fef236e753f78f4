//! Verifies a payload's checksum once, before parts of it are read.
//!
//! A part of a tensor cannot be verified by the tensor's id, which covers the whole; but each payload has a checksum.
//! So before the first part is used the payload is read through, a piece at a time, as are those of all that it stands
//! on.

use crate::{
    RepoError, Result,
    object_db::{Location, Odb},
    pack::PackId,
};
use mdl_codec::locks::Mutex;
use mdl_objects::Id;
use std::collections::HashSet;

/// Payloads that are remembered; when there are more it begins anew.
const MOST: usize = 1 << 16;

/// Payloads that this process has found to be what was written.
#[derive(Debug, Default)]
pub(crate) struct ChecksumsOk(Mutex<HashSet<(PackId, Id)>>);

impl Odb {
    pub(crate) fn check_payload(&self, at: &Location) -> Result<()> {
        let key = (at.pack.id, at.record.id);
        if self.checksums_ok.0.lock().contains(&key) {
            return Ok(());
        }
        if !at.pack.is_intact(self.storage(), &at.record, |_| ())? {
            let what = format!("{} {} in pack {}", at.record.kind, at.record.id.short(), at.pack.id);
            return Err(RepoError::corrupt(what, "stored bytes changed"));
        }
        let mut ok = self.checksums_ok.0.lock();
        if ok.len() >= MOST {
            ok.clear();
        }
        ok.insert(key);
        Ok(())
    }
}
