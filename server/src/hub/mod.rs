//! What the Hugging Face clients and git-lfs ask for: their routes over our repositories. Neighbours: `content` hands files out,
//! `incoming` takes them in, `mdl-repo` commits. It must not know our own API.
//!
//! Commit ids go out cut to 40 hex digits: that is what these clients take for a commit that cannot change, and the only form in
//! which they let a parent commit be named. Every revision that is asked for may be such a prefix.

mod changes;
mod commit;
mod files;
mod history;
mod info;
mod lfs;
mod links;
mod object;
mod preupload;
mod raw;
mod refs;
mod repos;
mod resolve;
mod site;
mod tree;

pub(crate) use files::sha256_of;

use crate::{app::App, problem::Result};
use axum::{
    Router,
    routing::{get, post},
};
use links::Links;
use mdl_objects::Id;
use std::path::Path;

/// Hex digits of an id that these clients see.
const DIGITS: usize = 40;

/// What the routes share.
#[derive(Debug)]
pub struct Hub {
    links: Links,
}

impl Hub {
    /// With its part of the server's own directory.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub fn new(state: &Path) -> Result<Hub> {
        Ok(Hub {
            links: Links::new(state)?,
        })
    }
}

/// An id as these clients see it.
fn short(id: &Id) -> String {
    let mut hex = id.to_hex();
    hex.truncate(DIGITS);
    hex
}

/// Routes.
pub fn routes() -> Router<App> {
    const MODEL: &str = "/api/models/{owner}/{name}";
    const LFS: &str = "/{owner}/{name}/info/lfs";
    let model = |rest: &str| format!("{MODEL}{rest}");
    let lfs = |rest: &str| format!("{LFS}{rest}");
    Router::new()
        .route("/api/whoami-v2", get(repos::who_am_i))
        .route("/api/repos/create", post(repos::create))
        .route("/api/validate-yaml", post(repos::validate))
        .route("/api/models", get(info::list))
        .route("/api/models/{owner}", get(info::without_owner))
        .route(MODEL, get(info::latest))
        .route(&model("/revision/{rev}"), get(info::at_revision))
        .route(&model("/auth-check"), get(repos::may_read))
        .route(&model("/auth-check/write"), get(repos::may_write))
        .route(&model("/tree/{rev}"), get(tree::root))
        .route(&model("/tree/{rev}/"), get(tree::root))
        .route(&model("/tree/{rev}/{*path}"), get(tree::below))
        .route(&model("/paths-info/{rev}"), post(tree::paths))
        .route(&model("/refs"), get(refs::list))
        .route(&model("/commits/{rev}"), get(history::list))
        .route(
            &model("/branch/{branch}"),
            post(refs::create_branch).delete(refs::delete_branch),
        )
        .route(&model("/tag/{rev}"), post(refs::create_tag).delete(refs::delete_tag))
        .route(&model("/preupload/{rev}"), post(preupload::modes))
        .route(&model("/commit/{rev}"), post(commit::commit))
        .route("/{owner}/{name}/resolve/{rev}/{*path}", get(resolve::file))
        .route(&lfs("/objects/batch"), post(lfs::batch))
        .route(&lfs("/objects/{oid}"), get(object::download).put(object::upload))
        .route(&lfs("/verify"), post(object::verify))
}
