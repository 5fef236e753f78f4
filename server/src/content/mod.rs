//! Bytes of stored files on their way out: whole or in part, with what caches need to know. Neighbours: routes ask, `mdl-repo`
//! decodes. It must not know who may ask.

use crate::{
    app::App,
    options::Options,
    problem::{Problem, Result},
};
use axum::{extract::FromRequestParts, response::Response};
use http::{HeaderMap, Method, request::Parts};
use mdl_objects::Entry;
use mdl_repo::Repo;
use std::{path::Path, sync::Arc, time::Duration};

/// What a file's bytes are known by elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// SHA-256 of the bytes.
    pub sha256: [u8; 32],
    /// SHA-1 of `blob LEN\0` and the bytes: git's name for it.
    pub git: [u8; 20],
}

/// What an ETag is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// The id of what is stored: known at once.
    Id,
    /// SHA-256 of the bytes, as the Hugging Face clients want it: the file is decoded once for it.
    Sha256,
}

/// A file that is asked for, and how.
#[derive(Clone, Debug)]
pub struct Asked {
    /// GET or HEAD.
    pub method: Method,
    /// Range, If-Range, If-None-Match, ...
    pub headers: HeaderMap,
}

impl FromRequestParts<App> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Asked> {
        Ok(Asked {
            method: parts.method.clone(),
            headers: parts.headers.clone(),
        })
    }
}

/// Decoded files and how many are decoded at a time.
#[derive(Debug)]
pub struct Content {}

impl Content {
    /// Nothing decoded yet but what an earlier run left in the state directory.
    ///
    /// # Errors
    /// The directory cannot be had.
    pub fn new(state: &Path, options: &Options) -> Result<Content> {
        let _ = (state, options);
        Ok(Content {})
    }
}

/// Answers GET or HEAD of a file: 200, 206, 304 or 416, with ETag, Content-Length, Accept-Ranges, Content-Type and
/// Content-Disposition. The caller adds headers of its own.
///
/// # Errors
/// Absent or damaged objects; the server is busy decoding.
pub async fn respond(
    app: &App,
    repo: &Arc<Repo>,
    path: &str,
    entry: &Entry,
    asked: &Asked,
    by: Validator,
) -> Result<Response> {
    let _ = (app, repo, path, entry, asked, by);
    Err(Problem::internal("not there yet"))
}

/// What a file's bytes are known by elsewhere, computed once. Where that takes longer than `wait` it goes on, and there is none yet.
///
/// # Errors
/// Absent or damaged objects; the medium failed.
pub async fn digests(app: &App, repo: &Arc<Repo>, entry: &Entry, wait: Duration) -> Result<Option<Digests>> {
    let _ = (app, repo, entry, wait);
    Err(Problem::internal("not there yet"))
}
