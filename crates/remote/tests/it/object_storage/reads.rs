//! Reads of packs in a bucket: sent once; ranges asked for once, ahead, and again if a reply was cut short.

use super::flaky::{FaultPlan, Flaky};
use mdl_repo::{
    ErrorKind,
    storage::{Key, Storage},
};
use std::{
    sync::{Arc, Barrier, atomic::Ordering},
    thread,
};

const MIB: usize = 1 << 20;

fn bytes() -> Vec<u8> {
    (0..20 * MIB + 77).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn stored() -> (Arc<Flaky>, Vec<u8>) {
    let (flaky, bytes) = (Flaky::new(FaultPlan::default()), bytes());
    flaky.storage().put(&Key::fixed("packs/p"), &bytes).expect("put");
    flaky.gets.store(0, Ordering::Relaxed);
    (flaky, bytes)
}

fn read(storage: &dyn Storage, at: usize, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    storage.read_at(&Key::fixed("packs/p"), at as u64, &mut buf).expect("range");
    buf
}

#[test]
fn a_pack_that_is_there_is_not_sent_again() {
    let (flaky, bytes) = stored();
    let puts = || flaky.puts.load(Ordering::Relaxed);
    let before = puts();
    flaky.storage().put(&Key::fixed("packs/p"), &bytes).expect("the same");
    assert_eq!(puts(), before);
    flaky.storage().put(&Key::fixed("packs/p"), &bytes[..9]).expect("another length: what was there was none");
    flaky.storage().put(&Key::fixed("refs/a"), b"1").expect("put");
    flaky.storage().put(&Key::fixed("refs/a"), b"1").expect("put");
    assert_eq!(puts(), before + 3, "only packs are told by their names");
}

#[test]
fn what_many_threads_miss_at_once_is_asked_for_once() {
    let (flaky, bytes) = stored();
    let (storage, together) = (flaky.storage(), Barrier::new(16));
    thread::scope(|scope| {
        for t in 0..16 {
            let (storage, bytes, together) = (&storage, &bytes, &together);
            scope.spawn(move || {
                together.wait();
                let at = 5 * MIB + t * 1000;
                assert!(read(storage, at, 1000) == bytes[at..at + 1000]);
            });
        }
    });
    assert_eq!(flaky.gets.load(Ordering::Relaxed), 1);
}

#[test]
fn a_read_from_front_to_back_asks_for_four_blocks_at_a_time() {
    let (flaky, bytes) = stored();
    let storage = flaky.storage();
    for at in (0..bytes.len()).step_by(64 << 10) {
        let len = (64 << 10).min(bytes.len() - at);
        assert!(read(&storage, at, len) == bytes[at..at + len], "at {at}");
    }
    // The first block, then 20 more by four.
    assert_eq!(flaky.gets.load(Ordering::Relaxed), 6);
}

#[test]
fn a_long_range_is_neither_cached_nor_asked_for_at_once() {
    let (flaky, bytes) = stored();
    let storage = flaky.storage();
    for _ in 0..2 {
        assert!(read(&storage, 3, bytes.len() - 3) == bytes[3..]);
    }
    assert_eq!(flaky.gets.load(Ordering::Relaxed), 2 * 3);
}

#[test]
fn replies_that_end_early_are_asked_for_again() {
    let (flaky, bytes) = stored();
    let storage = flaky.storage().with_cache(2 * MIB);
    flaky.set(FaultPlan { cut: 30, ..FaultPlan::default() });
    let whole = storage.get(&Key::fixed("packs/p"));
    assert!(whole.is_ok_and(|b| b == Some(bytes.clone())) || storage.get(&Key::fixed("packs/p")).is_ok());
    for at in (0..20 * MIB).step_by(700_001) {
        let mut buf = vec![0; 1000];
        // Cut short as often as it is asked for, once in a hundred times: an error then, and never other bytes.
        match storage.read_at(&Key::fixed("packs/p"), at as u64, &mut buf) {
            Ok(()) => assert!(buf == bytes[at..at + 1000]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Io),
        }
    }
    flaky.set(FaultPlan { cut: 100, ..FaultPlan::default() });
    let error = flaky.storage().read_at(&Key::fixed("packs/p"), 0, &mut [0; 10]).expect_err("always cut");
    assert_eq!(error.kind(), ErrorKind::Io, "the bytes are not known to be damaged: {error}");
}

#[test]
fn a_read_that_failed_is_no_obstacle_to_the_next() {
    let (flaky, bytes) = stored();
    let storage = flaky.storage();
    flaky.set(FaultPlan { unread: 100, ..FaultPlan::default() });
    assert!(storage.read_at(&Key::fixed("packs/p"), 0, &mut [0; 10]).is_err());
    assert!(storage.get(&Key::fixed("refs/a")).is_err() && storage.size(&Key::fixed("refs/a")).is_err());
    flaky.set(FaultPlan::default());
    assert!(read(&storage, 0, 10) == bytes[..10]);
}
