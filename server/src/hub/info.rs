//! Hub routes `GET /api/models...`: lists models and describes one.

use crate::{
    auth::{Caller, is_open},
    hub::{
        files::{self, Item, Page, PathEntry},
        short,
        site::Site,
    },
    registry::RepoName,
    request::{extract::encoded, prelude::*},
};
use jiff::Timestamp;
use std::sync::Arc;

/// Models on a page of the list: by default, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;
/// Files that a description names.
const MAX_FILES: usize = 100_000;

/// A file of a model.
#[derive(Debug, Serialize)]
struct Sibling {
    rfilename: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(rename = "blobId", skip_serializing_if = "Option::is_none")]
    blob_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lfs: Option<files::Lfs>,
}

/// A model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    id: String,
    model_id: String,
    author: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
    private: bool,
    gated: bool,
    disabled: bool,
    downloads: u64,
    likes: u64,
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    siblings: Option<Vec<Sibling>>,
}

/// The revision in the path; none: HEAD.
#[derive(Debug, Deserialize)]
pub(super) struct AtHeadOrRev {
    rev: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct InfoQuery {
    blobs: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListQuery {
    search: Option<String>,
    author: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    full: Option<String>,
}

/// Parses a boolean parameter in any of the clients' forms.
pub(super) fn says_yes(value: Option<&str>) -> bool {
    matches!(value, Some("1" | "true" | "True"))
}

/// Formats a time as these clients parse it.
pub(super) fn date(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

fn model(name: &RepoName, repo: &Repo, head: Option<&Version>) -> Model {
    Model {
        id: name.to_string(),
        model_id: name.to_string(),
        author: name.owner().to_owned(),
        sha: head.map(|v| short(&v.cache_id())),
        last_modified: head.map(|v| date(v.commit.author.time_ms)),
        private: !is_open(repo),
        gated: false,
        disabled: false,
        downloads: 0,
        likes: 0,
        tags: Vec::new(),
        siblings: None,
    }
}

/// The commit of a revision; none: it is the first branch of a repository that has no commit yet.
fn commit_of(repo: &Repo, rev: Option<&str>) -> Result<Option<Id>> {
    let default = revision::head_branch(repo)?;
    let rev = rev.unwrap_or("HEAD");
    match repo.refs().head_commit()? {
        None if rev == "main" || rev == "HEAD" || Some(rev) == default.as_deref() => Ok(None),
        _ => revision::resolve(repo, rev).map(Some),
    }
}

/// `GET /api/models/{name}`: every model here has an owner.
pub(super) async fn without_owner() -> Problem {
    Problem::not_found("repository", "models are called OWNER/NAME here").code("RepoNotFound")
}

/// `GET /api/models/{owner}/{name}` and `GET /api/models/{owner}/{name}/revision/{rev}`.
pub(super) async fn info(
    Read(access): Read,
    Path(at): Path<AtHeadOrRev>,
    Query(query): Query<InfoQuery>,
) -> Result<Json<Model>> {
    let (reader, name, repo) = (access.reader(), access.name, access.repo);
    let (mut model, found) = work(move || {
        let Some(id) = commit_of(&repo, at.rev.as_deref())? else {
            return Ok((model(&name, &repo, None), Vec::new()));
        };
        let version = Version::read(&repo, id)?;
        let mut page = Page { odb: repo.odb(), recursive: true, limit: MAX_FILES, found: Vec::new() };
        page.fill(&version.tree, "", None)?;
        let found = page.found.into_iter().filter(|(_, entry)| entry.mode != Mode::Tree).collect();
        Ok((model(&name, &repo, Some(&version)), found))
    })
    .await?;
    let plain = |(rfilename, _): PathEntry| Sibling { rfilename, size: None, blob_id: None, lfs: None };
    let full =
        |item: Item| Sibling { rfilename: item.path, size: Some(item.size), blob_id: Some(item.oid), lfs: item.lfs };
    model.siblings = Some(match says_yes(query.blobs.as_deref()) {
        false => found.into_iter().map(plain).collect(),
        true => files::describe(&reader, found).await?.into_iter().map(full).collect(),
    });
    Ok(Json(model))
}

/// `GET /api/models`.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    site: Site,
    Query(query): Query<ListQuery>,
) -> Result<Response> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let wanted = query.clone();
    let (models, more) = work(move || listed(&app, &caller, &wanted, limit)).await?;
    let next = models.last().filter(|_| more).map(|last| {
        let same = [("search", &query.search), ("author", &query.author), ("full", &query.full)];
        let same = same.into_iter().filter_map(|(key, v)| Some(format!("&{key}={}", encoded(v.as_ref()?))));
        format!("/api/models?cursor={}&limit={limit}{}", encoded(&last.id), same.collect::<String>())
    });
    site.page(models, next)
}

impl ListQuery {
    /// Whether a model is wanted.
    fn has(&self, name: &RepoName) -> bool {
        let text = name.to_string();
        self.cursor.as_ref().is_none_or(|after| text > *after)
            && self.author.as_ref().is_none_or(|author| name.owner() == author)
            && self.search.as_ref().is_none_or(|s| text.to_lowercase().contains(&s.to_lowercase()))
    }
}

/// The models that are wanted and that the caller may read, and whether there are more.
fn listed(app: &App, caller: &Caller, wanted: &ListQuery, limit: usize) -> Result<(Vec<Model>, bool)> {
    let mut names = app.registry().list()?;
    // As their text, by which the next page begins.
    names.sort_by_cached_key(RepoName::to_string);
    let mut found = app.readable(caller, names.into_iter().filter(|name| wanted.has(name)));
    let listed = |(name, repo): (RepoName, Arc<Repo>)| {
        let head = repo.refs().head_commit().ok().flatten();
        let head = head.and_then(|id| Version::read(&repo, id).ok());
        model(&name, &repo, head.as_ref())
    };
    let models = found.by_ref().take(limit).map(listed).collect();
    Ok((models, found.next().is_some()))
}
