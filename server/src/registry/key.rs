//! Key of per-repository server state: the repository's name and its identity.

use crate::{problem::Result, registry::RepoName};
use mdl_repo::{ErrorKind, Identity, Repo};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A repository at its name. A successor of the same name has another identity; a copy of the same identity has another
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoKey {
    /// What it is called.
    pub name: RepoName,
    /// Which one it is.
    pub identity: Identity,
}

impl RepoKey {
    /// Of an open repository.
    pub fn new(name: &RepoName, repo: &Repo) -> Result<RepoKey> {
        let identity = match repo.identity() {
            // A bucket from before that may only be read. One that replaces it is made with an identity.
            Err(e) if repo.dir().is_none() && e.kind() == ErrorKind::User => {
                Identity::derived_from(name.to_string().as_bytes())
            }
            found => found?,
        };
        let name = name.clone();
        Ok(RepoKey { name, identity })
    }

    /// Its directory below another.
    pub fn dir(&self, below: &Path) -> PathBuf {
        below.join(self.name.owner()).join(self.name.name()).join(self.identity.to_string())
    }
}

impl fmt::Display for RepoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
