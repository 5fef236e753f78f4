//! Stored policies: each is a blob behind a ref below `refs/policies/`, so that every version of it stays in the reflog
//! and what a commit was made under is never guessed.

use crate::policy::{BUILT_IN, Policy};
use mdl_objects::{Id, Kind, Signature};
use mdl_store::{
    Missing, RepoError, Result, Store,
    refs::{POLICIES, RefName},
    transaction::WriteTransaction,
};
use std::path::Path;

/// A policy that can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Its name.
    pub name: String,
    /// The repository's own version; none: only the built-in one exists.
    pub id: Option<Id>,
    /// Its text.
    pub text: String,
    /// What the built-in one is, in a line; none: there is no built-in one of this name.
    pub about: Option<&'static str>,
}

fn built_in(name: &str) -> Option<(&'static str, &'static str)> {
    BUILT_IN.iter().find(|b| b.0 == name).map(|b| (b.1, b.2))
}

fn of_policy(name: &str) -> Result<RefName> {
    RefName::parse(&format!("{POLICIES}{name}"))
}

/// All policies: the built-in ones, some perhaps replaced by the repository's own, and its others.
pub fn policies(store: &Store) -> Result<Vec<StoredPolicy>> {
    let mut all: Vec<StoredPolicy> = Vec::new();
    for (name, about, text) in BUILT_IN {
        all.push(StoredPolicy { name: name.to_owned(), id: None, text: text.to_owned(), about: Some(about) });
    }
    for (name, id) in store.refs().list(POLICIES)? {
        let text = policy_text(store, &name, &id)?;
        match all.iter_mut().find(|p| p.name == name) {
            Some(p) => (p.id, p.text) = (Some(id), text),
            None => all.push(StoredPolicy { name, id: Some(id), text, about: None }),
        }
    }
    Ok(all)
}

fn policy_text(store: &Store, name: &str, id: &Id) -> Result<String> {
    let bytes = store.odb().read(id, Kind::Blob)?;
    String::from_utf8(bytes).map_err(|_| RepoError::corrupt(format!("policy {name}"), "not text"))
}

/// The policy with this name (`NAME`, or `NAME@{N}` as it was N changes ago), or in the file with this path, where
/// it has a `/` or ends in `.toml`.
pub fn policy(store: &Store, name: &str) -> Result<Policy> {
    if name.contains('/') || name.ends_with(".toml") {
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(RepoError::io(format!("cannot read {name}")))?;
        let stem = path.file_stem().map_or_else(|| name.into(), |s| s.to_string_lossy());
        return Policy::parse(&stem, &text);
    }
    let (base, back) = match name.strip_suffix('}').and_then(|n| n.split_once("@{")) {
        Some((base, n)) => (base, n.parse::<usize>().ok()),
        None => (name, Some(0)),
    };
    let missing = || RepoError::not_found(Missing::Policy, name);
    let full = of_policy(base).map_err(|_| missing())?;
    let id = match back.ok_or_else(missing)? {
        0 => store.refs().get(&full)?,
        n => {
            let log = store.refs().reflog(&full)?;
            Some(log.get(n - 1).and_then(|e| e.old).ok_or_else(missing)?)
        }
    };
    match (id, built_in(base)) {
        (Some(id), _) => Policy::parse(base, &policy_text(store, base, &id)?),
        (None, Some((_, text))) => Policy::parse(base, text),
        (None, None) => Err(missing()),
    }
}

/// Stores a policy under a name. Returns the id of its text.
///
/// # Errors
/// A bad name or policy; `Conflict` where another changed it meanwhile; an I/O error.
pub fn set_policy(store: &Store, name: &str, text: &str, who: &Signature) -> Result<Id> {
    let full = of_policy(name)?;
    if name.contains('/') || name.ends_with(".toml") {
        return Err(RepoError::user(
            format!("{name:?} would be taken for a file"),
            "a policy's name has no '/' and does not end in .toml",
        ));
    }
    Policy::parse(name, text)?;
    let transaction = WriteTransaction::begin(store)?;
    let old = store.refs().get(&full)?;
    let id = transaction.add(Kind::Blob, text.as_bytes(), [])?;
    if old != Some(id) {
        transaction.update_ref(&full, old, Some(id), who, &format!("policy: {name}"))?;
    }
    Ok(id)
}

/// Removes the repository's own policy of this name; a built-in one of the same name is in force again.
pub fn remove_policy(store: &Store, name: &str, who: &Signature) -> Result<()> {
    let missing = || RepoError::not_found(Missing::Policy, name);
    let transaction = WriteTransaction::begin(store)?;
    let full = of_policy(name).map_err(|_| missing())?;
    let old = store.refs().get(&full)?.ok_or_else(missing)?;
    transaction.update_ref(&full, Some(old), None, who, &format!("policy: {name} removed"))
}
