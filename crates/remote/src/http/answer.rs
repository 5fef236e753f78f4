//! Turns a server's error responses into errors of this side.

use crate::sync::RefMove;
use mdl_objects::Id;
use mdl_repo::{HEADS, Missing, RepoError, TAGS};
use reqwest::StatusCode;
use serde::Deserialize;
use std::io;

const ACCESS: &str = "give a token that may do this: in MDL_TOKEN, or in ~/.config/mdl/credentials.json (see \
                      docs/remotes.md); `mdl token create` at the server makes one";

/// A problem document (RFC 9457), as far as it matters here.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Document {
    #[serde(default)]
    detail: String,
    #[serde(default)]
    kind: String,
    hint: Option<String>,
    moved: Option<Moved>,
}

#[derive(Debug, Deserialize)]
struct Moved {
    name: String,
    expected: Option<String>,
    found: Option<String>,
}

/// A request that did not succeed.
#[derive(Debug)]
pub(super) struct Refused {
    /// For the caller.
    pub error: Box<RepoError>,
    /// The answer's status; 0 if there was none.
    pub status: u16,
    /// The server's name for it (`X-Error-Code`).
    pub code: String,
}

impl From<RepoError> for Refused {
    fn from(error: RepoError) -> Refused {
        Refused { error: Box::new(error), status: 0, code: String::new() }
    }
}

impl From<Refused> for RepoError {
    fn from(refused: Refused) -> RepoError {
        *refused.error
    }
}

fn id(text: Option<&String>) -> Option<Id> {
    text.and_then(|t| t.parse().ok())
}

fn not_found(detail: &str) -> Option<RepoError> {
    use Missing::{Blob, Branch, Commit, Manifest, Object, Pack, Repository, Revision, Tag, Tensor, Tree, Version};
    let named = [Blob, Branch, Commit, Manifest, Object, Pack, Repository, Revision, Tag, Tensor, Tree, Version];
    let (what, name) = detail.split_once(" not found: ")?;
    let what = Missing::from_name(what).filter(|w| named.contains(w)).unwrap_or(Object);
    Some(RepoError::not_found(what, name))
}

impl Document {
    fn user(self) -> RepoError {
        RepoError::user(self.detail, self.hint.unwrap_or_default())
    }

    fn conflict(self) -> RepoError {
        match self.moved {
            Some(moved) => RepoError::Conflict {
                expected: id(moved.expected.as_ref()),
                found: id(moved.found.as_ref()),
                name: moved.name,
            },
            None => self.user(),
        }
    }

    /// The error of a single ref.
    pub(super) fn of_ref(self, m: &RefMove) -> RepoError {
        let name = m.name.strip_prefix(HEADS).or(m.name.strip_prefix(TAGS)).unwrap_or(&m.name);
        match (self.kind.as_str(), m.expected, m.new) {
            ("conflict", Some(old), Some(new)) if self.moved.is_none() => {
                RepoError::NotForward { name: name.to_owned(), old, new }
            }
            ("conflict", ..) => self.conflict(),
            ("not_found", ..) => not_found(&self.detail).unwrap_or_else(|| self.user()),
            ("io" | "internal" | "corrupt", ..) => failed(name, &self.detail),
            _ => self.user(),
        }
    }
}

fn failed(at: &str, why: &str) -> RepoError {
    RepoError::io(format!("the server failed at {at}"))(io::Error::other(why.to_owned()))
}

/// The error for a response. `shown` is the repository's URL.
pub(super) fn refused(shown: &str, status: StatusCode, code: &str, body: &[u8]) -> Refused {
    let document: Option<Document> = serde_json::from_slice(body).ok();
    let error = match document {
        Some(document) => from_document(shown, status, document),
        None if status.is_server_error() => failed(shown, &status.to_string()),
        None => {
            let message = format!("{shown} answered {status}, and not as `mdl serve` does");
            RepoError::user(message, "check the URL: http(s)://HOST[:PORT]/OWNER/NAME")
        }
    };
    Refused { error: Box::new(error), status: status.as_u16(), code: code.to_owned() }
}

fn from_document(shown: &str, status: StatusCode, document: Document) -> RepoError {
    match status.as_u16() {
        // The server's own hint is for programs that write requests.
        401 | 403 => RepoError::user(format!("{shown}: {}", document.detail), ACCESS),
        // Where the server has no such route, the URL has too many parts.
        404 => match not_found(&document.detail) {
            None | Some(RepoError::NotFound { what: Missing::Repository, .. }) => {
                RepoError::not_found(Missing::Repository, shown)
            }
            Some(error) => error,
        },
        409 => document.conflict(),
        500..=599 => failed(shown, &document.detail),
        _ => document.user(),
    }
}
