//! The server's state directory: tokens, webhooks, incoming bytes, decoded files.

use crate::problem::{Problem, Result, is_full, storage_failed};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Name of the directory below the served one.
pub const DIR: &str = ".mdl-serve";
/// Ends the name of a file that is being written.
const PART: &str = ".part";

/// Makes the directory, readable by its owner only.
pub fn make(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))
}

/// Builds the error of a failed access to a state file: the path goes to the log only.
pub fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Problem + use<> {
    let done = format!("cannot {what} {}", path.display());
    move |e| match is_full(&e) {
        true => storage_failed(e),
        false => Problem::internal(format!("{done}: {e}")),
    }
}

/// Writes a file that only its owner may read: durably, whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Only its owner's, and removed when anything fails.
    let mut part = tempfile::Builder::new().suffix(PART).tempfile_in(dir)?;
    part.as_file().lock()?;
    part.write_all(bytes)?;
    part.as_file().sync_all()?;
    part.persist(path).map_err(|e| e.error)?;
    File::open(dir)?.sync_all()
}

/// What is in a directory; nothing if it cannot be read.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).collect()
}

/// Removes half-written files of killed processes. Those of live processes are locked.
pub fn sweep_parts(dir: &Path) {
    for path in entries(dir) {
        let is_part = path.to_string_lossy().ends_with(PART);
        if is_part && File::open(&path).is_ok_and(|f| f.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns so many random bytes as hexadecimal digits: names that cannot be guessed.
pub fn random_hex(bytes: usize) -> Result<String> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).map_err(|e| Problem::internal(format!("no random bytes: {e}")))?;
    Ok(hex::encode(buffer))
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Keeps other processes (and threads) from changing a file until it is dropped.
pub fn lock(path: &Path) -> Result<File> {
    make(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.with_added_extension("lock");
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(name).map_err(failed("lock", path))?;
    file.lock().map_err(failed("lock", path))?;
    Ok(file)
}
