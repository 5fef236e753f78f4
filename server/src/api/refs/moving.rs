//! Routes that create, move and delete a branch or tag, by compare-and-swap.

use crate::{
    api,
    api::refs::Kind,
    app::{App, work},
    auth::{Access, Write},
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::{Body, Path, Query},
        revision,
        routes::{Need, Needs},
    },
};
use axum::{Json, extract::State};
use mdl_objects::{Id, Tag};
use mdl_repo::{RefName, Repo, RepoError};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

/// How often a move that may come from anywhere is tried while others move the ref.
const TRIES: usize = 16;
/// Longest line in the reflog.
const MAX_LINE: usize = 300;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put, delete).needs(Need::Write))
}

/// Where a ref is to stand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTarget {
    /// Revision.
    #[schema(example = "main~1")]
    target: String,
    /// What the ref must hold now (64 hex digits); null: it must not exist; left out: whatever it holds.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>, nullable)]
    expected: Option<Option<String>>,
    /// For the reflog; of an annotated tag: its text.
    message: Option<String>,
    /// Make an annotated tag; wants `message`.
    #[serde(default)]
    annotate: bool,
}

/// Tells null from nothing.
fn said<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Option<Option<String>>, D::Error> {
    Option::deserialize(d).map(Some)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    /// What the ref must hold (64 hex digits); left out: whatever it holds.
    expected: Option<String>,
}

/// A ref that moved.
#[derive(Debug, Serialize, ToSchema)]
struct RefChange {
    /// Its full name.
    name: String,
    /// What it held; none: it is new.
    old: Option<String>,
    /// What it holds; none: it is gone.
    new: Option<String>,
    /// The commit it stands on.
    commit: Option<String>,
}
/// Make or move a branch or tag
///
/// A compare-and-swap: where the ref does not hold what is expected, nothing happens, and the answer is 409 with what
/// was found.
#[utoipa::path(
    put,
    path = "/repos/{owner}/{name}/refs/{kind}/{ref}",
    tag = "refs",
    params(
        ("owner" = String, Path), ("name" = String, Path), ("kind" = Kind, Path),
        ("ref" = String, Path, description = "Short name; its slashes percent-encoded."),
    ),
    request_body = NewTarget,
    responses(
        (status = 200, body = RefChange),
        (status = 409, description = "It holds something else", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn put(
    State(app): State<App>,
    Write(access): Write,
    Path((_, _, kind, short)): Path<(String, String, Kind, String)>,
    Body(wanted): Body<NewTarget>,
) -> Result<Json<RefChange>> {
    work(move || {
        let repo = &*access.repo;
        let full = RefName::parse(&format!("{}{short}", kind.prefix()))?;
        let expected = wanted.expected.map(|e| e.as_deref().map(api::id).transpose()).transpose()?;
        let commit = revision::resolve(repo, &wanted.target)?;
        let (new, line) = match (kind, wanted.annotate, wanted.message) {
            (Kind::Tags, true, Some(message)) => {
                // No object is stored for a swap that cannot succeed.
                stands(repo, &full, expected)?;
                (annotated(&access, &short, commit, message)?, None)
            }
            (Kind::Tags, true, None) => return Err(Problem::usage("an annotated tag wants a message")),
            (Kind::Heads, true, _) => return Err(Problem::usage("only tags are annotated")),
            (_, false, message) => (commit, message),
        };
        let line = line.unwrap_or_else(|| format!("{}: moved over HTTP", kind.name()));
        let old = swap(&access, &full, expected, Some(new), &line)?;
        Ok(Json(tell(&app, &access, &full, old, Some(new), Some(commit))))
    })
    .await
}

/// Delete a branch or tag
///
/// Its commits stay as long as something else, or the reflog, holds them.
#[utoipa::path(
    delete,
    path = "/repos/{owner}/{name}/refs/{kind}/{ref}",
    tag = "refs",
    params(
        ("owner" = String, Path), ("name" = String, Path), ("kind" = Kind, Path),
        ("ref" = String, Path, description = "Short name; its slashes percent-encoded."),
        DeleteQuery,
    ),
    responses(
        (status = 200, body = RefChange),
        (status = 409, description = "It holds something else", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn delete(
    State(app): State<App>,
    Write(access): Write,
    Path((_, _, kind, short)): Path<(String, String, Kind, String)>,
    Query(query): Query<DeleteQuery>,
) -> Result<Json<RefChange>> {
    work(move || {
        let full = RefName::parse(&format!("{}{short}", kind.prefix()))?;
        let expected = query.expected.as_deref().map(api::id).transpose()?;
        if expected.is_none() && access.repo.refs().get(&full)?.is_none() {
            return Err(RepoError::not_found(kind.missing(), &short).into());
        }
        let old = swap(&access, &full, expected.map(Some), None, &format!("{}: deleted over HTTP", kind.name()))?;
        Ok(Json(tell(&app, &access, &full, old, None, None)))
    })
    .await
}

/// Moves a ref; returns what it held. Where anything may be expected, the others who move it have their turn first.
fn swap(
    access: &Access,
    full: &RefName,
    expected: Option<Option<Id>>,
    new: Option<Id>,
    message: &str,
) -> Result<Option<Id>> {
    let repo = &*access.repo;
    let line: String = message.lines().next().unwrap_or_default().chars().take(MAX_LINE).collect();
    let mut tries = 0;
    loop {
        let old = match expected {
            Some(expected) => expected,
            None => repo.refs().get(full)?,
        };
        let who = access.caller.signature(&repo.config().signature());
        match mdl_repo::move_ref(repo, full, old, new, who, &line) {
            Err(RepoError::Conflict { .. } | RepoError::Overtaken) if expected.is_none() && tries < TRIES => tries += 1,
            Err(e) => return Err(e.into()),
            Ok(()) => return Ok(old),
        }
    }
}

fn stands(repo: &Repo, full: &RefName, expected: Option<Option<Id>>) -> Result<()> {
    let found = repo.refs().get(full)?;
    match expected {
        Some(expected) if expected != found => {
            Err(RepoError::Conflict { name: full.to_string(), expected, found }.into())
        }
        _ => Ok(()),
    }
}

fn annotated(access: &Access, short: &str, target: Id, message: String) -> Result<Id> {
    let own = access.repo.config().signature();
    let tag = Tag { target, name: short.to_owned(), tagger: access.caller.signature(&own).unwrap_or(own), message };
    Ok(mdl_repo::store_tag(&access.repo, &tag)?)
}

fn tell(app: &App, access: &Access, name: &RefName, old: Option<Id>, new: Option<Id>, commit: Option<Id>) -> RefChange {
    let hex = |id: Option<Id>| id.map(|id| id.to_hex());
    let change = RefChange { name: name.to_string(), old: hex(old), new: hex(new), commit: hex(commit) };
    access.moved(app, name, old, new);
    change
}
