//! Registry of served repositories, `owner/name`: finds, creates, opens them and keeps them open while in use.

mod freshness;
mod home;
mod key;

pub use key::RepoKey;

pub(crate) use freshness::State;

use crate::{
    options::unserved,
    problem::{Problem, Result},
};
use freshness::Asked;
use home::Home;
use mdl_codec::Engine;
use mdl_repo::{DIR, Protection, Repo, RepoError, storage::network_file_system};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Owner of the only repository, where the served directory is one itself.
const LOCAL: &str = "local";
/// Longest part of a name: what the Hugging Face Hub takes.
const MAX_PART: usize = 96;

/// First parts of paths that are not owners.
const RESERVED: [&str; 10] =
    ["api", "assets", "datasets", "healthz", "login", "logout", "metrics", "models", "readyz", "spaces"];

/// A repository's name: `owner/name`, each of letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoName {
    owner: String,
    name: String,
}

impl RepoName {
    /// From its parts.
    pub fn new(owner: &str, name: &str) -> Result<RepoName> {
        if is_part(owner) && is_part(name) && !name.ends_with(".git") && !RESERVED.contains(&owner) {
            return Ok(RepoName { owner: owner.to_owned(), name: name.to_owned() });
        }
        let shown: String = format!("{owner}/{name}").chars().take(200).collect();
        Err(Problem::usage(format!("{shown:?} names no repository")).hint(
            "OWNER/NAME: letters, digits, '-', '_' and '.', not at the front, at most 96 each, and not .git at the end",
        ))
    }

    /// Who it belongs to.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Its name below the owner.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn is_part(part: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !part.is_empty()
        && part.len() <= MAX_PART
        && part.chars().all(fits)
        && !part.starts_with(['.', '-', '_'])
        && !part.ends_with('.')
        && !part.contains("..")
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl FromStr for RepoName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<RepoName> {
        let (owner, name) = text.split_once('/').unwrap_or(("", text));
        RepoName::new(owner, name)
    }
}

impl TryFrom<String> for RepoName {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<RepoName, String> {
        text.parse().map_err(|p: Problem| p.message)
    }
}

impl From<RepoName> for String {
    fn from(name: RepoName) -> String {
        name.to_string()
    }
}

#[derive(Debug)]
struct Opened {
    repo: Arc<Repo>,
    used: Instant,
    /// What it was opened as.
    state: State,
    /// Whether any change since would show in the state.
    settled: bool,
    /// Whether a `stat` of it waits for no other machine.
    is_on_this_machine: bool,
    asked: Asked,
}

/// The repositories of one directory, or of one bucket.
#[derive(Debug)]
pub struct Registry {
    home: Home,
    engine: Arc<dyn Engine>,
    protection: Protection,
    open: Mutex<HashMap<RepoName, Opened>>,
}

impl Registry {
    /// The repositories in `root/OWNER/NAME`; or, where `root` is a repository itself, that one as `local/NAME`. With
    /// `indexes` nothing is written to them: their indexes are below that directory.
    pub fn new(root: &Path, indexes: Option<PathBuf>, engine: Arc<dyn Engine>) -> Result<Registry> {
        let root = fs::canonicalize(root).map_err(unserved(root))?;
        let single = Repo::directory(&root).map(|_| single_name(&root));
        Ok(Registry {
            home: Home::Directory { root, single, indexes },
            engine,
            protection: Protection::default(),
            open: Mutex::default(),
        })
    }

    /// The repositories of a bucket, at `url/OWNER/NAME`; what is cached of them is below `indexes`.
    pub fn of_bucket(url: &str, indexes: PathBuf, read_only: bool, engine: Arc<dyn Engine>) -> Result<Registry> {
        let (home, protection) = (Home::bucket(url, indexes, read_only)?, Protection::default());
        Ok(Registry { home, engine, protection, open: Mutex::default() })
    }

    /// With rules that every move of a ref is held against.
    #[must_use]
    pub fn protected_by(mut self, protection: Protection) -> Registry {
        self.protection = protection;
        self
    }

    /// What commits are compressed with.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    fn load(&self, name: &RepoName) -> Result<Repo> {
        match self.home.open(name, &self.engine) {
            Err(RepoError::NotFound { .. }) => Err(missing(name)),
            Err(e) => Err(e.into()),
            Ok(mut repo) => {
                repo.guard_refs(self.protection.guard(&name.to_string()));
                // Read here, where a request may wait for the disk. Its errors are reported where it is needed.
                let _ = repo.identity();
                Ok(repo)
            }
        }
    }

    fn state(&self, name: &RepoName) -> Result<State> {
        self.home.state(name)?.ok_or_else(|| missing(name))
    }

    /// Opens a repository; one that is open is shared, as long as its directory and settings are what they were.
    pub fn open(&self, name: &RepoName) -> Result<Arc<Repo>> {
        self.open_with_state(name).map(|(repo, _)| repo)
    }

    /// As `open`, and what it was opened as.
    pub(crate) fn open_with_state(&self, name: &RepoName) -> Result<(Arc<Repo>, State)> {
        let fresh = self.state(name).and_then(|state| Ok((state, self.still_open(name, &state)?)));
        let state = match fresh {
            Ok((_, Some(found))) => return Ok(found),
            Ok((state, None)) => state,
            Err(gone) => {
                self.close(name);
                return Err(gone);
            }
        };
        self.close(name);
        let asked = Asked::now();
        let repo = Arc::new(self.load(name)?);
        let opened = Opened {
            settled: state.is_settled(),
            is_on_this_machine: repo.dir().is_some_and(|dir| network_file_system(dir).is_none()),
            repo,
            used: Instant::now(),
            state,
            asked,
        };
        let mut open = self.open.lock();
        // Another request may have opened it meanwhile: two handles would compete for the index.
        match open.get(name) {
            Some(other) if other.state.is_same(&state) => Ok((other.repo.clone(), other.state)),
            _ => {
                let repo = opened.repo.clone();
                open.insert(name.clone(), opened);
                Ok((repo, state))
            }
        }
    }

    /// Returns the open handle if a few `stat`s of a local disk show it is current; none: call [`Registry::open`],
    /// which may wait for a disk or a network.
    pub(crate) fn unchanged(&self, name: &RepoName) -> Option<(Arc<Repo>, State)> {
        let (repo, state) = {
            let mut open = self.open.lock();
            let found = open.get_mut(name).filter(|o| o.settled && o.is_on_this_machine)?;
            found.used = Instant::now();
            (found.repo.clone(), found.state)
        };
        state.holds_in(repo.dir()?).then_some((repo, state))
    }

    /// The open handle, if its directory is in this state and its settings are those that are stored.
    fn still_open(&self, name: &RepoName, state: &State) -> Result<Option<(Arc<Repo>, State)>> {
        let repo = {
            let mut open = self.open.lock();
            let Some(found) = open.get_mut(name).filter(|o| o.state.is_same(state)) else {
                return Ok(None);
            };
            found.used = Instant::now();
            let must_read = match self.home {
                Home::Directory { .. } => !found.settled,
                Home::Bucket { .. } => found.asked.must_ask(),
            };
            if !must_read {
                return Ok(Some((found.repo.clone(), found.state)));
            }
            found.repo.clone()
        };
        let asked = Instant::now();
        let stored = repo.stored_config();
        if let Some(found) = self.open.lock().get_mut(name) {
            found.asked.asked(stored.is_ok().then_some(asked));
            found.settled = state.is_settled();
        }
        let same = stored? == *repo.config();
        Ok(same.then_some((repo, *state)))
    }

    /// Drops a repository's handle, which frees its index for the next one.
    fn close(&self, name: &RepoName) {
        let closed = self.open.lock().remove(name);
        if let Some(closed) = closed {
            closed.repo.odb().release_index();
        }
    }

    /// Makes a repository.
    pub fn create(&self, name: &RepoName, branch: &str) -> Result<Arc<Repo>> {
        if self.home.single().is_some() {
            return Err(Problem::forbidden("the served directory is one repository; it takes no others")
                .hint("serve the directory above the repositories' owners"));
        }
        match self.home.create(name, branch, &self.engine)? {
            true => self.open(name),
            false => Err(Problem::conflict(format!("{name} exists already")).code("RepoExists")),
        }
    }

    /// Changes settings of a repository; returns it as it is opened anew with them.
    pub fn configure(&self, name: &RepoName, settings: &[(&str, Option<&str>)]) -> Result<Arc<Repo>> {
        let mut repo = self.load(name)?;
        for (key, value) in settings {
            repo.set_config(key, *value)?;
        }
        self.close(name);
        self.open(name)
    }

    /// All repositories there are, by name.
    pub fn list(&self) -> Result<Vec<RepoName>> {
        self.home.list()
    }

    /// Directories that are repositories, but not in an owner's directory: they are not served.
    pub fn ownerless(&self) -> Result<Vec<String>> {
        self.home.ownerless()
    }

    /// Closes repositories without recent requests, so that other processes have the indexes; settings are read anew
    /// next time.
    pub fn release(&self, idle: Duration) {
        self.open.lock().retain(|_, o| o.used.elapsed() < idle || Arc::strong_count(&o.repo) > 1);
    }
}

fn missing(name: &RepoName) -> Problem {
    Problem::not_found("repository", name).code("RepoNotFound")
}

fn single_name(root: &Path) -> RepoName {
    let named = if root.file_name().is_some_and(|n| n == DIR) { root.parent().unwrap_or(root) } else { root };
    let name = named.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    RepoName::new(LOCAL, name).unwrap_or(RepoName { owner: LOCAL.to_owned(), name: "model".to_owned() })
}

fn names_in(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).map_err(|e| Problem::internal(format!("cannot list {}: {e}", dir.display())))?;
    let dirs = entries.flatten().filter(|e| e.path().is_dir());
    Ok(dirs.filter_map(|e| e.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_root() {
        for good in ["ada/gpt", "a/b.c-d_e", "A1/2"] {
            assert_eq!(good.parse::<RepoName>().expect(good).to_string(), good);
        }
        for bad in [
            "",
            "a",
            "a/",
            "/b",
            "../b",
            "a/..",
            "a/b/c",
            ".mdl-serve/x",
            "a/.hidden",
            "a/b.git",
            "a/-x",
            "a/b c",
            "a/b\0",
            "a/é",
            "a/x..y",
            "api/v1",
        ] {
            assert!(bad.parse::<RepoName>().is_err(), "{bad:?}");
        }
    }
}
