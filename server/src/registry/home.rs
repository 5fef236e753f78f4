//! Where the served repositories are: directories below a root, or prefixes of a bucket.
//!
//! A bucket has no directories to list: a repository that a server made or opened there is noted under a key of its
//! own. Any number of servers may share one bucket.

use crate::{
    problem::{Problem, Result},
    registry::{RepoName, State, names_in},
};
use mdl_codec::Engine;
use mdl_remote::place::Place;
use mdl_repo::{Missing, Repo, RepoError, storage::Prefix};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Below it, OWNER/NAME of every repository of a bucket. No owner's name begins with a dot.
const NOTED: Prefix = Prefix::fixed(".mdl-serve/repos/");

/// A directory or a prefix of a bucket with repositories in it, as `OWNER/NAME`.
#[derive(Debug)]
pub(super) enum Home {
    Directory {
        root: PathBuf,
        /// The root is this one repository.
        single: Option<RepoName>,
        /// Below it, the indexes of repositories that are only read.
        indexes: Option<PathBuf>,
    },
    Bucket {
        place: Place,
        /// Below it, what is known of each repository's packs: a cache.
        indexes: PathBuf,
        read_only: bool,
    },
}

fn place_of(place: &Place, name: &RepoName) -> Place {
    match place {
        Place::Bucket { kind, name: bucket, prefix } => Place::Bucket {
            kind: *kind,
            name: bucket.clone(),
            prefix: format!("{prefix}/{name}").trim_start_matches('/').to_owned(),
        },
        other => other.clone(),
    }
}

impl Home {
    /// The bucket that an operator named.
    pub fn bucket(url: &str, indexes: PathBuf, read_only: bool) -> Result<Home> {
        match Place::parse(url)? {
            place @ Place::Bucket { .. } => Ok(Home::Bucket { place, indexes, read_only }),
            _ => Err(Problem::usage("--storage wants a bucket")
                .hint("s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX")),
        }
    }

    /// The repository that the served directory is itself.
    pub fn single(&self) -> Option<&RepoName> {
        match self {
            Home::Directory { single, .. } => single.as_ref(),
            Home::Bucket { .. } => None,
        }
    }

    /// Opens a repository. `NotFound`: there is none.
    pub fn open(&self, name: &RepoName, engine: &Arc<dyn Engine>) -> std::result::Result<Repo, RepoError> {
        match self {
            Home::Directory { root, indexes, single } => {
                let at =
                    path(root, single.as_ref(), name).ok_or_else(|| RepoError::not_found(Missing::Repository, name))?;
                let opened = match indexes {
                    None => Repo::open(&at, engine.clone()),
                    Some(indexes) => Repo::open_with_index(&at, engine.clone(), below(indexes, name)),
                };
                opened.map(Repo::from_elsewhere).inspect_err(|error| tell_of_link(root, &at, error))
            }
            Home::Bucket { place, indexes, .. } => {
                let storage = place_of(place, name).storage()?;
                let index = below(indexes, name);
                let repo = Repo::with_storage(storage, engine.clone(), Some(index), None, None)?;
                self.note(name)?;
                Ok(repo)
            }
        }
    }

    /// What a repository is now; none: there is none. A bucket is not asked.
    pub fn state(&self, name: &RepoName) -> Result<Option<State>> {
        match self {
            Home::Directory { root, single, .. } => {
                path(root, single.as_ref(), name).map_or(Ok(None), |at| State::from_path(&at))
            }
            Home::Bucket { .. } => Ok(Some(State::of_bucket())),
        }
    }

    /// Makes a repository; false if it is there already.
    pub fn create(&self, name: &RepoName, branch: &str, engine: &Arc<dyn Engine>) -> Result<bool> {
        match self {
            Home::Directory { root, .. } => {
                let at = below(root, name);
                Ok(Repo::directory(&at).is_none() && Repo::init(&at, true, branch, engine.clone())?.1)
            }
            Home::Bucket { place, .. } => {
                let storage = place_of(place, name).storage()?;
                match Repo::with_storage(storage.clone(), engine.clone(), None, None, None) {
                    Ok(_) => return Ok(false),
                    Err(RepoError::NotFound { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
                mdl_repo::check_ref_name(branch)?;
                Repo::init_storage(storage, branch, engine.clone())?;
                self.note(name)?;
                Ok(true)
            }
        }
    }

    pub fn list(&self) -> Result<Vec<RepoName>> {
        let mut out = Vec::new();
        match self {
            Home::Directory { single: Some(single), .. } => out.push(single.clone()),
            Home::Directory { root, .. } => {
                for owner in names_in(root)? {
                    for name in names_in(&root.join(&owner)).unwrap_or_default() {
                        match RepoName::new(&owner, &name) {
                            Ok(found) if Repo::directory(&below(root, &found)).is_some() => out.push(found),
                            _ => {}
                        }
                    }
                }
            }
            Home::Bucket { place, .. } => {
                let keys = place.storage()?.keys(&NOTED)?;
                let names = keys.iter().filter_map(|k| k.strip_prefix(NOTED.as_str())?.parse().ok());
                out.extend(names);
            }
        }
        out.sort();
        Ok(out)
    }

    /// Directories in the root that are repositories, where an owner's is wanted: they are not served.
    pub fn ownerless(&self) -> Result<Vec<String>> {
        let Home::Directory { root, single: None, .. } = self else {
            return Ok(Vec::new());
        };
        let mut found: Vec<String> =
            names_in(root)?.into_iter().filter(|name| Repo::directory(&root.join(name)).is_some()).collect();
        found.sort();
        Ok(found)
    }

    fn note(&self, name: &RepoName) -> std::result::Result<(), RepoError> {
        if let Home::Bucket { place, read_only: false, .. } = self {
            let (storage, key) = (place.storage()?, NOTED.key(&name.to_string())?);
            if storage.size(&key)?.is_none() {
                storage.put(&key, b"1\n")?;
            }
        }
        Ok(())
    }
}

/// Where a repository is; none: the root is another one.
fn path(root: &Path, single: Option<&RepoName>, name: &RepoName) -> Option<PathBuf> {
    match single {
        Some(single) => (single == name).then(|| root.to_path_buf()),
        None => Some(below(root, name)),
    }
}

/// Where a repository, or its index, is. An index is made when there is something to keep: any name may be asked for.
fn below(dir: &Path, name: &RepoName) -> PathBuf {
    dir.join(name.owner()).join(name.name())
}

/// Logs if a repository that cannot be opened is a link out of the root: the sandbox allows only links that were there
/// at the start.
fn tell_of_link(root: &Path, at: &Path, error: &RepoError) {
    let is_refused = matches!(error, RepoError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied);
    if is_refused && at.canonicalize().is_ok_and(|target| !target.starts_with(root)) {
        tracing::warn!(
            path = %at.display(),
            "a repository leads out of the served directory: if the link was made after the server started, start it again"
        );
    }
}
