//! Route `GET .../log`: history, newest first, paged.

use crate::{
    api::entry::{CommitInfo, Notes},
    request::prelude::*,
};

/// Commits on a page: by default, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;
/// Bytes of commits on a page: one that is larger comes alone.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Revision to start from. Default: HEAD.
    rev: Option<String>,
    /// Start from HEAD and every branch and tag instead.
    #[serde(default)]
    all: bool,
    /// The `next` of the page before.
    after: Option<String>,
    /// Versions a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Some versions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LogPage {
    commits: Vec<CommitInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

/// Show the versions that lead to a revision, newest first
///
/// `rev` should be the same on every page: for pages of a branch that moves, pass the id of its commit. A page may end
/// before its `limit`, where what the versions say is long: `next` tells whether there is more. Of a version that says
/// more than any that is made now the beginning is shown (`cut`).
#[utoipa::path(get, path = "/log", tag = "versions", params(LogQuery), responses((status = 200, body = LogPage)))]
pub(super) async fn log(Read(access): Read, Query(query): Query<LogQuery>) -> Result<Json<LogPage>> {
    work(move || {
        let repo = &*access.repo;
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let after = query.after.as_deref().map(super::id).transpose()?;
        let notes = Notes::read(repo)?;
        let (steps, next) = mdl_repo::log_page(repo, &starts(repo, &query)?, after.as_ref(), (limit, PAGE_BYTES))?;
        let commits = steps.into_iter().map(|s| notes.listed(repo.odb(), s)).collect::<Result<_>>()?;
        let next = next.map(|id| id.to_hex());
        Ok(Json(LogPage { commits, next }))
    })
    .await
}

fn starts(repo: &Repo, query: &LogQuery) -> Result<Vec<Id>> {
    match (&query.rev, query.all) {
        (Some(_), true) => Err(Problem::usage("`rev` and `all` exclude each other")),
        (Some(rev), false) => Ok(vec![revision::resolve(repo, rev)?]),
        // A repository without commits has an empty history.
        (None, false) => Ok(repo.refs().head_commit()?.into_iter().collect()),
        (None, true) => every_ref(repo),
    }
}

fn every_ref(repo: &Repo) -> Result<Vec<Id>> {
    let mut starts: Vec<Id> = repo.refs().head_commit()?.into_iter().collect();
    for prefix in [HEADS, TAGS] {
        for (_, id) in repo.refs().list(prefix)? {
            starts.push(mdl_repo::peel(repo, &id)?);
        }
    }
    Ok(starts)
}
