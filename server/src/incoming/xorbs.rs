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

    /// Drops the xorbs of an upload, if they have at most so many bytes; others stay until they are swept.
    pub(crate) fn drop_session(&self, repo: &RepoKey, session: &Session, most: u64) {
        let dir = self.dir(repo, session);
        let bytes =
            files(&dir).iter().map(|path| fs::metadata(path).map_or(0, |m| m.len())).fold(0, u64::saturating_add);
        if bytes <= most {
            self.clear(&dir);
        }
    }

    /// Drops what was last sent to this long ago.
    pub(super) fn sweep(&self, idle: Duration) {
        for (_, dir) in self.room.repositories() {
            for session in entries(&dir.join(KIND)) {
                if room::age(&session).is_some_and(|age| age >= idle) {
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
        // Senders of xorbs that were not kept.
        let beside = entries(session).into_iter().filter(|p| p.extension().is_some());
        beside.for_each(|path| drop(fs::remove_file(path)));
        let _ = fs::remove_dir(session);
    }
}

/// The xorbs in a session's directory, without what stands beside them.
fn files(session: &Path) -> Vec<PathBuf> {
    entries(session).into_iter().filter(|p| p.extension().is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, app::App, registry::RepoName};
    use bytes::Bytes;
    use futures_util::stream;
    use mdl_codec::CpuEngine;
    use std::convert::Infallible;

    #[tokio::test]
    async fn xorbs_count_until_their_upload_ends_or_is_idle_also_after_a_restart() {
        let root = tempfile::tempdir().expect("a directory");
        let options = Options { quota_repo: Some(8), ..Options::new(root.path()) };
        let begin = || App::new(options.clone(), Arc::new(CpuEngine::new())).expect("an app");
        let app = begin();
        let name = RepoName::new("ada", "gpt").expect("a name");
        let repo = app.registry().create(&name, "main").expect("a repository");
        let holder = Holder { repo: RepoKey::new(&name, &repo).expect("a key"), token: "t".to_owned() };
        let session = Session::new().expect("a name");
        assert_eq!(Session::parse(&session.to_string()).expect("a name"), session);
        for wrong in ["", "../..", "0123456789abcdeg", "0123456789ABCDEF"] {
            assert!(Session::parse(wrong).is_err(), "{wrong}");
        }
        let hash = "0".repeat(64);
        let send = async |app: &App| {
            let bytes = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"12345"))]);
            let received = app.incoming().receive(&holder, bytes, None, 9).await.expect("room for it");
            app.incoming().xorbs.keep(&holder, &session, &hash, received).expect("kept");
        };
        let is_there = |app: &App| app.incoming().xorbs.path(&holder.repo, &session, &hash).exists();
        let has_room = |app: &App| app.incoming().room.quota.reserve(&holder, 8).is_ok();

        send(&app).await;
        assert!(is_there(&app) && !has_room(&app));
        app.incoming().xorbs.drop_session(&holder.repo, &session, 4);
        app.incoming().xorbs.sweep(Duration::from_secs(60));
        assert!(is_there(&app), "it is too large to be dropped, and too young");
        app.incoming().xorbs.drop_session(&holder.repo, &session, 5);
        assert!(!is_there(&app) && has_room(&app));

        send(&app).await;
        drop(app);
        let app = begin();
        assert!(is_there(&app) && !has_room(&app), "an earlier process left it");
        app.incoming().xorbs.sweep(Duration::ZERO);
        assert!(!is_there(&app) && has_room(&app));
    }
}
