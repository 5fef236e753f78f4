//! The promisor of a partial repository: fetches missing objects when they are needed.

use crate::{fetch::receive, open, peer::Peer, sync::Want};
use mdl_codec::Engine;
use mdl_codec::locks::Mutex;
use mdl_objects::Id;
use mdl_repo::{Promisor, Remote, Repo, RepoError, Result, Silent};
use std::{
    env,
    fmt::{self, Debug, Formatter},
    path::PathBuf,
    sync::Arc,
};

/// The promisor: the repository that has everything, reached when it is first needed.
pub struct RemotePromisor {
    repo: PathBuf,
    remote: Remote,
    engine: Arc<dyn Engine>,
    there: Mutex<Option<(Repo, Box<dyn Peer>)>>,
}

impl Debug for RemotePromisor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("remote", &self.remote.url).finish_non_exhaustive()
    }
}

/// Gives a partial repository its promisor, which fetches missing objects.
pub fn completed(repo: Repo, engine: &Arc<dyn Engine>) -> Repo {
    let partial = repo.config().remotes().into_values().find(|r| r.partial);
    match (partial, repo.common_dir().map(PathBuf::from)) {
        (Some(remote), Some(dir)) => repo.with_promisor(Arc::new(RemotePromisor {
            repo: dir,
            remote,
            engine: engine.clone(),
            there: Mutex::default(),
        })),
        _ => repo,
    }
}

impl Promisor for RemotePromisor {
    fn supply(&self, ids: &[Id]) -> Result<()> {
        // One at a time: a thread that had to wait finds most of what it wanted here.
        let mut there = self.there.lock();
        let (repo, peer) = match &mut *there {
            Some(there) => there,
            empty => {
                // A separate handle on the same storage: the other one is waiting for these objects.
                let repo = Repo::open(&self.repo, self.engine.clone())?.without_index();
                let peer = open(&self.remote.url, self.engine.clone(), &env::temp_dir(), None);
                let unreached = |e| {
                    let message = format!("this repository is partial, and what is wanted is not in it: {e}");
                    RepoError::user(message, format!("it is at {}", self.remote.url))
                };
                empty.insert((repo, peer.map_err(unreached)?))
            }
        };
        let want = Want { objects: ids.to_vec(), partial: true, ..Want::default() };
        let received = receive(repo, &**peer, want, &Silent);
        received.map(drop).map_err(|e| self.asked(e))
    }
}

impl RemotePromisor {
    /// Adds to the error which repository was asked.
    fn asked(&self, error: RepoError) -> RepoError {
        let url = &self.remote.url;
        match error {
            // Of the same kind: of a version that was pruned there it is told that it was.
            RepoError::NotFound { what, name } => {
                RepoError::not_found(what, format!("{name} (asked {url}, of which this repository is a partial clone)"))
            }
            RepoError::User { message, hint } => RepoError::user(
                format!("this repository is partial, and what is wanted is not in it; asked {url}: {message}"),
                hint,
            ),
            RepoError::Corrupt { what, reason } => RepoError::corrupt(
                format!("{what}, as it came from {url},"),
                format!("{reason}; nothing of it was taken in here: run `mdl fsck` there"),
            ),
            error => error,
        }
    }
}
