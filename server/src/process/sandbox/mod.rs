//! File system sandbox: the process can open what it serves, its own directory, and what libraries need. The kernel
//! refuses everything else, whatever a request makes the server try (Landlock, Linux 5.13 and later).
//!
//! It is set up before there is a second thread, and holds for all that are started later. No program can be started,
//! either.

#[cfg(target_os = "linux")]
mod landlock;
mod needs;

use crate::{options::Options, problem::Result};
use std::{
    fs::File,
    path::{Path, PathBuf},
};

/// Opened to check that the sandbox holds: they exist nearly everywhere and are world-readable.
const OUTSIDE: [&str; 3] = ["/etc/passwd", "/etc/hostname", "/"];

/// What may be opened.
#[derive(Debug, Default)]
struct Needs {
    /// Files and directories that are read.
    read: Vec<PathBuf>,
    /// Directories in which everything may be done that a repository needs.
    write: Vec<PathBuf>,
    /// Directories in which a log is written, and made anew.
    append: Vec<PathBuf>,
    /// Devices, and what their drivers keep.
    devices: Vec<PathBuf>,
}

/// How much of the sandbox the kernel enforces.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is none elsewhere"))]
enum Status {
    /// Everything that was asked for, by this version of Landlock.
    Full(i32),
    /// What this older version knows.
    Partial(i32),
    Absent,
}

impl Needs {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.read.iter().chain(&self.write).chain(&self.append).chain(&self.devices)
    }

    fn cover(&self, path: &Path) -> bool {
        self.all().any(|allowed| path.starts_with(allowed))
    }
}

/// Confines the process, and logs how far.
pub(crate) fn enter(options: &Options, state: &Path) -> Result<()> {
    if !options.sandbox {
        tracing::warn!("no sandbox: the server may open whatever its user may");
        return Ok(());
    }
    let needs = needs::from_options(options, state)?;
    let others = threads().saturating_sub(1);
    if others > 0 {
        tracing::warn!(others, "threads that were started before the sandbox are outside of it");
    }
    match confine(&needs) {
        Ok(Status::Full(abi)) => tracing::info!(abi, "sandbox: landlock"),
        Ok(Status::Partial(abi)) => tracing::warn!(abi, "sandbox: landlock, in part: the kernel is older"),
        Ok(Status::Absent) => {
            tracing::warn!("sandbox: not available on this system");
            return Ok(());
        }
        Err(why) => {
            tracing::warn!(%why, "sandbox: not available");
            return Ok(());
        }
    }
    look_outside(&needs);
    Ok(())
}

/// Tries accesses that must fail.
fn look_outside(needs: &Needs) {
    for path in OUTSIDE.iter().map(Path::new).filter(|p| !needs.cover(p)) {
        match File::open(path) {
            Ok(_) => tracing::error!(path = %path.display(), "sandbox: this can be opened all the same"),
            Err(error) => tracing::debug!(path = %path.display(), %error, "sandbox: refused, as it should be"),
        }
    }
}

/// Number of threads of this process; 1 if unknown.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

#[cfg(target_os = "linux")]
use landlock::confine;

#[cfg(not(target_os = "linux"))]
fn confine(_: &Needs) -> std::result::Result<Status, String> {
    Ok(Status::Absent)
}
