//! What nearly every route takes: its extractors, its answers, and the types of a repository.

pub(crate) use crate::{
    app::{App, work},
    auth::{Access, Admin, Read, Write},
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::{AtFile, AtId, AtRev, Body, Path, Query},
        revision,
        today::{Version, Versions},
    },
};
pub(crate) use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
pub(crate) use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
pub(crate) use mdl_objects::{Commit, Entry, Id, Mode};
pub(crate) use mdl_repo::{HEADS, Missing, RefName, Repo, RepoError, TAGS};
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use utoipa::{IntoParams, ToSchema};
