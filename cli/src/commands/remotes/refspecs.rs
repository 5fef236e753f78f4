//! Parses the refspecs of a push: full name of each ref on the remote, and the commit it is to point at.

use crate::commands::prelude::*;
use mdl_remote::Advertised;

/// Full name of a ref on the remote, and its new commit; none: delete it.
pub type RefUpdate = (String, Option<Id>);

/// Refs to push: those that were named, else the current branch.
pub fn moved(repo: &Repo, refs: &[String], all: bool, tags: bool) -> Result<Vec<RefUpdate>> {
    let mut named = refs.to_vec();
    if all {
        named.extend(repo.refs().list(HEADS)?.into_iter().map(|(name, _)| name));
    }
    if named.is_empty() {
        let detached = || RepoError::user("HEAD is detached: it is not clear what to push", "name a branch");
        named.push(present_branch(repo)?.ok_or_else(detached)?);
    }
    if tags {
        let tags = repo.refs().list(TAGS)?;
        named.extend(tags.into_iter().map(|(name, _)| format!("{TAGS}{name}")));
    }
    named.iter().map(|text| target(repo, text)).collect()
}

/// Parses one refspec: full name on the remote, and its new commit.
fn target(repo: &Repo, text: &str) -> Result<RefUpdate> {
    if let Some((rev, name)) = text.split_once(':') {
        return renamed(repo, rev, name);
    }
    let held = mdl_repo::full_ref(repo, text)?.filter(|f| f.starts_with(HEADS) || f.starts_with(TAGS));
    let held = match held {
        Some(held) => held,
        None if text == "HEAD" => repo
            .head_branch()?
            .map_or_else(|| Err(RepoError::not_found(Missing::Branch, "HEAD")), |b| RefName::parse(&b))?,
        None => return Err(RepoError::not_found(Missing::BranchOrTag, text).into()),
    };
    let id = repo.refs().get(&held)?;
    let id = id.ok_or_else(|| RepoError::user(format!("{text} has no commit yet"), "commit first"))?;
    Ok((held.to_string(), Some(id)))
}

/// Parses `REV:NAME`. Neither may be left out: an empty revision would mean HEAD, where git deletes the name.
fn renamed(repo: &Repo, rev: &str, name: &str) -> Result<RefUpdate> {
    match (rev, name) {
        ("", "") => {
            let hint = "write REV:NAME, or the name of a branch or tag";
            return Err(CliError::usage("`:` names nothing to push", hint));
        }
        ("", name) => {
            let hint = format!("`mdl push REMOTE --delete {name}` deletes {name} there");
            let message = format!("\":{name}\": a revision is missing before the colon");
            return Err(CliError::usage(message, hint));
        }
        (rev, "") => {
            let message = format!("\"{rev}:\": a name is missing behind the colon");
            return Err(CliError::usage(message, "write REV:NAME: what it is to be called there"));
        }
        _ => {}
    }
    let id = match mdl_repo::full_ref(repo, rev)? {
        // An annotated tag stays one.
        Some(held) if held.starts_with(TAGS) => repo.refs().get(&held)?,
        _ => None,
    };
    let id = id.map_or_else(|| mdl_repo::resolve(repo, rev), Ok)?;
    let full = if name.starts_with("refs/") { name.to_owned() } else { format!("{HEADS}{name}") };
    Ok((full, Some(id)))
}

/// Refs to delete. Names are resolved against the refs of the remote: the local ones may differ. `remote` is for the
/// hint.
pub fn deleted(there: &Advertised, refs: &[String], remote: &str) -> Result<Vec<RefUpdate>> {
    let mut out: Vec<RefUpdate> = Vec::new();
    for text in refs {
        let full = gone(there, text, remote)?;
        if !out.iter().any(|(name, _)| *name == full) {
            out.push((full, None));
        }
    }
    Ok(out)
}

fn gone(there: &Advertised, text: &str, remote: &str) -> Result<String> {
    let (branch, tag) = match text.starts_with("refs/") {
        true => (text.to_owned(), text.to_owned()),
        false => (format!("{HEADS}{text}"), format!("{TAGS}{text}")),
    };
    match (there.get(&branch), there.get(&tag)) {
        (Some(_), Some(_)) if branch != tag => {
            Err(refused(format!("{text} is a branch and a tag there"), format!("say which: {branch} or {tag}")))
        }
        (Some(_), _) => Ok(branch),
        (None, Some(_)) => Ok(tag),
        (None, None) => Err(CliError::hinted(
            RepoError::not_found(Missing::BranchOrTag, format!("{text} at {remote}")),
            format!("`mdl ls-remote {remote}` lists what is there"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;
    use mdl_repo::ErrorKind;

    fn there(names: &[&str]) -> Advertised {
        let id = |name: &str| Id::from_content(Kind::Commit, name.as_bytes());
        let mut refs: Vec<(String, Id)> = names.iter().map(|n| ((*n).to_owned(), id(n))).collect();
        refs.sort();
        Advertised { head: None, refs }
    }

    #[test]
    fn what_goes_is_what_the_name_means_there() {
        let there = there(&["refs/heads/a", "refs/heads/both", "refs/tags/both", "refs/tags/v1"]);
        let full = |name: &str| gone(&there, name, "origin");
        assert_eq!(full("a").expect("a branch"), "refs/heads/a");
        assert_eq!(full("v1").expect("a tag"), "refs/tags/v1");
        assert_eq!(full("refs/tags/both").expect("a full name"), "refs/tags/both");
        let hint = full("both").expect_err("two").hint().expect("a hint");
        assert!(hint.contains("refs/heads/both") && hint.contains("refs/tags/both"), "{hint}");
        for absent in ["nope", "refs/heads/v1"] {
            let error = full(absent).expect_err(absent);
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.hint().is_some_and(|h| h.contains("mdl ls-remote origin")));
        }
        let names = ["a", "refs/heads/a"].map(str::to_owned);
        assert_eq!(deleted(&there, &names, "origin").expect("one").len(), 1);
    }
}
