//! Routes `/repos`: list, create, describe and configure repositories.

use crate::{
    auth::{ANONYMOUS_READ, Caller, Maker, is_open},
    registry::RepoName,
    request::prelude::*,
};
use std::sync::Arc;

/// Repositories on a page: by default, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// A repository.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RepoInfo {
    /// `owner/name`.
    #[schema(value_type = String, example = "ada/tiny-gpt")]
    name: RepoName,
    /// The branch that HEAD is on.
    default_branch: Option<String>,
    /// HEAD's commit (64 hex digits); none: there is no commit yet.
    head: Option<String>,
    /// Whether it may be read without a token.
    anonymous_read: bool,
}

/// Some repositories.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RepoPage {
    repos: Vec<RepoInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Name of the last repository of the page before.
    after: Option<String>,
    /// Repositories a page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A repository to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRepo {
    /// `owner/name`.
    #[schema(value_type = String, example = "ada/tiny-gpt")]
    name: RepoName,
    /// The first branch. Default: `main`.
    branch: Option<String>,
    /// Whether it may be read without a token; false by default.
    #[serde(default)]
    anonymous_read: bool,
}

/// Settings to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RepoSettings {
    /// Whether it may be read without a token.
    anonymous_read: Option<bool>,
}

fn info(name: RepoName, repo: &Repo) -> Result<RepoInfo> {
    Ok(RepoInfo {
        name,
        default_branch: revision::head_branch(repo)?,
        head: repo.refs().head_commit()?.map(|id| id.to_hex()),
        anonymous_read: is_open(repo),
    })
}

/// List the repositories that the caller may read
#[utoipa::path(
    get, path = "/repos", tag = "repositories", params(ListQuery), responses((status = 200, body = RepoPage))
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<RepoPage>> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    work(move || {
        let names = app.registry().list()?.into_iter();
        let names = names.filter(|name| query.after.as_ref().is_none_or(|after| name.to_string() > *after));
        let mut found = app.readable(&caller, names);
        let repos = found.by_ref().take(limit).map(|(name, repo)| info(name, &repo)).collect::<Result<Vec<_>>>()?;
        let next = found.next().and_then(|_| repos.last()).map(|r| r.name.to_string());
        Ok(Json(RepoPage { repos, next }))
    })
    .await
}

/// Make a repository
#[utoipa::path(
    post, path = "/repos", tag = "repositories", request_body = NewRepo, responses((status = 201, body = RepoInfo))
)]
pub(super) async fn create(
    State(app): State<App>,
    Maker(caller): Maker,
    Body(new): Body<NewRepo>,
) -> Result<(StatusCode, Json<RepoInfo>)> {
    app.allow_making(&caller, &new.name)?;
    work(move || {
        let branch = new.branch.as_deref().unwrap_or("main");
        let mut repo = app.registry().create(&new.name, branch)?;
        if new.anonymous_read {
            repo = set(&app, &new.name, true)?;
        }
        Ok((StatusCode::CREATED, Json(info(new.name, &repo)?)))
    })
    .await
}

/// Changes a setting, also in the handle that other requests share.
fn set(app: &App, name: &RepoName, anonymous_read: bool) -> Result<Arc<Repo>> {
    app.registry().configure(name, &[(ANONYMOUS_READ, Some(if anonymous_read { "true" } else { "false" }))])
}

/// Describe a repository
#[utoipa::path(get, path = "/repos/{owner}/{name}", tag = "repositories", responses((status = 200, body = RepoInfo)))]
pub(super) async fn describe(Read(access): Read) -> Result<Json<RepoInfo>> {
    work(move || info(access.name, &access.repo).map(Json)).await
}

/// Change a repository's settings
#[utoipa::path(
    patch, path = "/repos/{owner}/{name}", tag = "repositories", request_body = RepoSettings,
    responses((status = 200, body = RepoInfo))
)]
pub(super) async fn set_up(Admin(access): Admin, Body(settings): Body<RepoSettings>) -> Result<Json<RepoInfo>> {
    work(move || {
        let mut repo = access.repo;
        if let Some(open) = settings.anonymous_read {
            repo = set(&access.app, &access.name, open)?;
        }
        info(access.name, &repo).map(Json)
    })
    .await
}
