//! Each storage of this crate keeps the promises of `support/conformance.rs`; and what a directory promises besides.

#[path = "../support/conformance.rs"]
mod promises;

use mdl_repo::{
    ErrorKind, RefName, Refs,
    storage::{FaultStorage, Key, LocalStorage, MemoryStorage, Prefix, Storage},
};
use promises::{conforms, get};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc, thread};
use tempfile::TempDir;

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

/// What may lie in a value's place and is none: a pipe, links to a device, to a pipe and to a file elsewhere, and a
/// socket.
fn no_files(dir: &Path) -> Vec<Key> {
    fs::write(dir.join("outside"), b"secret").expect("write");
    let pipe = |name: &str| mknodat(CWD, dir.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    pipe("a-pipe");
    for (to, name) in [("/dev/zero", "device"), ("a-pipe", "piped"), ("outside", "linked")] {
        symlink(to, dir.join(name)).expect("link");
    }
    // The name stays when the socket is closed.
    drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket"));
    ["a-pipe", "device", "piped", "linked", "socket"].map(Key::fixed).to_vec()
}

#[test]
fn only_regular_files_are_values_and_others_answer_at_once() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    for key in no_files(dir.path()) {
        let damaged = |e: mdl_repo::RepoError| assert_eq!(e.kind(), ErrorKind::Corrupt, "{key}: {e}");
        damaged(storage.get(&key).expect_err("no value"));
        damaged(storage.read_at(&key, 0, &mut [0; 2]).expect_err("no value"));
        assert_eq!(storage.size(&key).expect("size"), None, "{key}");
        assert!(storage.append(&key, b"x").is_err() && storage.swap(&key, None, Some(b"x")).is_err(), "{key}");
    }
    assert_eq!(fs::read(dir.path().join("outside")).expect("read"), b"secret");
    // A whole value may take its place.
    storage.put(&Key::fixed("a-pipe"), b"value").expect("put");
    assert_eq!(get(&storage, "a-pipe"), Some(b"value".to_vec()));
}

#[test]
fn refs_logs_and_head_are_small_files_or_errors() {
    let dir = TempDir::new().expect("temp dir");
    fs::create_dir_all(dir.path().join("refs/heads")).expect("dir");
    fs::create_dir_all(dir.path().join("logs")).expect("dir");
    let refs = Refs::new(Arc::new(LocalStorage::new(dir.path())));
    let main = RefName::branch("main").expect("a name");
    let places = ["refs/heads/main", "HEAD", "logs/HEAD"].map(|p| dir.path().join(p));
    // A terabyte, of which nothing is on the disk.
    let huge = |path: &Path| fs::File::create(path).and_then(|f| f.set_len(1 << 40)).expect("a hole");
    let device = |path: &Path| symlink("/dev/zero", path).expect("link");
    let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    for make in [&huge as &dyn Fn(&Path), &device, &pipe] {
        for path in &places {
            let _ = fs::remove_file(path);
            make(path);
        }
        let all = [
            refs.get(&main).map(drop),
            refs.list("refs/heads/").map(drop),
            refs.head().map(drop),
            refs.reflog(&RefName::HEAD).map(drop),
        ];
        for (what, done) in all.into_iter().enumerate() {
            assert_eq!(done.expect_err("no ref").kind(), ErrorKind::Corrupt, "{what}");
        }
    }
}

#[test]
fn what_a_directory_holds_under_names_that_no_key_has_is_passed_over() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    storage.put(&Key::fixed("l/a"), b"1").expect("put");
    for name in ["a\\b", "new\nline"] {
        fs::write(dir.path().join("l").join(name), b"x").expect("write");
    }
    let listed = storage.list(&Prefix::fixed("l/")).expect("list");
    assert_eq!(listed.iter().map(|s| &*s.key).collect::<Vec<_>>(), ["l/a"]);
    assert_eq!(storage.keys(&Prefix::ALL).expect("keys"), [Key::fixed("l/a")]);
}

#[test]
fn a_dead_upload_is_swept_and_a_live_one_is_not() {
    let dir = TempDir::new().expect("temp dir");
    let storage = LocalStorage::new(dir.path());
    let mut live = storage.upload().expect("upload");
    live.write(b"still being written").expect("write");
    fs::write(dir.path().join("tmp/dead"), b"12345").expect("write");
    assert_eq!(storage.sweep_uploads(true).expect("dry"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 5);
    assert_eq!(storage.sweep_uploads(false).expect("sweep"), 0);
    live.finish(&Key::fixed("kept")).expect("finish");
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
                scope.spawn(move || {
                    (0..150).for_each(|_| {
                        storage.put(&Prefix::ALL.key(&format!("k{w}")).expect("a key"), b"value").expect("put")
                    })
                })
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            storage.sweep_uploads(false).expect("sweep");
        }
    });
    assert!(get(&storage, "k0").is_some() && get(&storage, "k1").is_some());
}
