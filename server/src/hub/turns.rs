//! Commits to one repository, one after the other, so that none of many has to start over and over. Neighbours: `commit`. Other
//! processes may commit all the same: it must not be what correctness rests on.

use mdl_repo::Repo;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::OwnedMutexGuard;

type Lock = tokio::sync::Mutex<()>;

/// Whose turn it is, for each repository.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<PathBuf, Weak<Lock>>>);

impl Turns {
    /// Waits for this caller's turn, which lasts until the guard is dropped.
    pub(super) async fn take(&self, repo: &Repo) -> OwnedMutexGuard<()> {
        self.of(repo).lock_owned().await
    }

    fn of(&self, repo: &Repo) -> Arc<Lock> {
        let dir = repo.dir().map(PathBuf::from).unwrap_or_default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = all.get(&dir).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(Lock::default());
        all.insert(dir, Arc::downgrade(&lock));
        lock
    }
}
