//! Extractors (path, query, JSON) whose rejections are problem documents, like all other errors.

use crate::{
    app::App,
    problem::{Problem, Result},
};
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{StatusCode, request::Parts};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::{fmt::Display, pin::pin};

/// A JSON body, of at most 2 MB.
#[derive(Clone, Copy, Debug)]
pub struct Body<T>(pub T);

/// The parameters behind `?`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// The parameters in the path, percent-decoded one by one.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

/// The revision in the path, `{rev}`.
#[derive(Debug, Deserialize)]
pub struct AtRev {
    /// As the client wrote it.
    pub rev: String,
}

/// A revision and a path in it, `{rev}` and `{*path}`.
#[derive(Debug, Deserialize)]
pub struct AtFile {
    /// As the client wrote it.
    pub rev: String,
    /// Empty where the route has none.
    #[serde(default)]
    pub path: String,
}

/// Extractor: the parameter `{id}` of the path.
#[derive(Debug)]
pub struct AtId(pub String);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Body<T>> {
        match axum::Json::from_request(request, app).await {
            Ok(axum::Json(value)) => Ok(Body(value)),
            Err(e) => Err(unreadable(e.status(), e.body_text())),
        }
    }
}

/// Implements an extractor by axum's of the same name.
macro_rules! from_parts {
    ($($name:ident),*) => {$(
        impl<T: DeserializeOwned + Send> FromRequestParts<App> for $name<T> {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<$name<T>> {
                match axum::extract::$name::from_request_parts(parts, app).await {
                    Ok(axum::extract::$name(value)) => Ok($name(value)),
                    Err(e) => Err(unreadable(e.status(), e.body_text())),
                }
            }
        }
    )*};
}

from_parts!(Path, Query);

impl FromRequestParts<App> for AtId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<AtId> {
        #[derive(Deserialize)]
        struct Parameters {
            id: String,
        }
        let Path(Parameters { id }) = Path::from_request_parts(parts, app).await?;
        Ok(AtId(id))
    }
}

/// Tells a field that is null (`Some(None)`) from one that is left out, with `#[serde(default)]` (`None`).
pub(crate) fn null_or_absent<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::deserialize(d).map(Some)
}

/// Text as a segment of a path, or a parameter: percent-encoded but for the unreserved characters.
pub(crate) fn encoded(text: &str) -> String {
    const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, &KEPT).to_string()
}

/// Bytes as they arrive.
pub(crate) trait Chunks<E>: Stream<Item = std::result::Result<Bytes, E>> {}

impl<S: Stream<Item = std::result::Result<Bytes, E>>, E> Chunks<E> for S {}

/// Reads a short body to its end. Where it has more than `max` bytes, the problem says so of `what`.
pub(crate) async fn gather<E: Display>(bytes: impl Chunks<E>, max: usize, what: &str) -> Result<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::new(), pin!(bytes));
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|e| Problem::usage(format!("the body broke off: {e}")))?;
        if out.len() + chunk.len() > max {
            return Err(Problem::too_large(format!("{what}more than {max} bytes")));
        }
        out.extend_from_slice(&chunk);
    }
    Ok(out)
}

fn unreadable(status: StatusCode, why: String) -> Problem {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(why),
        _ => Problem::usage(why),
    }
}
