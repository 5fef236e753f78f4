//! Routes that create, move and delete a branch or tag, by compare-and-swap.

use crate::{
    api::{self, refs::Kind},
    request::{extract::null_or_absent, prelude::*},
};
use mdl_objects::Tag;

/// How often a move that may come from anywhere is tried while others move the ref.
const TRIES: usize = 16;

/// Where a ref is to stand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTarget {
    /// Revision.
    #[schema(example = "main~1")]
    target: String,
    /// What the ref must hold now (64 hex digits); null: it must not exist; left out: whatever it holds.
    #[serde(default, deserialize_with = "null_or_absent")]
    #[schema(value_type = Option<String>, nullable)]
    expected: Option<Option<String>>,
    /// For the reflog; of an annotated tag: its text.
    message: Option<String>,
    /// Make an annotated tag; wants `message`.
    #[serde(default)]
    annotate: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteQuery {
    /// What the ref must hold (64 hex digits); left out: whatever it holds.
    expected: Option<String>,
}

/// A ref that moved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefChange {
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
    put, path = "/refs/{kind}/{ref}", tag = "refs",
    params(("kind" = Kind, Path), ("ref" = String, Path, description = "Short name; its slashes percent-encoded.")),
    request_body = NewTarget,
    responses((status = 200, body = RefChange), (status = 409, description = "It holds something else"))
)]
pub(crate) async fn put(
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
        swap(&access, &full, expected, Some((new, commit)), &line)
    })
    .await
}

/// Delete a branch or tag
///
/// Its commits stay as long as something else, or the reflog, holds them.
#[utoipa::path(
    delete, path = "/refs/{kind}/{ref}", tag = "refs",
    params(
        ("kind" = Kind, Path), ("ref" = String, Path, description = "Short name; its slashes percent-encoded."),
        DeleteQuery,
    ),
    responses((status = 200, body = RefChange), (status = 409, description = "It holds something else"))
)]
pub(crate) async fn delete(
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
        swap(&access, &full, expected.map(Some), None, &format!("{}: deleted over HTTP", kind.name()))
    })
    .await
}

/// Moves a ref, and tells of it. `to`: what it is to hold, and the commit that this is. Where anything may be expected,
/// the others who move it have their turn first.
fn swap(
    access: &Access,
    full: &RefName,
    expected: Option<Option<Id>>,
    to: Option<(Id, Id)>,
    message: &str,
) -> Result<Json<RefChange>> {
    let repo = &*access.repo;
    let (new, commit) = to.unzip();
    let line = api::reflog_line(message);
    let mut tries = 0;
    let old = loop {
        let old = match expected {
            Some(expected) => expected,
            None => repo.refs().get(full)?,
        };
        match mdl_repo::move_ref(repo, full, old, new, access.signature(), &line) {
            Err(RepoError::Conflict { .. } | RepoError::Overtaken) if expected.is_none() && tries < TRIES => tries += 1,
            done => break done.map(|()| old)?,
        }
    };
    access.moved(full, old, new);
    let hex = |id: Option<Id>| id.map(|id| id.to_hex());
    Ok(Json(RefChange { name: full.to_string(), old: hex(old), new: hex(new), commit: hex(commit) }))
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
    let tag = Tag {
        target,
        name: short.to_owned(),
        tagger: access.caller.signature(&own).unwrap_or(own),
        message,
        signature: None,
    };
    Ok(mdl_repo::store_tag(&access.repo, &tag)?)
}
