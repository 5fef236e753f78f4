//! Storage for incoming bytes, under one set of limits: request files, resumable uploads, LFS objects, partial packs.
//!
//! Bytes are reserved before they are written (`quota`), count as long as their file is there (`room`), and are dropped
//! when not used for long. All lie below the repository's identity: a successor of the same name sees none of them.

mod appending;
mod file;
pub(crate) mod migrate;
mod objects;
mod packs;
mod quota;
mod room;
mod uploads;
mod xorbs;

pub(crate) use appending::OFFSET;
pub use file::IncomingFile;
pub use objects::Objects;
pub(crate) use objects::{Object, Place};
pub(crate) use packs::PackName;
pub use packs::PartialPacks;
pub use quota::{Holder, NO_TOKEN};
pub(crate) use room::Room;
pub use uploads::{IDLE, TakenUpload, Upload, Uploads};
pub(crate) use xorbs::{Session, Xorbs};

use crate::{
    app::App,
    options::Options,
    problem::Result,
    process::state::entries,
    registry::{Registry, RepoKey},
};
use parking_lot::Mutex;
use quota::Quota;
use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time between sweeps of what repositories no longer need.
const PAUSE: Duration = Duration::from_secs(15 * 60);

/// All incoming bytes.
#[derive(Debug)]
pub struct Incoming {
    /// The directories of repositories.
    pub(crate) room: Arc<Room>,
    /// Bytes that one upload, and one commit, may have.
    pub max_upload: u64,
    /// Resumable uploads.
    pub uploads: Arc<Uploads>,
    /// LFS objects by their SHA-256.
    pub objects: Objects,
    /// Partial packs.
    pub packs: PartialPacks,
    /// Chunks of uploads by the Xet protocol.
    pub(crate) xorbs: Xorbs,
    swept: Mutex<Option<Instant>>,
}

impl Incoming {
    /// In a server's own directory. What an earlier process left is counted; what it left half done is removed.
    pub fn new(state: &Path, options: &Options, registry: &Registry) -> Result<Incoming> {
        let max = options.max_upload;
        // Room for one commit of the largest size while another one is sent.
        let limit = |said: Option<u64>| said.unwrap_or(max.saturating_mul(2));
        let quota = Quota::new(limit(options.quota_repo), limit(options.quota_token));
        let room = Room::new(state, quota)?;
        migrate::migrate(state, &room, registry);
        Ok(Incoming {
            max_upload: max,
            uploads: Arc::new(Uploads::new(room.clone(), max)),
            objects: Objects::new(room.clone()),
            packs: PartialPacks::new(room.clone(), max),
            xorbs: Xorbs::new(room.clone()),
            room,
            swept: Mutex::default(),
        })
    }

    /// Drops what was not used for long, and now and then what no repository needs any more.
    pub fn sweep(&self, app: &App) {
        self.uploads.sweep(IDLE);
        self.packs.sweep(IDLE);
        self.xorbs.sweep(xorbs::IDLE);
        let mut swept = self.swept.lock();
        if swept.is_none_or(|at| at.elapsed() >= PAUSE) {
            *swept = Some(Instant::now());
            drop(swept);
            self.objects.sweep(app, objects::KEEP, app.options().lfs_expiry);
            self.sweep_gone(app);
        }
        self.room.recount();
    }

    /// Removes the directories of repositories that another one has replaced, and of those that are gone for a day: a
    /// file system that was not mounted for a while must not cost what is in them.
    fn sweep_gone(&self, app: &App) {
        for (key, dir) in self.room.repositories() {
            let is_gone = match app.registry().open(&key.name) {
                Ok(repo) => RepoKey::new(&key.name, &repo).is_ok_and(|now| now != key),
                Err(e) => e.status == http::StatusCode::NOT_FOUND && is_older(&dir, IDLE),
            };
            if is_gone && let Err(error) = fs::remove_dir_all(&dir) {
                tracing::warn!(%error, repo = %key, "what was kept for a repository that is gone stays");
            }
        }
    }
}

/// Whether all files below a directory, and the directory, were last written this long ago.
fn is_older(path: &Path, limit: Duration) -> bool {
    room::age(path).is_some_and(|age| age >= limit)
        && (!path.is_dir() || entries(path).iter().all(|path| is_older(path, limit)))
}
