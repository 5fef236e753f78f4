//! Branches and tags: listed, and moved by compare-and-swap. Neighbours: `Repo::move_ref` swaps, `events` hears of it. It must not
//! know what a commit holds.

use super::entry::{Person, rfc3339};
use crate::{
    app::{App, work},
    auth::{Access, Read, Write},
    events::RefMoved,
    extract::{Body, Path, Query},
    problem::{Problem, ProblemDocument, Result},
    revision,
};
use axum::{Json, extract::State};
use mdl_objects::{Id, Kind as ObjectKind, Tag};
use mdl_repo::{HEADS, Head, Repo, RepoError, TAGS, check_ref_name};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

/// Refs on a page, if nobody asks for another number, and at most.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;
/// How often a move that may come from anywhere is tried while others move the ref.
const TRIES: usize = 16;
/// Longest line in the reflog.
const MAX_LINE: usize = 300;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(put, delete))
}

/// Branches or tags.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Heads,
    Tags,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Kind::Heads => HEADS,
            Kind::Tags => TAGS,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Heads => "branch",
            Kind::Tags => "tag",
        }
    }
}

/// Where HEAD is.
#[derive(Debug, Serialize, ToSchema)]
struct HeadInfo {
    /// The branch it is on; none: it is on a commit by itself.
    branch: Option<String>,
    /// The commit it stands on; none: there is no commit yet.
    commit: Option<String>,
}

/// What an annotated tag says.
#[derive(Debug, Serialize, ToSchema)]
struct TagInfo {
    message: String,
    tagger: Person,
    /// When: RFC 3339.
    date: String,
}

/// A branch or tag.
#[derive(Debug, Serialize, ToSchema)]
struct RefInfo {
    /// Its full name.
    #[schema(example = "refs/heads/main")]
    name: String,
    kind: Kind,
    /// Its name as people write it.
    short: String,
    /// What it holds: `expected` of a move.
    target: String,
    /// The commit it stands on, also where it holds an annotated tag; none: that cannot be read.
    commit: Option<String>,
    /// The annotated tag, if it is one.
    tag: Option<TagInfo>,
}

/// Some branches and tags.
#[derive(Debug, Serialize, ToSchema)]
struct RefsPage {
    head: HeadInfo,
    /// By full name.
    refs: Vec<RefInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The `next` of the page before: a full name.
    after: Option<String>,
    /// Refs a page.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
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

/// List the branches and tags, and where HEAD is
#[utoipa::path(
    get,
    path = "/repos/{owner}/{name}/refs",
    tag = "refs",
    params(("owner" = String, Path), ("name" = String, Path), ListQuery),
    responses(
        (status = 200, body = RefsPage),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn list(Read(access): Read, Query(query): Query<ListQuery>) -> Result<Json<RefsPage>> {
    work(move || {
        let repo = &*access.repo;
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let head = repo.refs().head()?;
        let mut all = Vec::new();
        for kind in [Kind::Heads, Kind::Tags] {
            let mut found = repo.refs().list(kind.prefix())?;
            found.sort();
            all.extend(found.into_iter().map(|(short, id)| (format!("{}{short}", kind.prefix()), kind, short, id)));
        }
        all.retain(|r| query.after.as_ref().is_none_or(|after| r.0 > *after));
        let next = all.get(limit).and_then(|_| all.get(limit - 1)).map(|r| r.0.clone());
        all.truncate(limit);
        Ok(Json(RefsPage {
            head: HeadInfo {
                commit: repo.refs().head_commit()?.map(|id| id.to_hex()),
                branch: match head {
                    Head::Branch(name) => Some(name),
                    Head::Detached(_) => None,
                },
            },
            refs: all.into_iter().map(|(name, kind, short, id)| info(repo, name, kind, short, &id)).collect(),
            next,
        }))
    })
    .await
}

fn info(repo: &Repo, name: String, kind: Kind, short: String, id: &Id) -> RefInfo {
    // One that is damaged must not hide the others.
    let commit = repo.peel(id).ok().map(|id| id.to_hex());
    let located = matches!(kind, Kind::Tags).then(|| repo.odb().locate(id).ok().flatten()).flatten();
    let tag = located
        .filter(|l| l.record.kind == ObjectKind::Tag)
        .and_then(|_| repo.odb().tag(id).ok());
    RefInfo {
        name,
        kind,
        short,
        target: id.to_hex(),
        commit,
        tag: tag.map(|t| TagInfo {
            tagger: Person::from(&t.tagger),
            date: rfc3339(t.tagger.time_ms, t.tagger.utc_offset_min),
            message: t.message,
        }),
    }
}

/// Make or move a branch or tag
///
/// A compare-and-swap: where the ref does not hold what is expected, nothing happens, and the answer is 409 with what was found.
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
        check_ref_name(&short)?;
        let expected = wanted.expected.map(|e| e.as_deref().map(super::id).transpose()).transpose()?;
        let commit = revision::resolve(repo, &wanted.target)?;
        let full = format!("{}{short}", kind.prefix());
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
        Ok(Json(tell(&app, &access, full, old, Some(new), Some(commit))))
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
        check_ref_name(&short)?;
        let expected = query.expected.as_deref().map(super::id).transpose()?;
        let full = format!("{}{short}", kind.prefix());
        if expected.is_none() && access.repo.refs().get(&full)?.is_none() {
            return Err(RepoError::not_found(kind.name(), &short).into());
        }
        let old = swap(&access, &full, expected.map(Some), None, &format!("{}: deleted over HTTP", kind.name()))?;
        Ok(Json(tell(&app, &access, full, old, None, None)))
    })
    .await
}

/// Moves a ref; returns what it held. Where anything may be expected, the others who move it have their turn first.
fn swap(
    access: &Access,
    full: &str,
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
        match repo.move_ref(full, old, new, who, &line) {
            Err(RepoError::Conflict { .. }) if expected.is_none() && tries < TRIES => tries += 1,
            Err(e) => return Err(e.into()),
            Ok(()) => return Ok(old),
        }
    }
}

fn stands(repo: &Repo, full: &str, expected: Option<Option<Id>>) -> Result<()> {
    let found = repo.refs().get(full)?;
    match expected {
        Some(expected) if expected != found => Err(RepoError::Conflict {
            name: full.to_owned(),
            expected,
            found,
        }
        .into()),
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
    };
    Ok(access.repo.store_tag(&tag)?)
}

fn tell(
    app: &App,
    access: &Access,
    name: String,
    old: Option<Id>,
    new: Option<Id>,
    commit: Option<Id>,
) -> RefChange {
    let hex = |id: Option<Id>| id.map(|id| id.to_hex());
    let change = RefChange {
        name: name.clone(),
        old: hex(old),
        new: hex(new),
        commit: hex(commit),
    };
    app.ref_moved(RefMoved {
        repo: access.name.clone(),
        name,
        old,
        new,
        by: access.caller.name().to_owned(),
    });
    change
}
