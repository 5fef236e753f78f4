//! Digests that other tools know a file by: its SHA-256, and its git blob id.

use crate::object_db::{Digests, Odb};
use mdl_objects::Id;

impl Odb {
    /// Digests of a file's bytes, by the id of its blob or manifest, if they are remembered.
    pub fn digest(&self, id: &Id) -> Option<Digests> {
        self.with_index(|index| index.digests(id))
    }

    /// Remembers digests of a file's bytes, by the id of its blob or manifest; nothing happens where there is no index.
    pub fn put_digest(&self, id: &Id, digests: &Digests) {
        self.with_index(|index| index.put_digests(id, digests));
    }

    /// The blob or manifest of a file that the repository has with this SHA-256, and its length, if that is remembered.
    pub fn by_sha256(&self, sha256: &[u8; 32]) -> Option<(Id, u64)> {
        let id = self.with_index(|index| index.by_sha256(sha256))?;
        let digests = self.digest(&id).filter(|d| d.sha256 == *sha256)?;
        // It is remembered also of what was collected.
        self.has(&id).ok()?.then_some((id, digests.len))
    }
}
