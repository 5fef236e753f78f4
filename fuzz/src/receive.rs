//! Target: a pack that a client pushes. It is received whole or refused, and what was received is sound.

use crate::{mend, repo};
use mdl_objects::Kind;
use mdl_remote::sync::Arrived;
use mdl_repo::{
    Silent,
    pack::{Pack, PackId},
    storage::Storage,
};
use std::{fs, path::PathBuf, sync::OnceLock};

/// Most decoded bytes that are received.
const MOST: u64 = 4 << 20;

/// A directory in memory where there is one: nothing here has to survive.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

/// As a server takes it from a client, over the small repository, so that its tensors can be bases.
pub fn receive(data: &[u8]) {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let Some(name) = mend::pack::name(data) else { return };
    let storage = repo::storage(&repo::small().values);
    let repo = repo::open(&storage).expect("the small repository");
    let id = PackId::from_bytes(name);
    let path = DIR.get_or_init(scratch).path().join(format!("{}.part", std::process::id()));
    fs::write(&path, data).expect("a file");
    let arrived = [Arrived { id, path: path.clone() }];
    let taken = mdl_remote::sync::receive_pack(&repo, &arrived, Some(MOST), &Silent);
    let _ = fs::remove_file(&path);
    let report = mdl_repo::fsck(&repo, true, &Silent).expect("a check");
    assert!(report.problems.is_empty(), "what was taken in is damaged: {:?}", report.problems);
    let Ok(taken) = taken else { return };
    assert!(taken.packs <= 1 && taken.bytes <= data.len() as u64);
    let fresh = repo::fresh().0;
    fresh.put(&id.key(), data).expect("memory");
    let pack = Pack::open(&fresh, id).expect("it was taken in");
    for record in pack.records() {
        let read = match record.kind {
            Kind::Tensor => repo.odb().tensor(&record.id).and_then(|t| t.read()).map(drop),
            kind => repo.odb().read(&record.id, kind).map(drop),
        };
        // Of an object that was here before a record is passed over, whatever kind it claims.
        let was_here = || repo::open(&repo::storage(&repo::small().values)).and_then(|r| r.odb().contains(&record.id));
        assert!(read.is_ok() || was_here().expect("the small repository"), "taken in and not readable: {read:?}");
    }
}
