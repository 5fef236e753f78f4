//! Unsafe file names: those that must not get onto a disk below a work tree, since a file system or a program there
//! takes them for more than a name.
//!
//! Old trees may hold such names, and stay readable. No new one does, and none is checked out.

use crate::{ObjectError, check_name};

/// Directories whose contents programs act on: a checked-out `.git/config` runs commands.
const RESERVED: [&str; 2] = [".git", ".mdl"];

/// Refuses names that no tree takes, and those that are `.git` or `.mdl` by themselves or to a file system that folds
/// case (any), passes over code points (HFS+), or drops dots and spaces at the end and what follows a colon (NTFS),
/// where `git~1` is another name for `.git`.
pub fn check_new_name(name: &str) -> Result<(), ObjectError> {
    check_name(name)?;
    match is_reserved(name) {
        false => Ok(()),
        true => Err(ObjectError::Name {
            name: name.to_owned(),
            reason: "the directory of a repository, or what a file system may take for one",
        }),
    }
}

fn is_reserved(name: &str) -> bool {
    let seen: String = name.chars().filter(|c| !is_passed_over(*c)).collect();
    let seen = seen.split(':').next().unwrap_or_default();
    let seen = seen.trim_end_matches(['.', ' ']);
    RESERVED.iter().any(|reserved| {
        let short = seen.split_once('~').filter(|(_, n)| !n.is_empty());
        let short = short.filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
        seen.eq_ignore_ascii_case(reserved)
            || short.is_some_and(|(stem, _)| stem.eq_ignore_ascii_case(reserved.trim_start_matches('.')))
    })
}

/// What HFS+ leaves out when it compares names.
fn is_passed_over(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_file_system_takes_for_a_repository_is_refused() {
        let plain = [".git", ".GIT", ".Git", ".gIt", ".mdl", ".MDL"];
        let hfs = [".g\u{200c}it", "\u{feff}.git", ".git\u{200d}", ".\u{202e}g\u{206f}it", ".m\u{200b}dl\u{200c}"];
        let ntfs = [".git.", ".git ", ".git . .", "git~1", "GIT~1", "Git~2", "mdl~1", "MDL~1 .", ".mdl.", ".mdl "];
        let streams = [".git:x", ".git::$INDEX_ALLOCATION", ".GIT.:a:b", "git~1:x", ".mdl::$INDEX_ALLOCATION"];
        for name in [&plain[..], &hfs[..4], &ntfs, &streams].concat() {
            assert!(check_new_name(name).is_err(), "{name:?}");
        }
        // A zero-width space is a code point like any other.
        assert!(check_new_name(hfs[4]).is_ok());
    }

    #[test]
    fn names_that_only_look_alike_are_names() {
        let good =
            [".gitignore", ".gitattributes", ".mdlignore", "git", "mdl", "git~", "git~x", "a.git", "my.mdl", "x:y"];
        for name in [&good[..], &[".git-old", "...", "a.", "digit~1", ".gitlab-ci.yml", "größe"]].concat() {
            assert!(check_new_name(name).is_ok(), "{name:?}");
        }
        for bad in ["", "..", "a/b", "a\\b"] {
            assert!(check_new_name(bad).is_err(), "{bad:?}");
        }
    }
}
