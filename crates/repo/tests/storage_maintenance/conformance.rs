//! What every storage promises, checked on each of them. Neighbours: the `Storage` trait. It must not know repositories.

use mdl_repo::storage::{FaultStorage, LocalStorage, MemoryStorage, Storage, Swap};
use std::{sync::Arc, thread, time::Duration};
use tempfile::TempDir;

/// All promises of the trait.
pub fn conforms(storage: &dyn Storage) {
    values(storage);
    ranges(storage);
    listing(storage);
    uploads(storage);
    swaps(storage);
    appends(storage);
    deletion(storage);
    locks(storage);
    assert!(
        storage
            .sweep_uploads(true)
            .is_ok_and(|n| storage.sweep_uploads(false).is_ok_and(|m| n == m))
    );
}

fn keys(storage: &dyn Storage, prefix: &str) -> Vec<String> {
    let listed: Vec<String> = storage.list(prefix).expect("list").into_iter().map(|s| s.key).collect();
    let mut keys = storage.keys(prefix).expect("keys");
    keys.sort();
    assert_eq!(keys, listed);
    listed
}

fn get(storage: &dyn Storage, key: &str) -> Option<Vec<u8>> {
    storage.get(key).expect("get")
}

fn values(s: &dyn Storage) {
    assert_eq!((get(s, "v/a"), s.size("v/a").expect("size")), (None, None));
    s.put("v/a", b"one").expect("put");
    s.put("v/a", b"two!").expect("replace");
    s.put("v/empty", b"").expect("put");
    assert_eq!(
        (get(s, "v/a"), s.size("v/a").expect("size")),
        (Some(b"two!".to_vec()), Some(4))
    );
    assert_eq!(
        (get(s, "v/empty"), s.size("v/empty").expect("size")),
        (Some(vec![]), Some(0))
    );
    assert_eq!(get(s, "v"), None, "a prefix is no key");
}

fn ranges(s: &dyn Storage) {
    s.put("r", b"0123456789").expect("put");
    let mut buf = [0; 4];
    s.read_at("r", 3, &mut buf).expect("range");
    assert_eq!(&buf, b"3456");
    s.read_at("r", 6, &mut buf).expect("the end");
    s.read_at("r", 10, &mut []).expect("nothing, at the end");
    assert!(s.read_at("r", 7, &mut buf).is_err(), "beyond the end");
    assert!(s.read_at("r", u64::MAX, &mut buf).is_err(), "far beyond the end");
    assert!(s.read_at("absent", 0, &mut buf).is_err());
}

fn listing(s: &dyn Storage) {
    for key in ["l/b", "l/a/2", "l/a/1", "l/c", "lx"] {
        s.put(key, key.as_bytes()).expect("put");
    }
    assert_eq!(keys(s, "l/"), ["l/a/1", "l/a/2", "l/b", "l/c"]);
    assert_eq!(keys(s, "l/a/"), ["l/a/1", "l/a/2"]);
    assert!(keys(s, "none/").is_empty());
    let listed = s.list("l/").expect("list");
    assert!(listed.iter().all(|l| l.size == l.key.len() as u64));
    assert!(
        listed
            .iter()
            .all(|l| l.modified.elapsed().is_ok_and(|age| age < Duration::from_secs(60)))
    );
}

fn uploads(s: &dyn Storage) {
    let mut up = s.upload().expect("upload");
    up.write(b"half").expect("write");
    assert!(keys(s, "u/").is_empty(), "nothing is visible before the end");
    drop(up);
    assert!(keys(s, "u/").is_empty(), "nothing is left of a dropped upload");
    s.put("u/x", b"old").expect("put");
    let mut up = s.upload().expect("upload");
    up.write(b"new ").expect("write");
    up.write(b"value").expect("write");
    assert_eq!(get(s, "u/x"), Some(b"old".to_vec()));
    up.finish("u/x").expect("finish");
    assert_eq!(get(s, "u/x"), Some(b"new value".to_vec()));
    s.upload().expect("upload").finish("u/empty").expect("finish");
    assert_eq!(get(s, "u/empty"), Some(vec![]));
}

fn swaps(s: &dyn Storage) {
    let lost = |found: Option<&[u8]>| Swap::Lost(found.map(<[u8]>::to_vec));
    assert_eq!(s.swap("s/k", Some(b"x"), Some(b"y")).expect("swap"), lost(None));
    assert_eq!(s.swap("s/k", None, Some(b"1")).expect("swap"), Swap::Done);
    assert_eq!(s.swap("s/k", None, Some(b"2")).expect("swap"), lost(Some(b"1")));
    assert_eq!(s.swap("s/k", Some(b"1"), None).expect("swap"), Swap::Done);
    assert_eq!(get(s, "s/k"), None);
    assert_eq!(
        s.swap("s/k", None, None).expect("swap"),
        Swap::Done,
        "absent stays absent"
    );
    s.put("s/n", b"0").expect("put");
    // Eight threads count together: a swap that both of two win, or neither, shows in the sum.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    loop {
                        let old = get(s, "s/n").expect("the counter");
                        let n: u64 = String::from_utf8(old.clone()).expect("text").parse().expect("number");
                        let new = (n + 1).to_string();
                        if s.swap("s/n", Some(&old), Some(new.as_bytes())).expect("swap") == Swap::Done {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(get(s, "s/n"), Some(b"200".to_vec()));
}

fn appends(s: &dyn Storage) {
    thread::scope(|scope| {
        for t in 0..8u8 {
            scope.spawn(move || {
                for _ in 0..20 {
                    s.append("logs/x", &[b'a' + t; 32]).expect("append");
                }
            });
        }
    });
    let all = get(s, "logs/x").expect("the log");
    assert_eq!(all.len(), 8 * 20 * 32);
    assert!(
        all.chunks(32).all(|c| c.iter().all(|b| *b == c[0])),
        "one call's bytes stay together"
    );
    s.put("logs/x", b"short").expect("put");
    s.append("logs/x", b"er").expect("append");
    assert_eq!(get(s, "logs/x"), Some(b"shorter".to_vec()));
}

fn deletion(s: &dyn Storage) {
    s.put("d/x/a/b", b"x").expect("put");
    s.delete("d/x/a/b").expect("delete");
    s.delete("d/x/a/b").expect("absent is fine");
    s.delete("d/none/none").expect("absent is fine");
    assert!(s.read_at("d/x/a/b", 0, &mut [0]).is_err(), "gone is gone");
    s.put("d/x/a", b"a name that was a prefix").expect("put");
    assert_eq!(keys(s, "d/"), ["d/x/a"]);
}

fn locks(s: &dyn Storage) {
    let (one, two) = (
        s.lock_shared().expect("shared"),
        s.lock_shared().expect("shared with another"),
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(s.lock_exclusive().expect("exclusive")));
        thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished(), "a collector waits for writers");
        drop((one, two));
    });
    let alone = s.lock_exclusive().expect("exclusive");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(s.lock_shared().expect("shared")));
        thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished(), "a writer waits for the collector");
        drop(alone);
    });
}

#[test]
fn a_directory_conforms() {
    let dir = TempDir::new().expect("temp dir");
    conforms(&LocalStorage::new(dir.path()));
}

#[test]
fn memory_conforms() {
    conforms(&MemoryStorage::new());
}

#[test]
fn the_fault_wrapper_without_a_fault_passes_everything_through() {
    conforms(&FaultStorage::new(Arc::new(MemoryStorage::new()), None));
    let dir = TempDir::new().expect("temp dir");
    conforms(&FaultStorage::new(Arc::new(LocalStorage::new(dir.path())), None));
}

#[test]
fn a_dead_upload_is_swept_and_a_live_one_is_not() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    let mut live = storage.upload().expect("upload");
    live.write(b"still being written").expect("write");
    std::fs::write(dir.path().join("tmp/dead"), b"12345").expect("write");
    assert_eq!(storage.sweep_uploads(true).expect("dry"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 0);
    live.finish("kept").expect("finish");
    assert!(get(&storage, "kept").is_some());
}

#[test]
fn uploads_begin_and_end_while_dead_ones_are_swept() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|w| {
                let storage = &storage;
                scope.spawn(move || (0..150).for_each(|_| storage.put(&format!("k{w}"), b"value").expect("put")))
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            storage.sweep_uploads(false).expect("sweep");
        }
    });
    assert!(get(&storage, "k0").is_some() && get(&storage, "k1").is_some());
}
