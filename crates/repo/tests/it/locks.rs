//! Locks of files across processes: forked children, deleted lock files.

use mdl_codec::CpuEngine;
use mdl_repo::{
    Repo, RepoError, WriteTransaction,
    storage::{Key, LocalStorage, Storage, Swap},
};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Names the storage to the child process that stands for a trainer.
const TRAINER: &str = "MDL_TEST_TRAINER";
/// Names a place for a repository to the child process that forks.
const FORKING: &str = "MDL_TEST_FORKING";
const COUNT: Key = Key::fixed("count");

/// In the child: takes the lock that a commit holds, forks a worker that outlives it, and says so.
#[test]
fn trainer() {
    let Some(path) = env::var_os(TRAINER) else { return };
    let storage = LocalStorage::new(path);
    let _held = storage.lock_shared().expect("a lock");
    // SAFETY: the child only sleeps and ends.
    let worker = unsafe { libc::fork() };
    if worker == 0 {
        // SAFETY: as above.
        unsafe {
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    println!("\nworker {worker}");
    thread::sleep(Duration::from_secs(60));
}

fn locks_within(storage: &Path, limit: Duration) -> bool {
    let (storage, (done, locked)) = (LocalStorage::new(storage), mpsc::channel());
    thread::spawn(move || {
        let _ = done.send(storage.lock_exclusive().is_ok());
    });
    locked.recv_timeout(limit).unwrap_or(false)
}

#[test]
fn a_lock_ends_with_its_process_though_a_forked_child_lives_on() {
    let dir = tempfile::TempDir::new().expect("temp dir");
    let mut trainer = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "locks::trainer", "--nocapture"])
        .env(TRAINER, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a trainer");
    let lines = BufReader::new(trainer.stdout.take().expect("its output")).lines();
    let worker = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("worker ")?.parse::<i32>().ok());
    let worker = worker.expect("a worker");
    assert!(!locks_within(dir.path(), Duration::from_millis(500)), "the trainer has the lock");
    trainer.kill().expect("kill");
    trainer.wait().expect("wait");
    // SAFETY: asks whether the process is there.
    assert_eq!(unsafe { libc::kill(worker, 0) }, 0, "the worker lives on");
    let locked = locks_within(dir.path(), Duration::from_secs(20));
    // SAFETY: the worker is this test's own.
    unsafe { libc::kill(worker, libc::SIGKILL) };
    assert!(locked, "a child kept the lock");
}

#[test]
fn a_ref_does_not_move_once_the_lock_file_is_gone() {
    let dir = tempfile::TempDir::new().expect("temp dir");
    let (repo, _) = Repo::init(dir.path(), true, "main", Arc::new(CpuEngine::new())).expect("init");
    let held = WriteTransaction::begin(&repo).expect("lock");
    held.revalidate().expect("it holds");
    fs::remove_file(dir.path().join("gc.lock")).expect("remove");
    assert!(matches!(held.revalidate(), Err(RepoError::LockLost { .. })));
    let again = WriteTransaction::begin(&repo).expect("lock");
    again.revalidate().expect("a new one holds");
    assert!(matches!(held.revalidate(), Err(RepoError::LockLost { .. })), "it is another file");
}

#[test]
fn swaps_go_on_where_their_lock_file_is_deleted_again_and_again() {
    let dir = tempfile::TempDir::new().expect("temp dir");
    let count = |storage: &LocalStorage| -> u64 {
        let found = storage.get(&COUNT).expect("get").unwrap_or_default();
        String::from_utf8(found).expect("text").parse().unwrap_or(0)
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let storage = LocalStorage::new(dir.path());
                for _ in 0..25 {
                    loop {
                        let found = storage.get(&COUNT).expect("get");
                        let n = count(&storage) + 1;
                        let new = n.to_string();
                        let done = storage.swap(&COUNT, found.as_deref(), Some(new.as_bytes()));
                        if matches!(done.expect("swap"), Swap::Done) {
                            break;
                        }
                    }
                }
            });
        }
        for _ in 0..50 {
            let _ = fs::remove_file(dir.path().join("swap.lock"));
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(count(&LocalStorage::new(dir.path())) > 0, "nothing hangs, and nothing panics");
}

/// In the child: a thread asks for its first signature while another forks; what was forked asks too.
#[test]
fn forking() {
    let Some(path) = env::var_os(FORKING) else { return };
    let (repo, _) = Repo::init(Path::new(&path), true, "main", Arc::new(CpuEngine::new())).expect("init");
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            repo.config().signature()
        });
        start.wait();
        for _ in 0..10 {
            // SAFETY: the child asks for a signature and ends; a lock that another thread had is what this is about.
            let child = unsafe { libc::fork() };
            if child == 0 {
                repo.config().signature();
                // SAFETY: ends the child without its parent's handlers.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for its own child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    });
}

#[test]
fn a_child_that_is_forked_beside_a_commit_is_not_stuck() {
    for _ in 0..20 {
        let dir = tempfile::TempDir::new().expect("temp dir");
        let mut program = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "locks::forking"])
            .env(FORKING, dir.path())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a program that forks");
        let begun = Instant::now();
        let ended = loop {
            match program.try_wait().expect("wait") {
                None if begun.elapsed() < Duration::from_secs(60) => thread::sleep(Duration::from_millis(5)),
                ended => break ended,
            }
        };
        // SAFETY: the group is this program's and its children's.
        unsafe { libc::kill(-i32::try_from(program.id()).expect("a pid"), libc::SIGKILL) };
        assert!(ended.is_some_and(|e| e.success()), "a child is stuck");
    }
}
