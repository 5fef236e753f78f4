//! Conditional and range requests (RFC 9110) for bodies made on the fly: 304, 206, 416 or 200, decided before the work.

use crate::{
    content::{Asked, Part, names, part},
    problem::{Problem, Result},
};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// A representation that a request may get: its validators and length.
pub(super) struct Offer<'a> {
    /// Quoted ETag; changes whenever the bytes do.
    pub(super) etag: &'a str,
    /// How many.
    pub(super) len: u64,
    /// Whether ranges are supported.
    pub(super) ranges: bool,
    pub(super) media_type: &'static str,
}

/// What is to be done.
pub(super) enum Answer {
    /// The response is complete: 304, or a HEAD request.
    Done(Response),
    /// Send these bytes with this status and these headers.
    Send { status: StatusCode, headers: HeaderMap, start: u64, end: u64 },
}

/// Evaluates `If-None-Match`, `If-Range` and `Range` of a request.
///
/// # Errors
/// 416: the range is outside the bytes.
pub(super) fn answer(asked: &Asked, offer: &Offer<'_>) -> Result<Answer> {
    let (mut out, is_head) = (HeaderMap::new(), asked.method == Method::HEAD);
    out.insert(header::ETAG, HeaderValue::from_str(offer.etag).map_err(Problem::internal)?);
    let ranges = if offer.ranges { "bytes" } else { "none" };
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static(ranges));
    let seen = asked.headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if seen.is_some_and(|list| names(list, offer.etag)) {
        return Ok(Answer::Done((StatusCode::NOT_MODIFIED, out).into_response()));
    }
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(offer.media_type));
    out.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    let same = asked.headers.get(header::IF_RANGE).is_none_or(|e| e.as_bytes() == offer.etag.as_bytes());
    let wanted = match offer.ranges && same && !is_head {
        true => part(&asked.headers, offer.len),
        false => Part::Whole,
    };
    let (status, start, end) = match wanted {
        Part::Whole => (StatusCode::OK, 0, offer.len),
        Part::Range { start, end } => (StatusCode::PARTIAL_CONTENT, start, end),
        Part::Nothing => {
            let total = HeaderValue::from_str(&format!("bytes */{}", offer.len)).map_err(Problem::internal)?;
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", "the range leaves the bytes");
            return Err(problem.header(header::CONTENT_RANGE, total));
        }
    };
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {start}-{}/{}", end.saturating_sub(1), offer.len);
        out.insert(header::CONTENT_RANGE, HeaderValue::from_str(&range).map_err(Problem::internal)?);
    }
    out.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
    if is_head {
        return Ok(Answer::Done((status, out).into_response()));
    }
    Ok(Answer::Send { status, headers: out, start, end })
}
