//! Resolves the revisions that clients send: mdl's own syntax, and the names the Hugging Face clients use.

use crate::{
    problem::{Problem, Result},
    request::today,
};
use mdl_objects::Id;
use mdl_repo::{HEADS, Head, Repo, RepoError, TAGS};

/// The commit a revision means. Where the repository knows nothing of the name, `main` is the branch that HEAD is on,
/// `step-N` the version of step N, and full names of refs are taken; so is the hash under which the Hub's clients know
/// the approximation of a version.
pub fn resolve(repo: &Repo, rev: &str) -> Result<Id> {
    let error = match mdl_repo::resolve(repo, rev) {
        Ok(id) => return Ok(id),
        Err(e @ (RepoError::NotFound { .. } | RepoError::Usage { .. })) => e,
        Err(e) => return Err(e.into()),
    };
    if is_hash(rev)
        && let Some(id) = today::by_stand_in(repo, &rev.to_ascii_lowercase())?
    {
        return Ok(id);
    }
    let step = rev.strip_prefix("step-").filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let other = match (rev, step) {
        ("main", _) => Some("HEAD".to_owned()),
        (_, Some(n)) => Some(format!("HEAD@step={n}")),
        _ => [HEADS, TAGS].iter().find_map(|p| rev.strip_prefix(p)).map(str::to_owned),
    };
    let found = other.map(|other| mdl_repo::resolve(repo, &other));
    match found {
        Some(Ok(id)) => Ok(id),
        _ => Err(Problem::from(error).code("RevisionNotFound")),
    }
}

/// Hex digits of a commit hash, as the Hub's clients know it.
pub const HASH_DIGITS: usize = 40;

/// Whether this is what the Hub's clients take for the hash of a commit, or all digits of an id.
fn is_hash(rev: &str) -> bool {
    [HASH_DIGITS, 64].contains(&rev.len()) && rev.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The branch that HEAD is on, by its short name; none: it is on a commit by itself.
pub fn head_branch(repo: &Repo) -> Result<Option<String>> {
    Ok(match repo.refs().head()? {
        Head::Branch(name) => Some(name),
        Head::Detached(_) => None,
    })
}
