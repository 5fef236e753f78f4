//! Uploaded LFS objects by their SHA-256, kept per repository.
//!
//! Once a commit has stored the bytes (the repository then knows their SHA-256) the raw copy is no longer counted, and
//! deleted after a while. An object that no version holds is deleted when unused for the time the operator set.

use crate::{
    app::App,
    hub::sha256_of,
    incoming::{file::IncomingFile, quota::Holder, room, room::Room},
    problem::{Result, storage_failed},
    process::state::{self, entries},
    registry::RepoKey,
};
use mdl_objects::{Entry, Kind, Mode};
use mdl_repo::Repo;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Name of their directory in a repository's.
pub(super) const KIND: &str = "lfs";
/// How long a raw copy stays that the repository does not need: a client may rely on having seen it.
pub(super) const KEEP: Duration = Duration::from_secs(12 * 3600);

/// Where an object is.
#[derive(Debug)]
pub(crate) enum Place {
    /// As it was uploaded.
    Raw(PathBuf),
    /// A file of some version.
    Version(Entry),
}

/// An object that is here.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) place: Place,
    pub(crate) size: u64,
}

/// The objects of all repositories.
#[derive(Debug)]
pub struct Objects {
    room: Arc<Room>,
}

impl Objects {
    /// Those that an earlier process left are counted.
    pub(super) fn new(room: Arc<Room>) -> Objects {
        for (repo, dir) in room.repositories() {
            for path in files(&dir.join(KIND)) {
                let len = fs::metadata(&path).map_or(0, |m| m.len());
                room.hold_again(&repo, &path, None, len);
            }
        }
        Objects { room }
    }

    fn path(&self, repo: &RepoKey, oid: &str) -> PathBuf {
        let cut = |from: usize| oid.get(from..from + 2).unwrap_or("__");
        self.room.dir(repo, KIND).join(cut(0)).join(cut(2)).join(oid)
    }

    /// Finds an object of a repository, and refreshes its expiry. An invalid SHA-256 is not found.
    pub(crate) fn find(&self, key: &RepoKey, repo: &Repo, oid: &str) -> Option<Object> {
        let digest = sha256_of(oid)?;
        let raw = self.path(key, oid);
        if let Ok(size) = fs::metadata(&raw).map(|m| m.len()) {
            touch(&raw);
            let place = Place::Raw(raw);
            return Some(Object { place, size });
        }
        let entry = in_repo(repo, &digest, oid)?;
        Some(Object { size: entry.size, place: Place::Version(entry) })
    }

    /// Keeps a received object; another upload of the same bytes does no harm.
    pub(crate) fn keep(&self, holder: &Holder, oid: &str, received: IncomingFile) -> Result<()> {
        let (path, top) = (self.path(&holder.repo, oid), self.room.dir(&holder.repo, KIND));
        let dir = path.parent().unwrap_or(&top);
        state::make(dir)?;
        self.room.note_sender(&path, holder)?;
        self.room.hold(&path, received.keep(&path)?);
        // The directories above may be new as well.
        let mut above = dir.ancestors().skip(1).take_while(|d| d.starts_with(&top));
        above.try_for_each(|d| fs::File::open(d).and_then(|d| d.sync_all())).map_err(storage_failed)
    }

    /// Removes raw copies that nothing asked for lately: after `keep` where the repository has the bytes, else after
    /// `expiry` (none: never). Those that the repository has are no longer counted.
    pub(super) fn sweep(&self, app: &App, keep: Duration, expiry: Option<Duration>) {
        for (key, dir) in self.room.repositories() {
            let files = files(&dir.join(KIND));
            if files.is_empty() {
                continue;
            }
            // A repository that cannot be opened now keeps everything until it expires.
            let repo = app.registry().open(&key.name).ok();
            let repo = repo.filter(|r| RepoKey::new(&key.name, r).is_ok_and(|k| k == key));
            // A commit may be about to read them.
            let Some(_held) = app.commit_lock().try_lock(key) else {
                continue;
            };
            for path in files {
                let is_old = |limit: Duration| room::age(&path).is_some_and(|age| age >= limit);
                let oid = path.file_name().unwrap_or_default().to_string_lossy();
                let digest = sha256_of(&oid);
                let known = repo.as_ref().zip(digest).and_then(|(repo, digest)| in_repo(repo, &digest, &oid));
                let over = match known {
                    Some(_) => {
                        self.room.release(&path);
                        is_old(keep)
                    }
                    None => expiry.is_some_and(is_old),
                };
                if over {
                    let _ = self.room.remove(&path);
                }
            }
        }
    }
}

/// The objects below a repository's directory, without what stands beside them.
fn files(dir: &Path) -> Vec<PathBuf> {
    let all = entries(dir).into_iter();
    let all = all.flat_map(|d| entries(&d)).flat_map(|d| entries(&d));
    all.filter(|p| p.extension().is_none()).collect()
}

fn touch(path: &Path) {
    let file = fs::File::options().append(true).open(path);
    // If it fails, the worst is that the client uploads it once more.
    let _ = file.and_then(|f| f.set_modified(SystemTime::now()));
}

/// The file of this SHA-256 that the repository has, as far as it is known.
fn in_repo(repo: &Repo, digest: &[u8; 32], oid: &str) -> Option<Entry> {
    let (id, size) = repo.odb().by_sha256(digest)?;
    let mode = match repo.odb().locate(&id).ok()??.record.kind {
        Kind::Blob => Mode::Blob,
        Kind::Manifest => Mode::Manifest,
        _ => return None,
    };
    Some(Entry { name: oid.to_owned(), mode, executable: false, size, id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, content::Hashes, registry::RepoName};
    use bytes::Bytes;
    use futures_util::stream;
    use mdl_codec::CpuEngine;
    use mdl_repo::{CommitRequest, Content, NewFile, Silent};
    use std::{convert::Infallible, sync::Arc};

    async fn kept(app: &App, holder: &Holder, bytes: &'static [u8]) -> String {
        let stream = stream::iter([Ok::<_, Infallible>(Bytes::from_static(bytes))]);
        let received = app.incoming().receive(holder, stream, None, u64::MAX).await;
        let received = received.expect("received");
        let oid: String = received.sha256.iter().map(|b| format!("{b:02x}")).collect();
        app.incoming().objects.keep(holder, &oid, received).expect("kept");
        oid
    }

    #[tokio::test]
    async fn a_copy_goes_once_a_version_has_the_bytes_and_the_others_when_they_expire() {
        let root = tempfile::tempdir().expect("a directory");
        let engine = Arc::new(CpuEngine::new());
        let options = Options { quota_repo: Some(9), ..Options::new(root.path()) };
        let app = App::new(options, engine).expect("an app");
        let name = RepoName::new("ada", "gpt").expect("a name");
        let repo = app.registry().create(&name, "main").expect("a repository");
        let key = RepoKey::new(&name, &repo).expect("a key");
        let token = "t".to_owned();
        let holder = Holder { repo: key.clone(), token };
        let (held, loose) = (kept(&app, &holder, b"held").await, kept(&app, &holder, b"loose").await);
        let request = CommitRequest {
            files: Some(vec![NewFile {
                rel: "x".to_owned(),
                executable: false,
                content: Content::Memory(Arc::new(b"held".to_vec())),
            }]),
            ..CommitRequest::default()
        };
        let id = mdl_repo::commit(&repo, &request, &Silent).expect("a commit").id;
        let objects = &app.incoming().objects;
        let is_raw = |oid: &str| {
            let found = objects.find(&key, &repo, oid)?;
            Some(matches!(found.place, Place::Raw(_)))
        };
        let has_room = || app.incoming().room.quota.reserve(&holder, 4).is_ok();
        objects.sweep(&app, Duration::ZERO, None);
        assert!(is_raw(&held) == Some(true) && !has_room());

        let mut hashes = Hashes::new(4);
        hashes.update(b"held");
        app.content().remember(&repo, &mdl_repo::files(&repo, &id).expect("files")["x"], hashes.finish());
        objects.sweep(&app, KEEP, None);
        assert!(is_raw(&held) == Some(true) && has_room(), "what a version holds is not counted");
        let busy = app.commit_lock().lock(key.clone()).await;
        objects.sweep(&app, Duration::ZERO, Some(Duration::ZERO));
        assert_eq!((is_raw(&held), is_raw(&loose)), (Some(true), Some(true)), "a commit may be reading them");
        drop(busy);
        objects.sweep(&app, Duration::ZERO, Some(KEEP));
        assert_eq!((is_raw(&held), is_raw(&loose)), (Some(false), Some(true)));
        objects.sweep(&app, Duration::ZERO, Some(Duration::ZERO));
        assert_eq!((is_raw(&held), is_raw(&loose)), (Some(false), None));
        assert!(app.incoming().room.quota.reserve(&holder, 9).is_ok(), "what is gone is not counted");
    }
}
