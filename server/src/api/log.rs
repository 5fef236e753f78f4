//! Route `GET .../log`: history, newest first, filtered and paged.

use crate::{
    api::entry::{CommitInfo, Notes},
    request::prelude::*,
};
use mdl_repo::{Expression, ExpressionError, LogFilter, PageBounds, Progress, Selection, Silent, Step, parse_time};

/// Commits on a page: by default, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;
/// Bytes of commits on a page: one that is larger comes alone.
const PAGE_BYTES: usize = 4 << 20;
/// Commits looked at for a page, where a filter says which are shown; fewer where their trees are read for it.
const LOOKS: usize = 20_000;
const LOOKS_AT_TREES: usize = 1000;

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
    /// Only versions of this time or later: a date, a time (RFC 3339), or an age such as `2h`.
    since: Option<String>,
    /// Only versions of this time or earlier.
    until: Option<String>,
    /// Only versions whose author's name or address has this in it, in capitals or not.
    author: Option<String>,
    /// Only versions whose message has this in it, in capitals or not.
    grep: Option<String>,
    /// Only versions whose metrics, notes included, are so: `loss<2 and acc>=0.9`.
    metric: Option<String>,
    /// Only versions that touched what this matches: `FILE` or `FILE:TENSOR`, as globs.
    glob: Option<String>,
}

impl LogQuery {
    fn filter(&self) -> Result<LogFilter> {
        let now = jiff::Timestamp::now().as_millisecond();
        let time = |text: &Option<String>| text.as_deref().map(|t| parse_time(t, now)).transpose();
        let expression = |text: &str| Expression::parse(text).map_err(ExpressionError::into_usage);
        Ok(LogFilter {
            since: time(&self.since)?,
            until: time(&self.until)?,
            author: self.author.clone(),
            grep: self.grep.clone(),
            metric: self.metric.as_deref().map(expression).transpose()?,
            touching: self.glob.as_ref().map(|g| Selection::new(std::slice::from_ref(g))).transpose()?,
        })
    }
}

/// Some versions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LogPage {
    commits: Vec<CommitInfo>,
    /// Versions of which it cannot be told whether they touched what was asked for: contents are gone.
    untold: usize,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

/// Show the versions that lead to a revision, newest first
///
/// `rev` should be the same on every page: for pages of a branch that moves, pass the id of its commit. A page may end
/// before its `limit`, even without a version, where what the versions say is long or few of many pass the filters:
/// `next` tells whether there is more. Of a version that says more than any that is made now the beginning is shown
/// (`cut`).
#[utoipa::path(get, path = "/log", tag = "versions", params(LogQuery), responses((status = 200, body = LogPage)))]
pub(super) async fn log(Read(access): Read, Query(query): Query<LogQuery>) -> Result<Json<LogPage>> {
    // Only these read trees and manifests.
    match query.glob {
        Some(_) => access.heavy(move |access, watch| answer(&access.repo, &query, watch)).await,
        None => work(move || answer(&access.repo, &query, &Silent)).await,
    }
}

fn answer(repo: &Repo, query: &LogQuery, watch: &dyn Progress) -> Result<Json<LogPage>> {
    let filter = query.filter()?;
    let bounds = PageBounds {
        commits: query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE),
        bytes: PAGE_BYTES,
        looked_at: if filter.touching.is_some() { LOOKS_AT_TREES } else { LOOKS },
    };
    let after = query.after.as_deref().map(super::id).transpose()?;
    let notes = Notes::read(repo)?;
    let mut filtering = filter.begin(repo)?;
    let mut passes = |step: &Step| match watch.stopped() {
        true => Err(RepoError::Stopped { what: "the log" }),
        false if filter.is_empty() => Ok(true),
        false => {
            let commit = notes.noted.annotated(&step.id, step.commit.clone());
            filtering.passes(&Step { id: step.id, commit })
        }
    };
    let page = mdl_repo::log_page(repo, &starts(repo, query)?, after.as_ref(), bounds, &mut passes)?;
    let commits = page.listed.into_iter().map(|s| notes.listed(repo.odb(), s)).collect::<Result<_>>()?;
    Ok(Json(LogPage { commits, untold: filtering.untold(), next: page.next.map(|id| id.to_hex()) }))
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
