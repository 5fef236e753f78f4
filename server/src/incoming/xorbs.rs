//! Xorbs of uploads by the Xet protocol, kept per repository and upload until its files are put together.

use crate::{
    incoming::{file::IncomingFile, quota::Holder, room, room::Room},
    problem::{Problem, Result},
    process::state::{self, entries},
    registry::RepoKey,
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Name of their directory in a repository's.
const KIND: &str = "xet";
/// How long after its last xorb an upload may take to send its shard.
pub(super) const IDLE: Duration = Duration::from_secs(2 * 3600);
/// Bytes of a session's name.
const NAME: usize = 8;
/// Stands beside the xorbs once a shard has come.
const MARK: &str = "shard.mark";
/// How long xorbs stay when nothing comes after a shard: a client may send several that share xorbs, one after the
/// other.
const AFTER_SHARD: Duration = Duration::from_secs(3600);

/// One upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session(String);

impl Session {
    /// With a name of its own.
    pub(crate) fn new() -> Result<Session> {
        let mut name = [0; NAME];
        getrandom::fill(&mut name).map_err(|e| Problem::internal(format!("no random bytes: {e}")))?;
        Ok(Session(hex::encode(name)))
    }

    /// As it stands in a path.
    pub(crate) fn parse(text: &str) -> Result<Session> {
        let known = text.len() == 2 * NAME && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let shown = || text.chars().take(80).collect::<String>();
        known.then(|| Session(text.to_owned())).ok_or_else(|| Problem::not_found("upload", shown()))
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The xorbs of all repositories.
#[derive(Debug)]
pub(crate) struct Xorbs {
    room: Arc<Room>,
}

impl Xorbs {
    /// Those that an earlier process left are counted.
    pub(super) fn new(room: Arc<Room>) -> Xorbs {
        for (repo, dir) in room.repositories() {
            for path in entries(&dir.join(KIND)).iter().flat_map(|session| files(session)) {
                let len = fs::metadata(&path).map_or(0, |m| m.len());
                room.hold_again(&repo, &path, None, len);
            }
        }
        Xorbs { room }
    }

    fn dir(&self, repo: &RepoKey, session: &Session) -> PathBuf {
        self.room.dir(repo, KIND).join(&session.0)
    }

    /// Where the xorb of this hash is, if it is here. The hash is of 64 hex digits.
    pub(crate) fn path(&self, repo: &RepoKey, session: &Session, hash: &str) -> PathBuf {
        self.dir(repo, session).join(hash)
    }

    /// Keeps a received xorb; it may come again.
    pub(crate) fn keep(&self, holder: &Holder, session: &Session, hash: &str, received: IncomingFile) -> Result<()> {
        state::make(&self.dir(&holder.repo, session))?;
        let path = self.path(&holder.repo, session, hash);
        self.room.note_sender(&path, holder)?;
        self.room.hold(&path, received.keep(&path)?);
        Ok(())
    }

    /// Notes that files were put together of what was sent: from now on the xorbs stay for `AFTER_SHARD`.
    pub(crate) fn note_shard(&self, repo: &RepoKey, session: &Session) {
        let mark = self.dir(repo, session).join(MARK);
        // Made anew, so that the directory is as young as its last shard. Without a mark xorbs stay longer.
        let _ = fs::remove_file(&mark);
        let _ = fs::File::create(&mark);
    }

    /// Drops what was last sent to this long ago, or to which a shard came and nothing after that.
    pub(super) fn sweep(&self, idle: Duration) {
        for (_, dir) in self.room.repositories() {
            for session in entries(&dir.join(KIND)) {
                let limit = if session.join(MARK).exists() { AFTER_SHARD } else { idle };
                if room::age(&session).is_some_and(|age| age >= limit) {
                    self.clear(&session);
                }
            }
        }
    }

    fn clear(&self, session: &Path) {
        for path in files(session) {
            // What stays is counted, and tried again by a later sweep.
            let _ = self.room.remove(&path);
        }
        // Marks, and senders of xorbs that were not kept.
        let beside = entries(session).into_iter().filter(|p| p.extension().is_some());
        beside.for_each(|path| drop(fs::remove_file(path)));
        let _ = fs::remove_dir(session);
    }
}

/// The xorbs in a session's directory, without what stands beside them.
fn files(session: &Path) -> Vec<PathBuf> {
    entries(session).into_iter().filter(|p| p.extension().is_none()).collect()
}
