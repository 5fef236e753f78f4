//! Routes about one version: its commit, its tree, the tensors of a file.

use crate::{
    api::{
        entry::{CommitInfo, Notes},
        files,
        listing::{self, Errors, FileInfo, TensorInfo, ViewInfo},
    },
    request::prelude::*,
};

/// Files or tensors on a page: by default, and at most.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TreeQuery {
    /// Only this file, or the files below this directory.
    path: Option<String>,
    /// With the tensors of every file.
    #[serde(default)]
    tensors: bool,
    /// The `next` of the page before: a path.
    after: Option<String>,
    /// Files a page, and tensors.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
}

/// Some files of a version, by path.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TreePage {
    /// The version.
    commit: String,
    files: Vec<FileInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TensorsQuery {
    /// The `next` of the page before.
    #[param(minimum = 0)]
    after: Option<u32>,
    /// Tensors and views a page.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
}

/// Some tensors of a file, and, on the last pages, its views.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TensorsPage {
    /// The version.
    commit: String,
    path: String,
    format: &'static str,
    tensors: Vec<TensorInfo>,
    views: Vec<ViewInfo>,
    /// Pass as `after` for the next page; none: this is the last.
    next: Option<u32>,
}

/// Describe a version
#[utoipa::path(get, path = "/commits/{rev}", tag = "versions", responses((status = 200, body = CommitInfo)))]
pub(super) async fn commit(Read(access): Read, Path(at): Path<AtRev>) -> Result<Json<CommitInfo>> {
    work(move || {
        let id = revision::resolve(&access.repo, &at.rev)?;
        let commit = access.repo.odb().commit(&id)?;
        Ok(Json(Notes::read(&access.repo)?.commit_info(access.repo.odb(), &id, &commit)?))
    })
    .await
}

/// List the files of a version
#[utoipa::path(
    get, path = "/tree/{rev}", tag = "versions", params(TreeQuery), responses((status = 200, body = TreePage))
)]
pub(super) async fn tree(
    Read(access): Read,
    Path(at): Path<AtRev>,
    Query(query): Query<TreeQuery>,
) -> Result<Json<TreePage>> {
    work(move || page(&access.repo, &at.rev, &query).map(Json)).await
}

fn page(repo: &Repo, rev: &str, query: &TreeQuery) -> Result<TreePage> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let id = revision::resolve(repo, rev)?;
    let version = Version::read(repo, id)?;
    let mut all = version.files(repo)?;
    let path = query.path.as_deref().map(|p| p.trim_matches('/')).filter(|p| !p.is_empty() && *p != ".");
    if let Some(path) = path {
        let dir = format!("{path}/");
        all.retain(|p, _| p == path || p.starts_with(&dir));
        if all.is_empty() {
            return Err(RepoError::not_found(Missing::File, path).into());
        }
    }
    let errors = Errors::from_version(repo, &version)?;
    let mut out = TreePage { commit: id.to_hex(), files: Vec::new(), next: None };
    let (mut room, mut last) = (limit, None);
    for (path, entry) in all.iter().filter(|(p, _)| query.after.as_ref().is_none_or(|after| *p > after)) {
        let manifest = listing::manifest(repo, entry)?;
        let mut info = listing::file(path, entry, manifest.as_ref());
        let inside = manifest.as_ref().map_or(0, |m| m.tensors.len() + m.views.len());
        let wanted = if query.tensors { inside } else { 0 };
        let fits = wanted <= room;
        // What does not fit on this page may fit on the next, unless it fits on none.
        if out.files.len() == limit || (!fits && wanted <= limit) {
            out.next = last;
            break;
        }
        if let (true, true, Some(m)) = (query.tensors, fits, &manifest) {
            let tensors = listing::tensors(repo, path, m, 0..m.tensors.len(), &errors)?;
            info = info.with(tensors, listing::views(m, 0..m.views.len()));
            room -= wanted;
        } else if query.tensors && manifest.is_none() {
            info = info.with(Vec::new(), Vec::new());
        }
        out.files.push(info);
        last = Some(path.clone());
    }
    Ok(out)
}

/// List the tensors of a file, and how they are stored
#[utoipa::path(
    get, path = "/tensors/{rev}/{*path}", tag = "versions", params(TensorsQuery),
    responses((status = 200, body = TensorsPage))
)]
pub(super) async fn tensors(
    Read(access): Read,
    Path(at): Path<AtFile>,
    Query(query): Query<TensorsQuery>,
) -> Result<Json<TensorsPage>> {
    work(move || {
        let repo = &*access.repo;
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let (version, entry) = files::find(repo, &at.rev, &at.path)?;
        let mut out = TensorsPage {
            commit: version.id.to_hex(),
            format: "plain",
            path: at.path,
            tensors: Vec::new(),
            views: Vec::new(),
            next: None,
        };
        let Some(m) = listing::manifest(repo, &entry)? else {
            return Ok(Json(out));
        };
        let errors = Errors::from_version(repo, &version)?;
        // Tensors and, behind them, views are counted as one list.
        let (stored, all) = (m.tensors.len(), m.tensors.len() + m.views.len());
        let start = (query.after.unwrap_or(0) as usize).min(all);
        let end = start.saturating_add(limit).min(all);
        out.format = mdl_repo::format_name(m.format);
        out.tensors = listing::tensors(repo, &out.path, &m, start.min(stored)..end.min(stored), &errors)?;
        out.views = listing::views(&m, start.max(stored) - stored..end.max(stored) - stored);
        out.next = (end < all).then(|| u32::try_from(end).ok()).flatten();
        Ok(Json(out))
    })
    .await
}
