//! Response with bytes of a known length: answers conditional, range and HEAD requests (RFC 9110) for all routes.

use super::range::{Part, names, part};
use crate::{
    app::App,
    problem::{Problem, Result},
};
use axum::{
    body::Body,
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use std::ops::Range;

/// A request for bytes.
#[derive(Clone, Debug)]
pub struct Asked {
    /// GET or HEAD.
    pub method: Method,
    /// Range, If-Range, If-Match, If-None-Match, ...
    pub headers: HeaderMap,
}

impl FromRequestParts<App> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Asked> {
        Ok(Asked { method: parts.method.clone(), headers: parts.headers.clone() })
    }
}

impl Asked {
    fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Returns whether the answer depends on the ETag.
    pub fn needs_etag(&self) -> bool {
        let conditions = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_RANGE];
        self.is_head() || conditions.iter().any(|name| self.headers.contains_key(name))
    }

    /// Returns whether a list of entity tags, in one header or several, names this one.
    fn names(&self, list: HeaderName, etag: &str, weak: bool) -> bool {
        let mut lines = self.headers.get_all(list).iter().filter_map(|v| v.to_str().ok());
        lines.any(|line| names(line, etag, weak))
    }

    /// Returns whether a range of other bytes than the ETag names would be of no use to the client.
    fn wants_part_of_other(&self, etag: Option<&str>) -> bool {
        let wanted = self.headers.get(header::IF_RANGE);
        wanted.is_some_and(|wanted| etag.is_none_or(|etag| etag.as_bytes() != wanted.as_bytes()))
    }
}

/// Bytes that a request may get, and what their headers say.
#[derive(Clone, Debug)]
pub struct ByteResponse {
    /// What they are, in the message of a 416.
    pub noun: &'static str,
    pub len: u64,
    /// Names these very bytes; without its quotes. None: it is not known yet, and the request does not need it.
    pub etag: Option<String>,
    pub ranges: bool,
    pub media_type: &'static str,
    pub disposition: HeaderValue,
}

impl ByteResponse {
    /// Bytes to be stored as a file, all or a part of them.
    pub fn attachment(noun: &'static str, len: u64, etag: String) -> ByteResponse {
        ByteResponse {
            noun,
            len,
            etag: Some(etag),
            ranges: true,
            media_type: "application/octet-stream",
            disposition: HeaderValue::from_static("attachment"),
        }
    }

    /// Answers GET or HEAD with 200, 206 or 304. `body` makes the bytes of a range, once it is clear that they are
    /// sent. 412: If-Match names other bytes. 416: the range is outside the bytes.
    pub async fn answer<F>(&self, asked: &Asked, body: F) -> Result<Response>
    where
        F: AsyncFnOnce(Range<u64>) -> Result<Body>,
    {
        let etag = self.etag.as_ref().map(|tag| format!("\"{tag}\""));
        let mut headers = HeaderMap::new();
        if let Some(etag) = &etag {
            headers.insert(header::ETAG, value(etag)?);
        }
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static(if self.ranges { "bytes" } else { "none" }));
        // Conditions in the order of RFC 9110, 13.2.2.
        if let Some(etag) = &etag {
            if asked.headers.contains_key(header::IF_MATCH) && !asked.names(header::IF_MATCH, etag, false) {
                let message = format!("the {} changed: the ETag is another", self.noun);
                return Err(Problem::new(StatusCode::PRECONDITION_FAILED, "conflict", message));
            }
            if asked.names(header::IF_NONE_MATCH, etag, true) {
                return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CONTENT_DISPOSITION, self.disposition.clone());
        // A HEAD has no range (RFC 9110, 14.2).
        let is_whole = !self.ranges || asked.is_head() || asked.wants_part_of_other(etag.as_deref());
        let (status, bytes) = match part(&asked.headers, self.len) {
            Part::Range(bytes) if !is_whole => (StatusCode::PARTIAL_CONTENT, bytes),
            Part::Nothing if !is_whole => return Err(self.unsatisfiable()?),
            _ => (StatusCode::OK, 0..self.len),
        };
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.end - bytes.start));
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {}-{}/{}", bytes.start, bytes.end.saturating_sub(1), self.len);
            headers.insert(header::CONTENT_RANGE, value(&range)?);
        }
        let body = if asked.is_head() { Body::empty() } else { body(bytes).await? };
        Ok((status, headers, body).into_response())
    }

    fn unsatisfiable(&self) -> Result<Problem> {
        let message = format!("the range leaves the {}", self.noun);
        let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", message);
        Ok(problem.header(header::CONTENT_RANGE, value(&format!("bytes */{}", self.len))?))
    }
}

fn value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(Problem::internal)
}
