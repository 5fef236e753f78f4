//! Hub route `GET /{owner}/{name}/resolve/{rev}/{path}`: downloads a file of a version.

use crate::{
    content::{self, Asked, Validator},
    hub::{files, tree::no_entry},
    request::prelude::*,
};

/// The commit that a file is from, or was not found in.
pub(super) const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");

/// `GET` or `HEAD /{owner}/{name}/resolve/{rev}/{*path}`.
pub(super) async fn file(Read(access): Read, Path(at): Path<AtFile>, asked: Asked) -> Result<Response> {
    let (rev, path) = (at.rev, at.path.clone());
    let found = access.work(move |repo| {
        let id = revision::resolve(repo, &rev).map_err(|problem| of_empty(repo, &rev, problem))?;
        let version = Version::read(repo, id)?;
        let entry = files::find(repo.odb(), &version.tree, &path)?.filter(|e| e.mode != Mode::Tree);
        Ok((version.cache_id(), entry.ok_or_else(|| no_entry(&path, &version))?))
    });
    let (id, entry) = found.await?;
    let id: HeaderValue = super::short(&id).parse().map_err(Problem::internal)?;
    match content::respond(&access.reader(), &at.path, &entry, &asked, Validator::Sha256).await {
        Ok(mut response) => {
            response.headers_mut().insert(COMMIT, id);
            Ok(response)
        }
        Err(problem) => Err(problem.header(COMMIT, id)),
    }
}

/// A repository that the Hub makes has a first version at once. The clients look for the card of one that they have
/// just made, and take it for absent if the file is, but not if the branch is.
fn of_empty(repo: &Repo, rev: &str, problem: Problem) -> Problem {
    let head = revision::head_branch(repo).ok().flatten();
    let is_unborn = repo.refs().head_commit().is_ok_and(|id| id.is_none());
    if is_unborn && (rev == "main" || head.as_deref() == Some(rev)) { problem.code("EntryNotFound") } else { problem }
}
