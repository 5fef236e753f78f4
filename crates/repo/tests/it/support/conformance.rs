//! What every storage promises: one suite for this crate's storages and for those of `mdl-remote`.

use mdl_repo::storage::{Key, Prefix, Storage, Swap};
use std::{thread, time::Duration};

/// All promises of the trait, on a storage that is empty.
pub fn conforms(storage: &dyn Storage) {
    values(storage);
    ranges(storage);
    listing(storage);
    uploads(storage);
    swaps(storage);
    appends(storage);
    deletion(storage);
    packs(storage);
    if storage.excludes() {
        locks(storage);
    } else {
        open_locks(storage);
    }
    assert!(storage.sweep_uploads(true).is_ok_and(|n| storage.sweep_uploads(false).is_ok_and(|m| n == m)));
}

fn keys(storage: &dyn Storage, prefix: &str) -> Vec<String> {
    let prefix = Prefix::parse(prefix).expect("a prefix");
    let listed: Vec<Key> = storage.list(&prefix).expect("list").into_iter().map(|s| s.key).collect();
    let mut keys = storage.keys(&prefix).expect("keys");
    keys.sort();
    assert_eq!(keys, listed);
    listed.iter().map(Key::to_string).collect()
}

fn named(key: &str) -> Key {
    Key::parse(key).expect("a key")
}

/// A whole value.
pub fn get(storage: &dyn Storage, key: &str) -> Option<Vec<u8>> {
    storage.get(&named(key)).expect("get")
}

fn values(s: &dyn Storage) {
    assert_eq!((get(s, "v/a"), s.size(&Key::fixed("v/a")).expect("size")), (None, None));
    s.put(&Key::fixed("v/a"), b"one").expect("put");
    s.put(&Key::fixed("v/a"), b"two!").expect("replace");
    s.put(&Key::fixed("v/empty"), b"").expect("put");
    assert_eq!((get(s, "v/a"), s.size(&Key::fixed("v/a")).expect("size")), (Some(b"two!".to_vec()), Some(4)));
    assert_eq!((get(s, "v/empty"), s.size(&Key::fixed("v/empty")).expect("size")), (Some(vec![]), Some(0)));
    assert_eq!(get(s, "v"), None, "a prefix is no key");
    bounds(s);
}

/// What has more bytes than its reader can use is an error, however it came to be.
fn bounds(s: &dyn Storage) {
    let within = |key: &str, most| s.get_within(&named(key), most);
    s.append(&Key::fixed("logs/long"), b"12").expect("append");
    s.append(&Key::fixed("logs/long"), b"34").expect("append");
    for key in ["v/a", "logs/long"] {
        assert_eq!(within(key, 4).expect("as many").map(|b| b.len()), Some(4), "{key}");
        for most in [0, 1, 3] {
            let refused = within(key, most).expect_err("more");
            assert_eq!(refused.kind(), mdl_repo::ErrorKind::Corrupt, "{key} {most}");
        }
    }
    assert_eq!(within("v/empty", 0).expect("none"), Some(vec![]));
    assert_eq!(within("v/none", 0).expect("none"), None);
    s.delete(&Key::fixed("logs/long")).expect("delete");
}

fn ranges(s: &dyn Storage) {
    s.put(&Key::fixed("r"), b"0123456789").expect("put");
    let mut buf = [0; 4];
    s.read_at(&Key::fixed("r"), 3, &mut buf).expect("range");
    assert_eq!(&buf, b"3456");
    s.read_at(&Key::fixed("r"), 6, &mut buf).expect("the end");
    s.read_at(&Key::fixed("r"), 10, &mut []).expect("nothing, at the end");
    assert!(s.read_at(&Key::fixed("r"), 7, &mut buf).is_err(), "beyond the end");
    assert!(s.read_at(&Key::fixed("r"), u64::MAX, &mut buf).is_err(), "far beyond the end");
    assert!(s.read_at(&Key::fixed("absent"), 0, &mut buf).is_err());
}

fn listing(s: &dyn Storage) {
    for key in ["l/b", "l/a/2", "l/a/1", "l/c", "lx"] {
        s.put(&named(key), key.as_bytes()).expect("put");
    }
    assert_eq!(keys(s, "l/"), ["l/a/1", "l/a/2", "l/b", "l/c"]);
    assert_eq!(keys(s, "l/a/"), ["l/a/1", "l/a/2"]);
    assert!(keys(s, "none/").is_empty());
    let listed = s.list(&Prefix::fixed("l/")).expect("list");
    assert!(listed.iter().all(|l| l.size == l.key.len() as u64));
    assert!(listed.iter().all(|l| l.modified.elapsed().is_ok_and(|age| age < Duration::from_secs(60))));
    // Logs have such names, and so may branches.
    for key in ["o/a%2Fb", "o/a b+c", "o/\u{e9}", "o/x.d/1"] {
        s.put(&named(key), key.as_bytes()).expect("put");
        assert_eq!(get(s, key), Some(key.as_bytes().to_vec()));
    }
    assert_eq!(keys(s, "o/"), ["o/a b+c", "o/a%2Fb", "o/x.d/1", "o/\u{e9}"]);
}

fn uploads(s: &dyn Storage) {
    let mut up = s.upload().expect("upload");
    up.write(b"half").expect("write");
    assert!(keys(s, "u/").is_empty(), "nothing is visible before the end");
    drop(up);
    assert!(keys(s, "u/").is_empty(), "nothing is left of a dropped upload");
    s.put(&Key::fixed("u/x"), b"old").expect("put");
    let mut up = s.upload().expect("upload");
    up.write(b"new ").expect("write");
    up.write(b"value").expect("write");
    assert_eq!(get(s, "u/x"), Some(b"old".to_vec()));
    up.finish(&Key::fixed("u/x")).expect("finish");
    assert_eq!(get(s, "u/x"), Some(b"new value".to_vec()));
    s.upload().expect("upload").finish(&Key::fixed("u/empty")).expect("finish");
    assert_eq!(get(s, "u/empty"), Some(vec![]));
}

fn swaps(s: &dyn Storage) {
    let lost = |found: Option<&[u8]>| Swap::Lost(found.map(<[u8]>::to_vec));
    assert_eq!(s.swap(&Key::fixed("s/k"), Some(b"x"), Some(b"y")).expect("swap"), lost(None));
    assert_eq!(s.swap(&Key::fixed("s/k"), None, Some(b"1")).expect("swap"), Swap::Done);
    assert_eq!(s.swap(&Key::fixed("s/k"), None, Some(b"2")).expect("swap"), lost(Some(b"1")));
    assert_eq!(s.swap(&Key::fixed("s/k"), Some(b"1"), None).expect("swap"), Swap::Done);
    assert_eq!(get(s, "s/k"), None);
    assert_eq!(s.swap(&Key::fixed("s/k"), None, None).expect("swap"), Swap::Done, "absent stays absent");
    assert_eq!(s.size(&Key::fixed("s/k")).expect("size"), None);
    assert!(keys(s, "s/").is_empty(), "a removed value is not listed");
    assert!(s.read_at(&Key::fixed("s/k"), 0, &mut [0]).is_err(), "nor read");
    assert_eq!(s.swap(&Key::fixed("s/k"), Some(b"1"), Some(b"3")).expect("swap"), lost(None));
    assert_eq!(s.swap(&Key::fixed("s/k"), None, Some(b"sixteen bytes :)")).expect("again"), Swap::Done);
    assert_eq!(keys(s, "s/"), ["s/k"]);
    s.put(&Key::fixed("s/n"), b"0").expect("put");
    // Eight threads count together: a swap that both of two win, or neither, shows in the sum.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    loop {
                        let old = get(s, "s/n").expect("the counter");
                        let n: u64 = String::from_utf8(old.clone()).expect("text").parse().expect("number");
                        let new = (n + 1).to_string();
                        if s.swap(&Key::fixed("s/n"), Some(&old), Some(new.as_bytes())).expect("swap") == Swap::Done {
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
                    s.append(&Key::fixed("logs/x"), &[b'a' + t; 32]).expect("append");
                }
            });
        }
    });
    let all = get(s, "logs/x").expect("the log");
    assert_eq!(all.len(), 8 * 20 * 32);
    assert!(all.chunks(32).all(|c| c.iter().all(|b| *b == c[0])), "one call's bytes stay together");
    s.put(&Key::fixed("logs/x"), b"short").expect("put");
    s.append(&Key::fixed("logs/x"), b"er").expect("append");
    assert_eq!(get(s, "logs/x"), Some(b"shorter".to_vec()));
    s.append(&Key::fixed("logs/refs%2Fy"), b"1").expect("append");
    s.append(&Key::fixed("logs/refs%2Fy"), b"2").expect("append");
    assert_eq!(s.size(&Key::fixed("logs/refs%2Fy")).expect("size"), Some(2));
    assert_eq!(keys(s, "logs/"), ["logs/refs%2Fy", "logs/x"]);
    let listed = s.list(&Prefix::fixed("logs/")).expect("list");
    assert_eq!(listed.iter().map(|l| l.size).collect::<Vec<_>>(), [2, 7]);
    // A log is swapped as a whole, however it came to be what it is.
    let swap = |old: &[u8], new: Option<&[u8]>| s.swap(&Key::fixed("logs/refs%2Fy"), Some(old), new).expect("swap");
    assert_eq!(swap(b"1", Some(b"x")), Swap::Lost(Some(b"12".to_vec())));
    assert_eq!(swap(b"12", Some(b"x")), Swap::Done);
    s.append(&Key::fixed("logs/refs%2Fy"), b"3").expect("append");
    assert_eq!(get(s, "logs/refs%2Fy"), Some(b"x3".to_vec()));
    assert_eq!(swap(b"x3", None), Swap::Done);
    assert_eq!(get(s, "logs/refs%2Fy"), None);
    s.append(&Key::fixed("logs/refs%2Fy"), b"4").expect("append");
    assert_eq!(get(s, "logs/refs%2Fy"), Some(b"4".to_vec()));
    s.delete(&Key::fixed("logs/refs%2Fy")).expect("delete");
    assert_eq!((get(s, "logs/refs%2Fy"), keys(s, "logs/")), (None, vec!["logs/x".to_owned()]));
}

fn deletion(s: &dyn Storage) {
    s.put(&Key::fixed("d/x/a/b"), b"x").expect("put");
    s.delete(&Key::fixed("d/x/a/b")).expect("delete");
    s.delete(&Key::fixed("d/x/a/b")).expect("absent is fine");
    s.delete(&Key::fixed("d/none/none")).expect("absent is fine");
    assert!(s.read_at(&Key::fixed("d/x/a/b"), 0, &mut [0]).is_err(), "gone is gone");
    s.put(&Key::fixed("d/x/a"), b"a name that was a prefix").expect("put");
    assert_eq!(keys(s, "d/"), ["d/x/a"]);
}

/// Deterministic bytes that differ from place to place.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A pack larger than any part or block, written in pieces and read in all ways at once.
fn packs(s: &dyn Storage) {
    let bytes = noise((17 << 20) + 5);
    for _ in 0..2 {
        let mut up = s.upload().expect("upload");
        bytes.chunks(3 << 20).for_each(|c| up.write(c).expect("write"));
        up.finish(&Key::fixed("packs/p")).expect("finish, and once more");
    }
    assert_eq!(s.size(&Key::fixed("packs/p")).expect("size"), Some(bytes.len() as u64));
    let read = |at: usize, len: usize| {
        let mut buf = vec![0; len];
        s.read_at(&Key::fixed("packs/p"), at as u64, &mut buf).expect("range");
        assert!(buf == bytes[at..at + len], "{len} bytes at {at}");
    };
    thread::scope(|scope| {
        for t in 0..4 {
            scope.spawn(move || (0..40).for_each(|i| read((t + i) << 18, 300_000)));
        }
        scope.spawn(|| read(1, bytes.len() - 1));
        scope.spawn(|| {
            [(0, 1), (1 << 20, 4 << 20), ((1 << 20) - 1, 2), (bytes.len() - 5, 5)].map(|(at, n)| read(at, n))
        });
    });
    let mut buf = [0; 6];
    assert!(s.read_at(&Key::fixed("packs/p"), bytes.len() as u64 - 5, &mut buf).is_err(), "beyond the end");
    assert!(s.read_at(&Key::fixed("packs/p"), 1 << 40, &mut buf).is_err(), "far beyond the end");
    s.delete(&Key::fixed("packs/p")).expect("delete");
    assert!(s.read_at(&Key::fixed("packs/p"), 0, &mut buf).is_err(), "gone is gone");
}

/// Locks that exclude no other process are never waited for.
fn open_locks(s: &dyn Storage) {
    let held = (s.lock_exclusive().expect("exclusive"), s.lock_shared().expect("shared"));
    drop((s.lock_exclusive().expect("exclusive"), held));
}

fn locks(s: &dyn Storage) {
    let (one, two) = (s.lock_shared().expect("shared"), s.lock_shared().expect("shared with another"));
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
