//! Extractors (path, query, JSON) whose rejections are problem documents, like all other errors.

use crate::{
    app::App,
    problem::{Problem, Result},
};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use serde::de::DeserializeOwned;

/// A JSON body, of at most 2 MB.
#[derive(Clone, Copy, Debug)]
pub struct Body<T>(pub T);

/// The parameters behind `?`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// The parameters in the path, percent-decoded one by one.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Body<T>> {
        match axum::Json::from_request(request, app).await {
            Ok(axum::Json(value)) => Ok(Body(value)),
            Err(e) => Err(unreadable(e.status(), e.body_text())),
        }
    }
}

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Query<T>> {
        match axum::extract::Query::from_request_parts(parts, app).await {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(e) => Err(unreadable(e.status(), e.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Path<T>> {
        match axum::extract::Path::from_request_parts(parts, app).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(e) => Err(unreadable(e.status(), e.body_text())),
        }
    }
}

fn unreadable(status: http::StatusCode, why: String) -> Problem {
    if status == http::StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::too_large(why);
    }
    Problem::usage(why)
}
