//! Objects as they were uploaded, by their SHA-256, apart for each repository. Neighbours: `object` brings and fetches them, `commit`
//! makes versions of them. It must not know requests.
//!
//! Once the repository itself has the bytes (it then knows their SHA-256) the raw copy goes after a while. What no version holds, as
//! objects of git-lfs, stays.

use crate::{
    app::App,
    problem::{Problem, Result},
    registry::RepoName,
    spool::{Spooled, medium},
    state,
};
use mdl_objects::{Entry, Kind, Mode};
use mdl_repo::{Repo, Stored};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// How long a raw copy stays that the repository does not need: for clients that were told that the object is there.
const KEEP: Duration = Duration::from_secs(12 * 3600);
/// Time between looks for such copies.
const PAUSE: Duration = Duration::from_secs(15 * 60);

/// Where an object is.
#[derive(Debug)]
pub(super) enum Place {
    /// As it was uploaded.
    Raw(PathBuf),
    /// A file of some version.
    Version(Entry),
}

/// An object that is here.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) place: Place,
    pub(super) size: u64,
}

/// The objects of all repositories.
#[derive(Debug)]
pub(super) struct Objects {
    dir: PathBuf,
    swept: Mutex<Instant>,
}

impl Objects {
    /// In a directory of the server's own.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn new(dir: PathBuf) -> Result<Objects> {
        state::make(&dir)?;
        Ok(Objects {
            dir,
            swept: Mutex::new(Instant::now()),
        })
    }

    fn path(&self, name: &RepoName, oid: &str) -> PathBuf {
        let cut = |from: usize| oid.get(from..from + 2).unwrap_or("__");
        let of_repo = self.dir.join(name.owner()).join(name.name());
        of_repo.join(cut(0)).join(cut(2)).join(oid)
    }

    /// Finds an object of a repository, and sees to it that it stays for a while. What is no SHA-256 is not found.
    pub(super) fn find(&self, name: &RepoName, repo: &Repo, oid: &str) -> Option<Object> {
        let digest = super::files::sha256_of(oid)?;
        let raw = self.path(name, oid);
        if let Ok(found) = fs::metadata(&raw).map(|m| m.len()) {
            touch(&raw);
            return Some(Object {
                place: Place::Raw(raw),
                size: found,
            });
        }
        let entry = in_repo(repo, &digest, oid)?;
        Some(Object {
            size: entry.size,
            place: Place::Version(entry),
        })
    }

    /// Keeps what was received; another upload of the same bytes does no harm.
    ///
    /// # Errors
    /// The medium failed.
    pub(super) fn keep(&self, name: &RepoName, oid: &str, received: Spooled) -> Result<()> {
        let path = self.path(name, oid);
        let dir = path.parent().unwrap_or(&self.dir);
        state::make(dir)?;
        received.keep(&path)?;
        // The directories above may be new as well.
        let mut above = dir.ancestors().skip(1).take_while(|d| d.starts_with(&self.dir));
        above
            .try_for_each(|d| fs::File::open(d).and_then(|d| d.sync_all()))
            .map_err(medium)
    }

    /// Removes raw copies that are not needed, if it is time to look for them.
    pub(super) fn rest(&self, app: &App) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.elapsed() < PAUSE {
                return;
            }
            *swept = Instant::now();
        }
        self.sweep(app, KEEP);
    }

    /// Removes raw copies that nobody asked for since `keep` ago, where the repository has the bytes.
    fn sweep(&self, app: &App, keep: Duration) {
        for owner in below(&self.dir) {
            for dir in below(&owner) {
                let name = RepoName::new(&last(&owner), &last(&dir));
                let Some((name, old)) = name
                    .ok()
                    .zip(Some(old_objects(&dir, keep)))
                    .filter(|(_, old)| !old.is_empty())
                else {
                    continue;
                };
                // A repository that cannot be opened now keeps everything.
                let Ok(repo) = app.registry().open(&name) else { continue };
                for path in old {
                    let oid = last(&path);
                    let known = super::files::sha256_of(&oid).and_then(|digest| in_repo(&repo, &digest, &oid));
                    if known.is_some() {
                        let _ = fs::remove_file(&path);
                    }
                }
            }
        }
    }
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.path()).collect()
}

fn old_objects(dir: &Path, keep: Duration) -> Vec<PathBuf> {
    let is_old = |path: &PathBuf| {
        let modified = fs::metadata(path).and_then(|m| m.modified());
        modified.is_ok_and(|m| m.elapsed().is_ok_and(|age| age >= keep))
    };
    let objects = below(dir).into_iter().flat_map(|d| below(&d)).flat_map(|d| below(&d));
    objects.filter(is_old).collect()
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
    Some(Entry {
        name: oid.to_owned(),
        mode,
        executable: false,
        size,
        id,
    })
}

/// A file that the repository has, to be taken into a version without being read.
///
/// # Errors
/// Absent or damaged objects.
pub(super) fn stored(repo: &Repo, entry: &Entry) -> Result<Stored> {
    let tensors = match entry.mode {
        Mode::Manifest => repo.odb().manifest(&entry.id)?.tensors.len(),
        _ => 0,
    };
    let written = json!({
        "manifest": entry.mode == Mode::Manifest,
        "id": entry.id.to_hex(),
        "size": entry.size,
        "executable": entry.executable,
        "tensors": tensors,
        "stored_bytes": 0,
        "report": [],
    });
    serde_json::from_value(written).map_err(Problem::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, content::Hashes};
    use bytes::Bytes;
    use futures_util::stream;
    use mdl_codec::CpuEngine;
    use mdl_repo::{CommitRequest, Content, NewFile, Silent};
    use std::{convert::Infallible, sync::Arc};

    async fn kept(app: &App, name: &RepoName, bytes: &'static [u8]) -> String {
        let stream = stream::iter([Ok::<_, Infallible>(Bytes::from_static(bytes))]);
        let received = app.spool().receive(stream, None).await.expect("received");
        let oid = super::super::files::hex(&received.sha256);
        app.hub().objects.keep(name, &oid, received).expect("kept");
        oid
    }

    #[tokio::test]
    async fn a_copy_goes_once_a_version_has_the_bytes_and_the_others_stay() {
        let root = tempfile::tempdir().expect("a directory");
        let engine = Arc::new(CpuEngine::new());
        let app = App::new(Options::new(root.path()), engine).expect("an app");
        let name = RepoName::new("ada", "gpt").expect("a name");
        let repo = app.registry().create(&name, "main").expect("a repository");
        let (held, loose) = (kept(&app, &name, b"held").await, kept(&app, &name, b"loose").await);
        let request = CommitRequest {
            files: Some(vec![NewFile {
                rel: "x".to_owned(),
                executable: false,
                content: Content::Memory(Arc::new(b"held".to_vec())),
            }]),
            ..CommitRequest::default()
        };
        let id = repo.commit(&request, &Silent).expect("a commit").id;
        let objects = &app.hub().objects;
        objects.sweep(&app, Duration::ZERO);
        assert!(matches!(
            objects.find(&name, &repo, &held).expect("found").place,
            Place::Raw(_)
        ));

        let mut hashes = Hashes::new(4);
        hashes.update(b"held");
        app.content()
            .remember(&repo, &repo.files(&id).expect("files")["x"], hashes.finish());
        objects.sweep(&app, KEEP);
        assert!(matches!(
            objects.find(&name, &repo, &held).expect("found").place,
            Place::Raw(_)
        ));
        objects.sweep(&app, Duration::ZERO);
        assert!(matches!(
            objects.find(&name, &repo, &held).expect("found").place,
            Place::Version(_)
        ));
        assert!(matches!(
            objects.find(&name, &repo, &loose).expect("found").place,
            Place::Raw(_)
        ));
    }
}
