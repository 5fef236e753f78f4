//! A repository on disk, as one process after another opens it.

use crate::model::{faults::Trigger, storage::Faulty};
use mdl_codec::{CpuEngine, Engine};
use mdl_remote::completed;
use mdl_repo::{DIR, Remote, Repo, RepoError, Result, storage::LocalStorage};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

static ENGINE: LazyLock<Arc<dyn Engine>> = LazyLock::new(|| Arc::new(CpuEngine::new()));

pub fn engine() -> Arc<dyn Engine> {
    ENGINE.clone()
}

/// Where a history runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// On a disk, where times tell of writes; else in memory.
    pub disk: bool,
    /// With an index, and so with states of files remembered.
    pub index: bool,
}

/// A repository on disk.
pub struct Real {
    pub dir: PathBuf,
    pub bare: bool,
    pub trigger: Trigger,
    pub repo: Repo,
    setup: Setup,
}

impl Real {
    pub fn make(dir: &Path, bare: bool, setup: Setup, origin: Option<&Remote>) -> Result<Real> {
        fs::create_dir_all(dir).map_err(RepoError::io("cannot make a directory"))?;
        let (mut made, _) = Repo::init(dir, bare, "main", engine())?;
        if let Some(remote) = origin {
            made.set_remote("origin", Some(remote))?;
        }
        made.odb().release_index();
        drop(made);
        Real::open(dir, bare, setup)
    }

    pub fn open(dir: &Path, bare: bool, setup: Setup) -> Result<Real> {
        let dir = fs::canonicalize(dir).map_err(RepoError::io("cannot open a directory"))?;
        let trigger = Trigger::default();
        Ok(Real { repo: open_repo(&dir, bare, setup, &trigger)?, dir, bare, trigger, setup })
    }

    /// As another process finds it.
    pub fn reopen(&mut self) -> Result<()> {
        self.repo.odb().release_index();
        self.repo = open_repo(&self.dir, self.bare, self.setup, &self.trigger)?;
        Ok(())
    }

    /// A handle for those who come from elsewhere.
    pub fn elsewhere(&self) -> Result<Repo> {
        let setup = Setup::default();
        open_repo(&self.dir, self.bare, setup, &self.trigger).map(|repo| repo.from_elsewhere().without_index())
    }

    /// Where the repository itself is.
    pub fn store(&self) -> PathBuf {
        store(&self.dir, self.bare)
    }
}

fn store(dir: &Path, bare: bool) -> PathBuf {
    if bare { dir.to_owned() } else { dir.join(DIR) }
}

fn open_repo(dir: &Path, bare: bool, setup: Setup, trigger: &Trigger) -> Result<Repo> {
    let store = store(dir, bare);
    let storage = Faulty::new(LocalStorage::new(&store), &store, trigger.clone());
    let index = setup.index.then(|| store.join("index"));
    let work = (!bare).then(|| dir.to_owned());
    let repo = Repo::with_storage(Arc::new(storage), engine(), index, Some(store), work)?;
    Ok(completed(repo, &engine()))
}
