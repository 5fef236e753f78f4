//! Hub routes `tree` and `paths-info`: lists a version's files, paged, and looks paths up.

use crate::{
    content::Reader,
    hub::{
        files::{self, Item, Page, PathEntry},
        history,
        info::says_yes,
        site::Site,
    },
    request::{extract::encoded, prelude::*},
};
use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use url::form_urlencoded;

/// Entries on a page: as many as the Hub gives.
const PAGE: usize = 1000;
/// The same with `expand`, which adds the last commit of each.
const EXPANDED_PAGE: usize = 50;
/// Paths that may be looked up at once.
const MAX_PATHS: usize = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct TreeQuery {
    recursive: Option<String>,
    expand: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// `GET /api/models/{owner}/{name}/tree/{rev}` and `GET /api/models/{owner}/{name}/tree/{rev}/{*path}`.
pub(super) async fn below(
    Read(access): Read,
    site: Site,
    Path(at): Path<AtFile>,
    Query(query): Query<TreeQuery>,
) -> Result<Response> {
    let (recursive, expand) = (says_yes(query.recursive.as_deref()), says_yes(query.expand.as_deref()));
    let most = if expand { EXPANDED_PAGE } else { PAGE };
    let limit = query.limit.unwrap_or(most).clamp(1, most);
    let path = at.path.trim_matches('/').to_owned();
    let dir = path.clone();
    let listed = access.work(move |repo| {
        let version = Version::read(repo, revision::resolve(repo, &at.rev)?)?;
        refuse_other_hash(&at.rev, &version)?;
        let (found, more) = page(repo, &version, &dir, query.cursor.as_deref(), (recursive, limit))?;
        Ok((version, found, more))
    });
    let (version, found, more) = listed.await?;
    let next = found.last().filter(|_| more).map(|(last, _)| {
        let below = if path.is_empty() { String::new() } else { format!("/{}", encoded(&path)) };
        // The hash, not the branch: a move between two pages must not mix versions.
        let (name, commit, last) = (&access.name, super::short(&version.cache_id()), encoded(last));
        let query = format!("recursive={recursive}&expand={expand}&limit={limit}&cursor={last}");
        format!("/api/models/{name}/tree/{commit}{below}?{query}")
    });
    site.page(described(&access.reader(), version.id, found, expand).await?, next)
}

fn page(
    repo: &Repo,
    version: &Version,
    path: &str,
    cursor: Option<&str>,
    (recursive, limit): (bool, usize),
) -> Result<(Vec<PathEntry>, bool)> {
    let odb = repo.odb();
    let mut tree = version.tree;
    let mut prefix = String::new();
    if !path.is_empty() {
        let dir = files::find(odb, &tree, path)?.filter(|e| e.mode == Mode::Tree);
        let dir = dir.ok_or_else(|| no_entry(path, version))?;
        (tree, prefix) = (dir.id, format!("{path}/"));
    }
    let other = || Problem::usage("the cursor is of another listing");
    let after = cursor.map(|cursor| cursor.strip_prefix(&prefix).ok_or_else(other)).transpose()?;
    let after: Option<Vec<&str>> = after.map(|a| a.split('/').collect());
    let mut page = Page { odb, recursive, limit, found: Vec::new() };
    let more = page.fill(&tree, &prefix, after.as_deref())?;
    Ok((page.found, more))
}

/// Refuses to list under a hash what now goes by another one: the answer has no place for that, and clients keep the
/// list, and then the directory that they download to, under the hash that they asked for.
fn refuse_other_hash(rev: &str, version: &Version) -> Result<()> {
    let hash = rev.to_ascii_lowercase();
    if version.other_id().is_none_or(|id| super::short(&id) != hash) {
        return Ok(());
    }
    let now = super::short(&version.cache_id());
    let message =
        format!("revision not found: {hash}; what version {} gives now is revision {now}", version.id.short());
    Err(Problem::new(StatusCode::NOT_FOUND, "not_found", message).code("RevisionNotFound"))
}

/// Error: nothing at this path of a version; clients cache that by commit.
pub(super) fn no_entry(path: &str, version: &Version) -> Problem {
    let shown: String = path.chars().take(300).collect();
    let problem = Problem::not_found("file", shown).code("EntryNotFound");
    match super::short(&version.cache_id()).parse() {
        Ok(value) => problem.header(super::resolve::COMMIT, value),
        Err(_) => problem,
    }
}

async fn described(reader: &Reader, commit: Id, found: Vec<PathEntry>, expand: bool) -> Result<Vec<Item>> {
    if !expand {
        return files::describe(reader, found).await;
    }
    let (walked, paths) = (reader.repo.clone(), found.clone());
    let last = work(move || history::last_commits(&walked, commit, &paths)).await?;
    let mut items = files::describe(reader, found).await?;
    for (item, last) in items.iter_mut().zip(last) {
        item.last_commit = last;
    }
    Ok(items)
}

/// Paths that are looked up, in a form or in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Paths {
    paths: Vec<String>,
    expand: bool,
}

impl FromRequest<App> for Paths {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Paths> {
        let json = is_json(request.headers());
        let body = Bytes::from_request(request, app).await;
        let body = body.map_err(|e| Problem::new(e.status(), "usage", e.body_text()))?;
        let paths = match json {
            true => serde_json::from_slice(&body).map_err(|e| Problem::usage(format!("no such JSON: {e}")))?,
            false => form(&body),
        };
        if paths.paths.len() > MAX_PATHS {
            return Err(Problem::too_large(format!("more than {MAX_PATHS} paths")));
        }
        Ok(paths)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    kind.is_some_and(|k| k.starts_with("application/json"))
}

/// `paths=a&paths=b&expand=true`.
fn form(body: &[u8]) -> Paths {
    let mut out = Paths::default();
    for (key, value) in form_urlencoded::parse(body) {
        match &*key {
            "paths" | "paths[]" => out.paths.push(value.into_owned()),
            "expand" => out.expand = says_yes(Some(&value)),
            _ => {}
        }
    }
    out
}

/// `POST /api/models/{owner}/{name}/paths-info/{rev}`: of the paths that exist.
pub(super) async fn paths(Read(access): Read, Path(at): Path<AtFile>, asked: Paths) -> Result<Json<Vec<Item>>> {
    let expand = asked.expand;
    let looked = access.work(move |repo| {
        let version = Version::read(repo, revision::resolve(repo, &at.rev)?)?;
        let mut found = Vec::new();
        for path in &asked.paths {
            let path = path.trim_matches('/');
            if let Some(entry) = files::find(repo.odb(), &version.tree, path)? {
                found.push((path.to_owned(), entry));
            }
        }
        Ok((version.id, found))
    });
    let (commit, found) = looked.await?;
    described(&access.reader(), commit, found, expand).await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_both_clients_write_them() {
        let asked = form(b"paths=a+b&paths=c%2Fd%20e&expand=True&x&=");
        assert_eq!(asked.paths, ["a b", "c/d e"]);
        assert!(asked.expand);
        assert!(form(b"").paths.is_empty());
    }
}
