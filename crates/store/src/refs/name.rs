//! Ref names: full names, and those made of the short names that users give.

use crate::{
    RepoError, Result,
    refs::{HEADS, REMOTES, TAGS},
    storage::{Key, Prefix},
};
use std::{fmt, ops::Deref};

/// Bytes of a name behind `refs/KIND/` at most.
const MAX: usize = 200;
const LOGS: Prefix = Prefix::fixed("logs/");

/// The full name of a ref: `HEAD`, or `refs/KIND/NAME` with a name that [`check_ref_name`] takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(Key);

/// Refuses names that git would refuse, and names that this program's revision syntax could not tell apart.
pub fn check_ref_name(short: &str) -> Result<()> {
    if short.len() > MAX || short == "HEAD" || !is_well_formed(short) {
        let shown: String = short.chars().take(MAX).collect();
        return Err(RepoError::user(
            format!("{shown:?} is not a valid name for a branch or tag"),
            "use letters, digits, '-', '_', '.', '=' and '/', without '..', '@{', spaces or a leading '-' or '.'; HEAD and \
             names that end in .lock are not for branches and tags",
        ));
    }
    Ok(())
}

fn is_well_formed(short: &str) -> bool {
    let bad_part =
        |p: &str| p.is_empty() || p.starts_with(['.', '-']) || p.ends_with('.') || p.ends_with(".lock") || p == "@";
    let bad_char = |c: char| c.is_control() || " ~^:?*[\\%".contains(c);
    let wrong =
        short.contains("..") || short.contains("@{") || short.chars().any(bad_char) || short.split('/').any(bad_part);
    !wrong
}

impl RefName {
    /// Where a command works.
    pub const HEAD: RefName = RefName(Key::fixed("HEAD"));

    /// A full name; the error says what is wrong with one that is none.
    pub fn parse(full: &str) -> Result<RefName> {
        if full == "HEAD" {
            return Ok(RefName::HEAD);
        }
        let none = || {
            let shown: String = full.chars().take(MAX).collect();
            let hint = "name refs/heads/..., refs/tags/... or HEAD";
            RepoError::user(format!("{shown:?} is no full name of a ref"), hint)
        };
        let rest = full.strip_prefix("refs/").ok_or_else(none)?;
        let (kind, short) = rest.split_once('/').ok_or_else(none)?;
        if !is_well_formed(kind) {
            return Err(none());
        }
        check_ref_name(short)?;
        Key::parse(full).map(RefName)
    }

    /// The branch with this short name.
    pub fn branch(short: &str) -> Result<RefName> {
        RefName::parse(&format!("{HEADS}{short}"))
    }

    /// The tag with this short name.
    pub fn tag(short: &str) -> Result<RefName> {
        RefName::parse(&format!("{TAGS}{short}"))
    }

    /// What was last seen of another place's branch.
    pub fn remote(place: &str, branch: &str) -> Result<RefName> {
        RefName::parse(&format!("{REMOTES}{place}/{branch}"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn key(&self) -> &Key {
        &self.0
    }

    /// Where its moves are written down. One flat file per ref: `a` and `a/b` may both have had a log. Ref names hold
    /// no '%'.
    pub(super) fn log_key(&self) -> Result<Key> {
        LOGS.key(&self.0.replace('/', "%2F"))
    }

    /// The ref whose log this key is. None: no ref could have that name.
    pub(super) fn of_log(key: &Key) -> Option<RefName> {
        let name = key.strip_prefix(LOGS.as_str())?;
        RefName::parse(&name.replace("%2F", "/")).ok()
    }
}

/// The prefix of all logs.
pub(super) fn logs() -> Prefix {
    LOGS
}

impl Deref for RefName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: AsRef<str> + ?Sized> PartialEq<T> for RefName {
    fn eq(&self, other: &T) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_head_and_well_formed_names_below_refs_are_names_of_refs() {
        for full in ["HEAD", "refs/heads/main", "refs/heads/a/b", "refs/remotes/origin/a", "refs/policies/p=1"] {
            let name = RefName::parse(full).expect(full);
            assert_eq!(name, full);
            let log = name.log_key().expect("a key");
            assert_eq!(RefName::of_log(&log), Some(name), "{log}");
        }
        let elsewhere = ["/dev/zero", "/etc/passwd", "refs/heads//dev/zero", "config", "logs/HEAD", "format", "x/HEAD"];
        let upward = ["refs/heads/../../config", "refs/../HEAD", "../HEAD", "refs/heads/..", "refs/./heads/a"];
        let no_name =
            ["", "refs", "refs/", "refs/heads", "refs/heads/", "refs/heads/HEAD", "refs//a", "refs/heads/a%2Fb"];
        for full in [&elsewhere[..], &upward, &no_name].concat() {
            assert!(RefName::parse(full).is_err(), "{full}");
        }
        assert!(RefName::branch(&"x".repeat(MAX)).is_ok() && RefName::branch(&"x".repeat(MAX + 1)).is_err());
        assert!(RefName::of_log(&Key::fixed("logs/config")).is_none());
    }
}
