//! The lock of a work tree: one command at a time changes its files or where HEAD points, or takes its files for a
//! commit.

use crate::repo::Repo;
use mdl_store::{Progress, RepoError, Result};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// Its file, in the repository's own directory beside this work tree.
const LOCK: &str = "work.lock";
/// Pause between two tries.
const NAP: Duration = Duration::from_millis(20);
/// After this long the user is told what is waited for.
const QUIET: Duration = Duration::from_secs(1);

/// Held while the files of the work tree, or HEAD, are used as they are.
#[derive(Debug)]
#[must_use = "others are kept out only while it lives"]
pub struct WorkTreeLock {
    /// None where the repository has no directory of its own, and so no work tree.
    file: Option<File>,
}

impl Drop for WorkTreeLock {
    fn drop(&mut self) {
        // Unlocked explicitly, not by closing: a child that was forked meanwhile has the file open too.
        let _ = self.file.as_ref().map(File::unlock);
    }
}

/// Waits until no other command uses the work tree, and excludes others while the lock lives. It is taken before
/// `WriteTransaction`.
///
/// # Errors
/// `Stopped`; an I/O error.
pub fn lock_work_tree(repo: &Repo, progress: &dyn Progress) -> Result<WorkTreeLock> {
    let Some(path) = repo.dir().map(|dir| dir.join(LOCK)) else {
        return Ok(WorkTreeLock { file: None });
    };
    let failed = || RepoError::io(format!("cannot lock {}", path.display()));
    let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = options.map_err(failed())?;
    let (began, mut said) = (Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(failed()(e)),
        }
        if progress.stopped() {
            return Err(RepoError::Stopped { what: "waiting" });
        }
        if !said && began.elapsed() > QUIET {
            progress.waiting(&format!("another command that uses this work tree{}", holder(&path)));
            said = true;
        }
        sleep(NAP);
    }
    // The pid, for processes that wait; no matter if it cannot be written.
    let own = format!("{}\n", std::process::id());
    let _ = file.rewind().and_then(|()| file.set_len(0)).and_then(|()| file.write_all(own.as_bytes()));
    Ok(WorkTreeLock { file: Some(file) })
}

fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(" (process {pid})"),
        _ => String::new(),
    }
}
