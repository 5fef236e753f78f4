//! The record of a rank: its files and what storing them took.

use crate::{
    commit::StoredFile,
    sealed::{open, seal},
    shards::Keys,
};
use mdl_objects::Id;
use mdl_store::{RepoError, Result, storage::Storage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const HEADER: &str = "mdl shard 1";

/// The files of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The rank.
    pub rank: u32,
    /// When it was put: milliseconds since 1970.
    pub time_ms: i64,
    /// The version that differences were taken to, if there was one.
    pub parent: Option<String>,
    /// The pack that its new objects are in; none if there were none, or if they had been stored before.
    pub pack: Option<String>,
    /// Sum of the files' lengths.
    pub logical_bytes: u64,
    /// Encoded bytes that storing them added.
    pub stored_bytes: u64,
    /// Its files by their names in the tree.
    pub files: BTreeMap<String, StoredFile>,
}

impl Record {
    /// The objects of its files, which refer to all else.
    pub fn objects(&self) -> impl Iterator<Item = Id> {
        self.files.values().filter_map(StoredFile::id)
    }

    /// The bytes of its key.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        seal(HEADER, self)
    }

    /// Reads the record of a rank; none if it has put nothing.
    pub fn read(storage: &dyn Storage, keys: &Keys, rank: u32) -> Result<Option<(Record, String)>> {
        let key = keys.rank(rank)?;
        let Some(bytes) = storage.get(&key)? else {
            return Ok(None);
        };
        let record: Record = open(HEADER, &key, &bytes)?;
        if record.rank != rank {
            return Err(RepoError::corrupt(key, "it is the record of another rank"));
        }
        Ok(Some((record, check(&bytes))))
    }
}

/// Tells a record from any other that its rank may have put before or after.
pub(super) fn check(bytes: &[u8]) -> String {
    let hash = blake3::hash(bytes).to_hex();
    hash.as_str().get(..32).unwrap_or_default().to_owned()
}
