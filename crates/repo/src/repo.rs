//! The `Repo` handle: finds, makes and opens a repository.

use crate::{
    config::{CACHE_SIZE, Config, FORMAT_KEY, Remote},
    identity,
    identity::Identity,
    linked::Link,
};
use mdl_codec::Engine;
use mdl_store::{
    Missing, Remedy, RepoError, Result, Store,
    cache::TensorCache,
    object_db::{Odb, Promisor},
    refs::{HEADS, Refs, WorkTreeBase},
    storage::{Key, LocalStorage, Split, Storage},
};
use std::{
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

pub use crate::linked::DIR;

/// File beside a work tree with its base version.
const BASE: &str = "base";
/// Directory beside the packs with decoded tensors.
const CACHE: &str = "cache";
const FORMAT: &[u8] = b"mdl repository 1\n";

/// A repository.
#[derive(Debug)]
pub struct Repo {
    store: Store,
    pub(crate) config: Config,
    /// Read on first use.
    pub(crate) identity: OnceLock<Identity>,
    /// Whether `commit.on_full` counts.
    pub(crate) waits_for_room: bool,
    /// Whether `commit.gpgSign` and `tag.gpgSign` count: the key is that of the user whose repository it is.
    pub(crate) signs: bool,
    work: Option<PathBuf>,
    /// Of a linked work tree: its link to the store.
    link: Option<Link>,
}

fn found(storage: Arc<dyn Storage>, branch: &str) -> Result<()> {
    Refs::new(storage.clone()).init_head(branch)?;
    storage.put(&Key::fixed("config"), b"")?;
    identity::make(&*storage)?;
    // Last: a storage is a repository once this key says so.
    storage.put(&FORMAT_KEY, FORMAT)
}

impl Deref for Repo {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl DerefMut for Repo {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl Repo {
    /// Makes a repository in `path/.mdl` (or, bare, in `path` itself); one that exists is opened and left as it is.
    /// Returns whether it was made.
    ///
    /// # Errors
    /// An I/O error; a repository of a newer format.
    pub fn init(path: &Path, bare: bool, branch: &str, engine: Arc<dyn Engine>) -> Result<(Repo, bool)> {
        mdl_store::refs::check_ref_name(branch)?;
        let dir = if bare { path.to_owned() } else { path.join(DIR) };
        fs::create_dir_all(&dir).map_err(RepoError::io(format!("cannot create {}", dir.display())))?;
        let storage = LocalStorage::new(&dir);
        let fresh = storage.get(&FORMAT_KEY)?.is_none();
        if fresh {
            if bare && fs::read_dir(&dir).is_ok_and(|mut d| d.next().is_some()) {
                return Err(RepoError::user(
                    format!("{} is not empty", dir.display()),
                    "a bare repository wants a directory of its own",
                ));
            }
            found(Arc::new(storage), branch)?;
        }
        let repo = Repo::open(path, engine)?;
        if fresh {
            repo.refs().work_tree_base().inspect(|note| note.end(None));
        }
        Ok((repo, fresh))
    }

    /// Opens the repository in `path/.mdl`, or `path` itself if that is one.
    ///
    /// # Errors
    /// There is none; a newer format; an I/O error.
    pub fn open(path: &Path, engine: Arc<dyn Engine>) -> Result<Repo> {
        Repo::open_at(path, engine, None)
    }

    /// As `open`, with the index in another directory, so that nothing is written to a repository that is only read.
    pub fn open_with_index(path: &Path, engine: Arc<dyn Engine>, index: PathBuf) -> Result<Repo> {
        let repo = Repo::open_at(path, engine, Some(index))?;
        if let Some(derived) = identity::derive(repo.storage(), repo.dir())? {
            repo.identity.get_or_init(|| derived);
        }
        Ok(repo)
    }

    fn open_at(path: &Path, engine: Arc<dyn Engine>, index: Option<PathBuf>) -> Result<Repo> {
        let around = path.file_name().filter(|n| *n == DIR && path.is_file()).and_then(|_| path.parent());
        let linked = around.unwrap_or(path);
        if let Some(link) = Link::read(linked)? {
            return Repo::open_linked(linked, link, engine, index);
        }
        let dir = Repo::directory(path).ok_or_else(|| RepoError::not_found(Missing::Repository, path.display()))?;
        // Named by its own directory, `x/.mdl` still has its work tree around it.
        let work = match dir == path {
            false => Some(path.to_owned()),
            true => path.file_name().filter(|n| *n == DIR).and_then(|_| path.parent()).map(Path::to_owned),
        };
        let dir = fs::canonicalize(&dir).map_err(RepoError::io(format!("cannot open {}", dir.display())))?;
        let work = work.map(|w| if w.as_os_str().is_empty() { PathBuf::from(".") } else { w });
        let work = work.map(fs::canonicalize).transpose().map_err(RepoError::io("cannot open the work tree"))?;
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(&dir));
        let is_own = index.is_none();
        let index = index.unwrap_or_else(|| dir.join("index"));
        let mut repo = Repo::with_storage(storage, engine, Some(index), Some(dir), work)?;
        if is_own {
            repo.make_cache();
        }
        Ok(repo)
    }

    /// A cache of decoded tensors of the size that is set.
    fn make_cache(&mut self) {
        if let Some(dir) = self.dir().map(|d| d.join(CACHE)) {
            let size = self.config.cache_size(&dir);
            self.odb_mut().set_cache(TensorCache::new(dir, size));
        }
    }

    fn open_linked(work: &Path, link: Link, engine: Arc<dyn Engine>, index: Option<PathBuf>) -> Result<Repo> {
        let work = fs::canonicalize(work).map_err(RepoError::io(format!("cannot open {}", work.display())))?;
        let state = link.state();
        if !state.join("HEAD").is_file() {
            return Err(RepoError::user(
                format!("{} is a work tree that {} does not know", work.display(), link.store.display()),
                "it was pruned, or the repository was moved: make another work tree and move the files there",
            ));
        }
        if link.place()?.as_ref() != Some(&work) {
            // It was moved. Where the store cannot be written to, that is not noted.
            let _ = link.set_place(&work);
        }
        let shared: Arc<dyn Storage> = Arc::new(LocalStorage::new(&link.store));
        let storage = Arc::new(Split::new(shared.clone(), &state));
        let is_own = index.is_none();
        let index = index.unwrap_or_else(|| state.join("index"));
        let mut repo = Repo::with_storage(storage, engine, Some(index), Some(state), Some(work))?;
        repo.refs_mut().hold_main_head(shared);
        if is_own {
            let dir = link.store.join(CACHE);
            let size = repo.config.cache_size(&link.store);
            repo.odb_mut().set_cache(TensorCache::new(dir, size));
        }
        let name = link.name.clone();
        repo.link = Some(link);
        repo.holding_head_by(&name)
    }

    /// Whether a repository, or a linked work tree of one, is at a path.
    pub fn is_at(path: &Path) -> bool {
        Repo::directory(path).is_some() || path.join(DIR).is_file()
    }

    /// The directory of the repository at a path: `path/.mdl`, or `path` itself; none: there is no repository.
    pub fn directory(path: &Path) -> Option<PathBuf> {
        let inner = path.join(DIR);
        if inner.join(FORMAT_KEY.as_str()).is_file() {
            return Some(inner);
        }
        (path.join(FORMAT_KEY.as_str()).is_file() && path.join("HEAD").is_file()).then(|| path.to_owned())
    }

    /// Opens the repository whose work tree holds `start`.
    ///
    /// # Errors
    /// There is none up to the root; otherwise as `open`.
    pub fn discover(start: &Path, engine: Arc<dyn Engine>) -> Result<Repo> {
        let start = fs::canonicalize(start).map_err(RepoError::io(format!("cannot open {}", start.display())))?;
        match start.ancestors().find(|path| Repo::is_at(path)) {
            Some(path) => Repo::open(path, engine),
            None => {
                Err(RepoError::not_found(Missing::Repository, format!("{} or any directory above it", start.display())))
            }
        }
    }

    /// A repository over any storage that holds one.
    ///
    /// # Errors
    /// A newer format, or none; an I/O error.
    pub fn with_storage(
        storage: Arc<dyn Storage>,
        engine: Arc<dyn Engine>,
        index: Option<PathBuf>,
        dir: Option<PathBuf>,
        work: Option<PathBuf>,
    ) -> Result<Repo> {
        match storage.get(&FORMAT_KEY)? {
            Some(f) if f == FORMAT => {}
            Some(_) => {
                return Err(RepoError::user(
                    "the repository's format is not one this program reads",
                    "it was made by a newer mdl: update this one",
                ));
            }
            None => return Err(RepoError::not_found(Missing::Repository, "in this storage")),
        }
        let config = Config::load(&*storage)?;
        let mut odb = Odb::new(storage.clone(), engine, index);
        odb.set_partial(config.is_partial());
        let mut refs = Refs::new(storage.clone());
        refs.note_moves(dir.as_ref().filter(|_| work.is_some()).map(|d| WorkTreeBase::new(d.join(BASE))));
        Ok(Repo {
            store: Store::new(storage, odb, refs, dir),
            config,
            identity: OnceLock::new(),
            waits_for_room: true,
            signs: true,
            work,
            link: None,
        })
    }

    /// Makes a repository in an empty storage.
    pub fn init_storage(storage: Arc<dyn Storage>, branch: &str, engine: Arc<dyn Engine>) -> Result<Repo> {
        found(storage.clone(), branch)?;
        Repo::with_storage(storage, engine, None, None, None)
    }

    /// The work tree; a bare repository has none.
    pub fn work(&self) -> Option<&Path> {
        self.work.as_deref()
    }

    /// The repository's own directory, where it has one: of a linked work tree that of the store that it shares, where
    /// [`Store::dir`] is what is its own.
    pub fn common_dir(&self) -> Option<&Path> {
        let own = || self.dir().filter(|dir| dir.join(FORMAT_KEY.as_str()).is_file());
        self.link.as_ref().map(|link| link.store.as_path()).or_else(own)
    }

    /// Whether this handle works in the work tree of this name (none: the main one).
    pub(crate) fn is_in(&self, name: Option<&str>) -> bool {
        self.work.is_some() && self.link.as_ref().map(|link| link.name.as_str()) == name
    }

    /// The work tree.
    pub fn need_work(&self) -> Result<&Path> {
        self.work().ok_or_else(|| RepoError::user("a bare repository has no work tree", Remedy::NamePath))
    }

    /// Holds a detached HEAD by `refs/worktrees/NAME` too: for a work tree whose HEAD is not in the storage that it
    /// shares.
    pub fn holding_head_by(mut self, name: &str) -> Result<Repo> {
        self.refs_mut().hold_head_by(name)?;
        Ok(self)
    }

    /// Does without the work tree, and never waits for disk space: for a process that works on the repository from
    /// elsewhere, such as a server. Its ref moves do not count as the work tree's user's.
    #[must_use]
    pub fn from_elsewhere(mut self) -> Repo {
        self.work = None;
        self.waits_for_room = false;
        self.signs = false;
        self.refs_mut().note_moves(None);
        self
    }

    /// Never waits for disk space, whatever `commit.on_full` says: for callers that wait in their own way.
    #[must_use]
    pub fn without_waiting_for_room(mut self) -> Repo {
        self.waits_for_room = false;
        self
    }

    /// Does without the index for good (see [`Odb::forgo_index`]).
    #[must_use]
    pub fn without_index(mut self) -> Repo {
        self.odb_mut().forgo_index();
        self
    }

    /// Sets the promisor from which missing objects of this partial repository are fetched when needed.
    #[must_use]
    pub fn with_promisor(mut self, promisor: Arc<dyn Promisor>) -> Repo {
        self.odb_mut().set_promisor(promisor);
        self
    }

    /// The repository's identity (see [`Identity`]).
    ///
    /// # Errors
    /// The identity is damaged, or cannot be stored where nothing else tells the repository from others; an I/O error.
    pub fn identity(&self) -> Result<Identity> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let found = identity::identify(self.storage(), self.dir())?;
        Ok(*self.identity.get_or_init(|| found))
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings as stored now; [`Repo::config`] has those that it was opened with.
    pub fn stored_config(&self) -> Result<Config> {
        Config::load(self.storage())
    }

    /// Changes a setting of the repository. What a cache holds beyond a new size of it is removed.
    pub fn set_config(&mut self, key: &str, value: Option<&str>) -> Result<()> {
        self.config.set(self.store.storage(), key, value)?;
        if key == CACHE_SIZE && self.odb().cache().is_some() {
            self.make_cache();
            self.odb().cache().inspect(|cache| cache.keep_to_size());
        }
        Ok(())
    }

    /// Adds (or with `None` removes) a remote.
    pub fn set_remote(&mut self, name: &str, remote: Option<&Remote>) -> Result<()> {
        self.change_remote(name, &|_| Ok(remote.cloned()))
    }

    /// Changes a remote, or (where `f` gives none) removes it. `f` gets the remote as stored at the time of the change.
    pub fn change_remote(&mut self, name: &str, f: &dyn Fn(Option<Remote>) -> Result<Option<Remote>>) -> Result<()> {
        self.config.change_remote(self.store.storage(), name, f)?;
        let partial = self.config.is_partial();
        self.odb_mut().set_partial(partial);
        Ok(())
    }

    /// Full name of the branch HEAD is on.
    pub fn head_branch(&self) -> Result<Option<String>> {
        Ok(match self.refs().head()? {
            mdl_store::refs::Head::Branch(b) => Some(format!("{HEADS}{b}")),
            mdl_store::refs::Head::Detached(_) => None,
        })
    }
}
