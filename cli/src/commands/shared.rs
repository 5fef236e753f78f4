//! Shared by several commands: `REV:PATH`, moving HEAD, arguments that are globs and times.

use crate::{
    context::Context,
    errors::{CliError, Result},
    render::entry::{left_out, marked_at},
};
use mdl_objects::{Id, Kind, Tag};
use mdl_repo::{
    Change, CheckedOut, CheckoutOptions, Fidelity, HEADS, Head, Level, Missing, Progress, RefName, Repo, RepoError,
    Standing, TAGS,
};
use std::path::Path;

pub use mdl_server::api::entry::Notes;

/// Splits `REV:PATH`; ref names hold no colon.
pub fn split_path(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((rev, path)) => (if rev.is_empty() { "HEAD" } else { rev }, Some(path)),
        None => (text, None),
    }
}

/// Splits `REV:PATH`; a path is required.
pub fn need_path(text: &str) -> Result<(&str, &str)> {
    match split_path(text) {
        (rev, Some(path)) if !path.is_empty() => Ok((rev, path)),
        _ => Err(CliError::usage(format!("{text:?} names no file"), "write REV:PATH, such as main:model.safetensors")),
    }
}

/// The tag of this id; none if it is something else.
pub fn tag_object(repo: &Repo, id: &Id) -> Result<Option<Tag>> {
    let is_tag = repo.odb().locate(id)?.is_some_and(|l| l.record.kind == Kind::Tag);
    Ok(is_tag.then(|| repo.odb().tag(id)).transpose()?)
}

/// The branch that HEAD is on, by its short name.
pub fn present_branch(repo: &Repo) -> Result<Option<String>> {
    Ok(repo.refs().head()?.branch().map(str::to_owned))
}

pub fn branch_tip(repo: &Repo, name: &str) -> Result<Option<Id>> {
    match RefName::branch(name) {
        Ok(full) => Ok(repo.refs().get(&full)?),
        Err(_) => Ok(None),
    }
}

/// Where HEAD, every branch and every tag stand.
pub fn every_ref(repo: &Repo) -> Result<Vec<Id>> {
    let mut starts: Vec<Id> = repo.refs().head_commit()?.into_iter().collect();
    for prefix in [HEADS, TAGS] {
        for (_, id) in repo.refs().list(prefix)? {
            starts.push(mdl_repo::peel(repo, &id)?);
        }
    }
    Ok(starts)
}

/// How close what a version gives is to what training had, for programs; none: it cannot be told.
pub fn fidelity(repo: &Repo, id: &Id) -> Result<Option<&'static str>> {
    let (record, commit) = (mdl_repo::pruned(repo)?, repo.odb().commit(id)?);
    Ok(record.fidelity(repo.odb(), id, &commit).ok().map(Fidelity::name))
}

/// A note on a version of which something is gone.
pub fn note_approximate(context: &Context, repo: &Repo, id: &Id) -> Result<()> {
    let Standing::StandIn(_, mark) = mdl_repo::standing(repo, id, &repo.odb().commit(id)?)? else { return Ok(()) };
    let (short, since, rules) = (id.short(), marked_at(&mark), &mark.rules);
    context.note(&match mark.level() {
        Level::Weights => format!(
            "note: {short} has weights and no optimizer state: {} went after {since} (kept were: {rules})",
            left_out(&mark)
        ),
        Level::Approximate | Level::Gone => format!(
            "note: {short} is approximate: its exact contents went after {since} ({rules}). `mdl show {short}` has its \
             errors"
        ),
    });
    Ok(())
}

/// What moving HEAD did to the work tree.
#[derive(Debug, Default)]
pub struct Moved {
    pub files: CheckedOut,
    /// Changed files that were left as they are.
    pub changed: Vec<(String, Change)>,
}

impl From<CheckedOut> for Moved {
    fn from(files: CheckedOut) -> Moved {
        Moved { files, changed: Vec::new() }
    }
}

/// Points HEAD at a commit and checks its files out into the work tree. If HEAD is at that commit already, changed
/// files are no conflict: they stay, as in git.
pub fn move_head(repo: &Repo, commit: &Id, head: &Head, force: bool, progress: &dyn Progress) -> Result<Moved> {
    if !force && mdl_repo::work_tree_base(repo)? == Some(*commit) && repo.refs().head_commit()? == Some(*commit) {
        let changes = mdl_repo::status(repo, progress)?;
        if changes.iter().any(|c| c.1 == Change::Modified) {
            mdl_repo::attach(repo, head, Some(*commit), progress)?;
            return Ok(Moved {
                files: CheckedOut::default(),
                changed: changes.into_iter().filter(|c| c.1 != Change::Added).collect(),
            });
        }
    }
    let options = CheckoutOptions { force, ..CheckoutOptions::default() };
    Ok(mdl_repo::checkout(repo, commit, head, &options, progress)?.into())
}

pub fn not_found(what: Missing, name: impl ToString) -> CliError {
    CliError::Repo(RepoError::not_found(what, name))
}

pub fn refused(message: impl Into<String>, hint: impl Into<mdl_repo::Remedy>) -> CliError {
    CliError::Repo(RepoError::user(message, hint))
}

/// Refuses to commit the repository's own directory: it would grow with every commit.
pub fn refuse_repository(repo: &Repo, path: &Path) -> Result<()> {
    let inside = |dir: &Path| path.canonicalize().is_ok_and(|p| p.starts_with(dir));
    if repo.dir().is_some_and(inside) {
        let hint = "name the directory of the checkpoint, or none for the work tree";
        return Err(refused(format!("{} is the repository itself", path.display()), hint));
    }
    Ok(())
}

/// Whether a name matches a pattern in which `*` is any text and `?` any character. Without either: the name itself.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // reach[i]: the pattern read so far matches the first i characters of the name.
    let mut reach = vec![false; name.len() + 1];
    reach[0] = true;
    for p in pattern {
        let mut next = vec![false; name.len() + 1];
        for i in 0..=name.len() {
            next[i] = match p {
                '*' => reach[i] || i > 0 && next[i - 1],
                '?' => i > 0 && reach[i - 1],
                c => i > 0 && reach[i - 1] && name[i - 1] == c,
            };
        }
        reach = next;
    }
    reach[name.len()]
}

/// Whether a name matches one of the patterns, or there are none.
pub fn is_chosen<P: AsRef<str>>(patterns: &[P], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|p| glob(p.as_ref(), name))
}

/// Seconds of `90`, `90s`, `30m`, `1h`, `7d` or `2w`.
pub fn parse_age(text: &str) -> std::result::Result<u64, String> {
    const UNITS: [(char, u64); 5] = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600), ('w', 7 * 24 * 3600)];
    let with_unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    let (number, seconds) = with_unit.unwrap_or((text, 1));
    let age = number.parse().ok().and_then(|n: u64| n.checked_mul(seconds));
    age.ok_or_else(|| "a time is a number of seconds, or a number with s, m, h, d or w behind it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let all = ["90", "90s", "30m", "1h", "7d", "2w"].map(|t| parse_age(t).expect("an age"));
        assert_eq!(all, [90, 90, 1800, 3600, 604_800, 1_209_600]);
        for bad in ["", "h", "1.5h", "-1", "1 h", "99999999999999999w"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn globs_and_paths() {
        assert!(glob("exp/*", "exp/a/b") && glob("v?.*", "v1.0") && glob("main", "main") && glob("*", ""));
        assert!(!glob("exp/*", "main") && !glob("v?", "v10") && !glob("mai", "main"));
        assert_eq!(split_path("main~1:a/b"), ("main~1", Some("a/b")));
        assert_eq!(split_path(":a"), ("HEAD", Some("a")));
        assert!(need_path("main").is_err() && need_path("main:").is_err());
    }
}
