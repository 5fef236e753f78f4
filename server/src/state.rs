//! The directory of a server's own things: tokens, webhooks, uploads under way, decoded files. Neighbours: `tokens`, `spool`,
//! `content`, `webhooks` each have a part of it. It must not know what they keep.

use crate::problem::{Problem, Result};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Name of the directory below the served one.
pub const DIR: &str = ".mdl-serve";

/// Makes the directory, which nobody else may look into.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| Problem::internal(format!("cannot make {}: {e}", path.display())))
}

/// Writes a file that only its owner may read: durably, whole or not at all.
///
/// # Errors
/// The medium failed; the file is then what it was.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(dir)?.sync_all()
}

/// So many random bytes as hexadecimal digits: names that nobody can guess.
///
/// # Errors
/// The system has none.
pub fn random_hex(bytes: usize) -> Result<String> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).map_err(|e| Problem::internal(format!("no random bytes: {e}")))?;
    Ok(buffer.iter().map(|b| format!("{b:02x}")).collect())
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Keeps other processes (and threads) from changing a file until it is dropped.
///
/// # Errors
/// The medium failed.
pub fn lock(path: &Path) -> Result<File> {
    let failed = |e: io::Error| Problem::internal(format!("cannot lock {}: {e}", path.display()));
    make(path.parent().unwrap_or(Path::new(".")))?;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(PathBuf::from(name))
        .map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}
