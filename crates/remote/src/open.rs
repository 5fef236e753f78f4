//! Opens the peer of a transfer by its URL.

use crate::{credentials::token_for, direct::DirectPeer, http::HttpPeer, peer::Peer, place::Place};
use mdl_codec::Engine;
use mdl_repo::{Repo, RepoError, Result};
use std::{path::Path, sync::Arc};

/// The repository at a place whose bytes can be reached: a directory, a bucket.
pub fn open_repo(place: &Place, engine: Arc<dyn Engine>) -> Result<Repo> {
    match place {
        // Its index is for processes on its own machine. The user of its work tree, if it has one, is another one.
        Place::Local(path) => Repo::open(path, engine).map(|repo| repo.from_elsewhere().without_index()),
        place => Repo::with_storage(place.storage()?, engine, None, None, None).map_err(|e| name_place(e, place)),
    }
}

/// The other side. What is on its way there is put together in `scratch`. `create`: where a bucket has no repository
/// yet one is made, with this branch.
pub fn open(url: &str, engine: Arc<dyn Engine>, scratch: &Path, create: Option<&str>) -> Result<Box<dyn Peer>> {
    let place = Place::parse(url)?;
    if let Place::Http(url) = &place {
        return Ok(Box::new(HttpPeer::new(url.as_str(), token_for(url)?)?));
    }
    let repo = match open_repo(&place, engine.clone()) {
        Err(RepoError::NotFound { .. }) if create.is_some() && matches!(place, Place::Bucket { .. }) => {
            Repo::init_storage(place.storage()?, create.unwrap_or("main"), engine)?
        }
        opened => opened?,
    };
    Ok(Box::new(DirectPeer::new(repo, scratch)))
}

/// Says of a repository that is not there where it is not.
pub(crate) fn name_place(error: RepoError, place: &Place) -> RepoError {
    match error {
        RepoError::NotFound { what, .. } => RepoError::not_found(what, place),
        other => other,
    }
}
