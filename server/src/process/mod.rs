//! Process setup: umask, limit on open files, private state directory, sandbox; warns if it runs as root.

pub(crate) mod log;
pub(crate) mod sandbox;
pub mod state;

use crate::{
    options::Options,
    problem::{Problem, Result},
};
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, getuid, setrlimit, umask},
};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

/// Open files that are kept for packs, indexes, the log and the server's own directory.
const KEPT_FILES: u64 = 256;
/// Open files of a connection: its socket, and what it reads or writes.
const FILES_OF_A_CONNECTION: u64 = 2;
/// However few files there are, so many connections are tried.
const LEAST_CONNECTIONS: usize = 4;
/// Where temporary files are, below the server's own directory.
const TEMPORARY: &str = "tmp";
/// Rights of a file's group and of all others.
const OF_OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Prepares the process for serving, unless others may change who has which rights. It must be the only thread.
pub(crate) fn prepare(options: &mut Options) -> Result<()> {
    umask(Mode::from_raw_mode((options.umask & 0o777) as rustix::fs::RawMode));
    if getuid().is_root() {
        tracing::warn!(
            "the server runs as root: a flaw in it would give away the machine; run it as a user of its own, \
             who owns nothing but the served directory"
        );
    }
    fit_connections(options);
    let state = options.state_dir()?;
    check_private(&state)?;
    state::make(&state)?;
    // Libraries that want a temporary file get it there, too.
    let temporary = state.join(TEMPORARY);
    state::make(&temporary)?;
    let _ = tempfile::env::override_temp_dir(&temporary);
    sandbox::enter(options, &state)?;
    // Counted while it can be: how many processors this process may use.
    tracing::debug!(threads = rayon::current_num_threads(), "threads that compute");
    Ok(())
}

/// Raises the limit on open files as far as it may be, and takes no more connections than it allows.
fn fit_connections(options: &mut Options) {
    let files = raise_open_files();
    let fit = files.map_or(usize::MAX, connections_for);
    if fit < options.max_connections {
        tracing::warn!(
            asked = options.max_connections,
            connections = fit,
            files,
            "fewer connections than asked for: the limit on open files (ulimit -n) allows no more"
        );
        options.max_connections = fit;
    } else {
        tracing::info!(connections = options.max_connections, files, "limits");
    }
}

/// How many files may be open; none: any number.
fn raise_open_files() -> Option<u64> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some() && now.current != now.maximum {
        let most = Rlimit { current: now.maximum, maximum: now.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, most) {
            tracing::debug!(%error, "the limit on open files stays as it is");
        }
    }
    getrlimit(Resource::Nofile).current
}

fn connections_for(files: u64) -> usize {
    let kept = KEPT_FILES.min(files / 2);
    let fit = (files - kept) / FILES_OF_A_CONNECTION;
    usize::try_from(fit).unwrap_or(usize::MAX).max(LEAST_CONNECTIONS)
}

/// Looks whether others can get at the server's own directory.
fn check_private(state: &Path) -> Result<()> {
    if let Some(found) = metadata(state)? {
        let mode = found.permissions().mode();
        let of_another = found.uid() != getuid().as_raw();
        if mode & OF_OTHERS != 0 || of_another {
            let mode = format!("{:04o}", mode & 0o7777);
            tracing::warn!(
                path = %state.display(), mode, owner = found.uid(),
                "other users can get at the server's own directory: chmod 0700, and its owner should be the server's user"
            );
        }
    }
    let tokens = state.join(crate::auth::TOKENS_FILE);
    match metadata(&tokens)? {
        Some(found) if found.permissions().mode() & OTHERS_WRITE != 0 => {
            let message = format!("other users can write {}, and so let anyone in", tokens.display());
            Err(Problem::forbidden(message).hint("look at what it says (`mdl token list`), then: chmod 0600"))
        }
        _ => Ok(()),
    }
}

fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Problem::usage(format!("cannot look at {}: {e}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (files, connections) in [(1024, 384), (4352, 2048), (256, 64), (20, 5), (0, LEAST_CONNECTIONS)] {
            assert_eq!(connections_for(files), connections, "{files}");
        }
        assert!(connections_for(u64::MAX) > 1 << 40);
    }

    #[test]
    fn tokens_that_others_may_write_are_not_trusted() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = dir.path().join(crate::auth::TOKENS_FILE);
        assert!(check_private(dir.path()).is_ok(), "there are none yet");
        fs::write(&tokens, b"{}").expect("written");
        for (mode, is_trusted) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
            fs::set_permissions(&tokens, fs::Permissions::from_mode(mode)).expect("changed");
            assert_eq!(check_private(dir.path()).is_ok(), is_trusted, "{mode:o}");
        }
    }
}
