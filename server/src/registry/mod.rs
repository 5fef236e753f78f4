//! The repositories that are served: `owner/name`, found, made, kept open while they are used. Neighbours: `home` says where they
//! are, every route asks for one. It must not know who may see which.

mod home;
mod key;

pub use key::RepoKey;

use crate::{
    options::unserved,
    problem::{Problem, Result},
};
use home::Home;
use mdl_codec::Engine;
use mdl_repo::{DIR, Repo, RepoError};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Owner of the only repository, where the served directory is one itself.
const LOCAL: &str = "local";
/// Longest part of a name: what the Hugging Face Hub takes.
const MAX_PART: usize = 96;

/// First parts of paths that are not owners.
const RESERVED: [&str; 10] = [
    "api", "assets", "datasets", "healthz", "login", "logout", "metrics", "models", "readyz", "spaces",
];

/// A repository's name: `owner/name`, each of letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoName {
    owner: String,
    name: String,
}

impl RepoName {
    /// From its parts.
    ///
    /// # Errors
    /// Parts that are no directory names everywhere.
    pub fn new(owner: &str, name: &str) -> Result<RepoName> {
        if is_part(owner) && is_part(name) && !name.ends_with(".git") && !RESERVED.contains(&owner) {
            return Ok(RepoName {
                owner: owner.to_owned(),
                name: name.to_owned(),
            });
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

struct Opened {
    repo: Arc<Repo>,
    used: Instant,
}

/// The repositories of one directory, or of one bucket.
pub struct Registry {
    home: Home,
    engine: Arc<dyn Engine>,
    /// The served directory is this one repository.
    single: Option<(RepoName, PathBuf)>,
    open: Mutex<HashMap<RepoName, Opened>>,
}

impl Registry {
    /// The repositories in `root/OWNER/NAME`; or, where `root` is a repository itself, that one as `local/NAME`.
    ///
    /// # Errors
    /// No such directory.
    pub fn new(root: &Path, engine: Arc<dyn Engine>) -> Result<Registry> {
        let root = fs::canonicalize(root).map_err(unserved(root))?;
        let single = is_repo(&root).then(|| (single_name(&root), root.clone()));
        Ok(Registry {
            home: Home::Directory(root),
            engine,
            single,
            open: Mutex::default(),
        })
    }

    /// The repositories of a bucket, at `url/OWNER/NAME`; what is cached of them is below `indexes`.
    ///
    /// # Errors
    /// The URL is none of a bucket.
    pub fn of_bucket(url: &str, indexes: PathBuf, engine: Arc<dyn Engine>) -> Result<Registry> {
        Ok(Registry {
            home: Home::bucket(url, indexes)?,
            engine,
            single: None,
            open: Mutex::default(),
        })
    }

    /// What commits are compressed with.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<RepoName, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, name: &RepoName) -> Result<Repo> {
        let missing = || Problem::not_found("repository", name).code("RepoNotFound");
        let found = match &self.single {
            Some((single, root)) if single == name => Repo::open(root, self.engine.clone()).map(Repo::from_elsewhere),
            Some(_) => return Err(missing()),
            None => self.home.open(name, &self.engine),
        };
        match found {
            Err(RepoError::NotFound { .. }) => Err(missing()),
            Err(e) => Err(e.into()),
            Ok(repo) => {
                // Asked for here, where a request may wait for the disk. What is wrong with it is told to those who need it.
                let _ = repo.identity();
                Ok(repo)
            }
        }
    }

    /// Opens a repository; one that is open is shared.
    ///
    /// # Errors
    /// There is none of the name; it cannot be opened.
    pub fn open(&self, name: &RepoName) -> Result<Arc<Repo>> {
        if let Some(found) = self.opened().get_mut(name) {
            found.used = Instant::now();
            return Ok(found.repo.clone());
        }
        let repo = Arc::new(self.load(name)?);
        let mut open = self.opened();
        let used = Instant::now();
        // Another request may have been quicker: two handles would fight over the index.
        let kept = open.entry(name.clone()).or_insert(Opened { repo, used });
        Ok(kept.repo.clone())
    }

    /// Makes a repository.
    ///
    /// # Errors
    /// It exists; the served directory is one repository; the medium failed.
    pub fn create(&self, name: &RepoName, branch: &str) -> Result<Arc<Repo>> {
        if self.single.is_some() {
            return Err(
                Problem::forbidden("the served directory is one repository; it takes no others")
                    .hint("serve the directory above the repositories' owners"),
            );
        }
        match self.home.create(name, branch, &self.engine)? {
            true => self.open(name),
            false => Err(Problem::conflict(format!("{name} exists already")).code("RepoExists")),
        }
    }

    /// Changes settings of a repository; returns it as it is opened anew with them.
    ///
    /// # Errors
    /// As `open`; a setting that is none; the medium failed.
    pub fn configure(&self, name: &RepoName, settings: &[(&str, Option<&str>)]) -> Result<Arc<Repo>> {
        let mut repo = self.load(name)?;
        for (key, value) in settings {
            repo.set_config(key, *value)?;
        }
        self.opened().remove(name);
        self.open(name)
    }

    /// All repositories there are, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<RepoName>> {
        match &self.single {
            Some((single, _)) => Ok(vec![single.clone()]),
            None => self.home.list(),
        }
    }

    /// Lets go of what nobody asked for lately, so that other processes have the indexes; settings are read anew next time.
    pub fn rest(&self, idle: Duration) {
        self.opened()
            .retain(|_, o| o.used.elapsed() < idle || Arc::strong_count(&o.repo) > 1);
    }
}

fn is_repo(path: &Path) -> bool {
    let holds = |dir: &Path| dir.join("format").is_file() && dir.join("HEAD").is_file();
    holds(&path.join(DIR)) || holds(path)
}

fn single_name(root: &Path) -> RepoName {
    let named = if root.file_name().is_some_and(|n| n == DIR) {
        root.parent().unwrap_or(root)
    } else {
        root
    };
    let name = named.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    RepoName::new(LOCAL, name).unwrap_or(RepoName {
        owner: LOCAL.to_owned(),
        name: "model".to_owned(),
    })
}

fn names_in(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).map_err(|e| Problem::internal(format!("cannot list {}: {e}", dir.display())))?;
    let dirs = entries.flatten().filter(|e| e.path().is_dir());
    Ok(dirs.filter_map(|e| e.file_name().into_string().ok()).collect())
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
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
