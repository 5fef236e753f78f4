//! Error responses: a status and a problem document (RFC 9457) that says what the caller can do.

mod hints;

pub use hints::hint;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use mdl_repo::{ErrorKind, Missing, RepoError};
use serde::Serialize;
use std::io;
use utoipa::ToSchema;

/// Result of the routes.
pub type Result<T> = std::result::Result<T, Problem>;

/// Media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Message to clients when the disk is full.
pub const FULL: &str = "the server's disk is full";
const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-error-message");

/// Why a request did not succeed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The response's status.
    pub status: StatusCode,
    /// Name of the kind, fixed: `user`, `usage`, `not_found`, `conflict`, `corrupt`, `io`, `unauthorized`,
    /// `forbidden`, `protected`, `busy`, ...
    pub kind: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// What the caller may do.
    pub hint: Option<String>,
    /// The Hugging Face clients' name for it (`RepoNotFound`, `RevisionNotFound`, `EntryNotFound`, `GatedRepo`).
    pub code: Option<&'static str>,
    /// Where a ref was found elsewhere than expected.
    pub moved: Option<Box<Moved>>,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A ref that is not where it was expected.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Moved {
    /// Its full name.
    #[schema(example = "refs/heads/main")]
    pub name: String,
    /// What it was expected to hold; none: that it does not exist.
    pub expected: Option<String>,
    /// What it holds; none: it does not exist.
    pub found: Option<String>,
}

/// A problem document as it is sent (RFC 9457 with `kind` and `hint`).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// `urn:mdl:problem:KIND`.
    #[schema(example = "urn:mdl:problem:not_found")]
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What is wrong.
    pub detail: String,
    /// The kind by itself: programs go by this.
    #[schema(example = "not_found")]
    pub kind: String,
    /// What the caller may do.
    pub hint: Option<String>,
    /// As `detail`: what the Hugging Face clients show.
    pub error: String,
    /// Of a conflict: where the ref was found instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
}

impl Problem {
    /// A problem of a status and kind.
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Problem {
        Problem { status, kind, message: message.into(), hint: None, code: None, moved: None, headers: Vec::new() }
    }

    /// The request makes no sense as it is written (400).
    pub fn usage(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "usage", message)
    }

    /// The request makes sense, and cannot be done (422).
    pub fn refused(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "user", message)
    }

    /// Nothing has this name (404).
    pub fn not_found(what: &str, name: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", format!("{what} not found: {name}"))
    }

    /// A concurrent writer was first (409).
    pub fn conflict(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// The caller is not authenticated (401).
    pub fn unauthorized(message: impl Into<String>) -> Problem {
        let challenge = HeaderValue::from_static("Bearer realm=\"mdl\"");
        let basic = HeaderValue::from_static("Basic realm=\"mdl\"");
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .hint("send `Authorization: Bearer TOKEN`; `mdl token create` makes tokens")
            .header(header::WWW_AUTHENTICATE, challenge)
            .header(header::WWW_AUTHENTICATE, basic)
    }

    /// The token does not allow it (403).
    pub fn forbidden(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// More than the server takes (413).
    pub fn too_large(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The server is overloaded (503).
    pub fn busy(message: impl Into<String>, seconds: u32) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
            .header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Internal error (500): the caller learns nothing else, the log gets the cause.
    pub fn internal(what: impl std::fmt::Display) -> Problem {
        tracing::error!(%what, "internal error");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log says why")
    }

    /// With a next step for the caller.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// With the Hugging Face clients' name for it.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Problem {
        self.code = Some(code);
        self
    }

    /// As it is sent.
    pub fn document(&self) -> ProblemDocument {
        ProblemDocument {
            r#type: format!("urn:mdl:problem:{}", self.kind),
            title: self.status.canonical_reason().unwrap_or("error").to_owned(),
            status: self.status.as_u16(),
            detail: self.message.clone(),
            kind: self.kind.to_owned(),
            hint: self.hint.clone(),
            error: self.message.clone(),
            moved: self.moved.as_deref().cloned(),
        }
    }
}

impl From<RepoError> for Problem {
    fn from(error: RepoError) -> Problem {
        let full = error.is_full();
        let (status, kind) = match error.kind() {
            // A full disk: 507, not 500.
            ErrorKind::Io if full => (StatusCode::INSUFFICIENT_STORAGE, "io"),
            ErrorKind::User => (StatusCode::UNPROCESSABLE_ENTITY, "user"),
            ErrorKind::Usage => (StatusCode::BAD_REQUEST, "usage"),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "conflict"),
            ErrorKind::Corrupt => (StatusCode::INTERNAL_SERVER_ERROR, "corrupt"),
            ErrorKind::Io => (StatusCode::INTERNAL_SERVER_ERROR, "io"),
        };
        let hint = hint(&error);
        let message = match &error {
            // Paths of the server are for its log.
            RepoError::Io { context, source } => {
                tracing::error!(%context, %source, "the medium failed");
                let what = if full { FULL } else { "the server's storage failed" };
                what.to_owned()
            }
            // Nor how much room there is.
            RepoError::NoRoom { .. } => {
                tracing::error!(%error, "no room for a version");
                FULL.to_owned()
            }
            _ => error.to_string(),
        };
        let code = match &error {
            RepoError::NotFound {
                what: Missing::Revision | Missing::Commit | Missing::Branch | Missing::Tag | Missing::Version,
                ..
            } => Some("RevisionNotFound"),
            RepoError::NotFound { what: Missing::File, .. } => Some("EntryNotFound"),
            RepoError::NotFound { what: Missing::Repository, .. } => Some("RepoNotFound"),
            _ => None,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "stored data or medium failed");
        }
        let kind = if matches!(error, RepoError::Protected { .. }) { "protected" } else { kind };
        let mut problem = Problem::new(status, kind, message);
        (problem.hint, problem.code) = (hint, code);
        if let RepoError::Conflict { name, expected, found } = error {
            problem.moved = Some(Box::new(Moved {
                name,
                expected: expected.map(|id| id.to_hex()),
                found: found.map(|id| id.to_hex()),
            }));
        }
        problem
    }
}

/// An I/O error on the server's own files: the cause is logged; the client learns only whether the disk is full.
pub fn storage_failed(error: io::Error) -> Problem {
    if is_full(&error) {
        tracing::error!(%error, "no room for the server's own files");
        return Problem::new(StatusCode::INSUFFICIENT_STORAGE, "io", FULL);
    }
    Problem::internal(error)
}

/// Returns whether the disk or the user's quota is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Text as a header takes it: one line of visible ASCII.
fn header_text(text: &str) -> HeaderValue {
    let visible = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let line: String = text.chars().take(300).map(visible).collect();
    HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static("error"))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.document())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(ERROR_MESSAGE, header_text(&self.message));
        if let Some(code) = self.code {
            headers.insert(ERROR_CODE, HeaderValue::from_static(code));
        }
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart_and_no_path_is_told() {
        for (kind, status, message) in [
            (io::ErrorKind::StorageFull, 507, FULL),
            (io::ErrorKind::QuotaExceeded, 507, FULL),
            (io::ErrorKind::PermissionDenied, 500, "the server's storage failed"),
        ] {
            let problem = Problem::from(RepoError::io("cannot write /srv/secret")(kind.into()));
            assert_eq!((problem.status.as_u16(), problem.message.as_str()), (status, message));
        }
    }
}
