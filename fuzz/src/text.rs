//! Target: text that users, clients and servers send: names, revisions, locations, patterns, policies, responses.

use crate::repo;
use mdl_objects::{Id, check_new_name};
use mdl_remote::{place::Place, read_refs, sync::Filter};
use mdl_repo::{Axis, Policy, RefName, Slice, check_path, check_ref_name};
use mdl_server::registry::RepoName;
use std::sync::OnceLock;

/// The first byte says what the rest is read as.
pub fn text(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    if kind % 9 == 8 {
        return answer(data);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    match kind % 9 {
        0 => ref_name(text),
        1 => revision(text),
        2 => place(text),
        3 => {
            if let Ok(only) = Filter::new(&text.lines().map(str::to_owned).collect::<Vec<_>>()) {
                let _ = only.file(text) || only.tensor(text, text);
            }
        }
        4 => {
            if let Ok(slice) = text.parse::<Slice>() {
                let Ok(axes) = slice.apply(&[3, 4, 5]) else { return };
                let inside = |(a, n): (&Axis, u64)| a.count == 0 || a.start + (a.count - 1) * a.step < n;
                assert!(axes.iter().zip([3, 4, 5]).all(inside), "elements outside of the tensor");
            }
        }
        5 => drop(Policy::parse("p", text)),
        6 => {
            if let Ok(name) = text.parse::<RepoName>() {
                assert!(name.to_string().parse::<RepoName>().is_ok_and(|n| n == name), "a name has two spellings");
            }
        }
        _ => {
            if let Ok(id) = text.parse::<Id>() {
                assert!(id.to_hex() == text, "an id has two spellings");
            }
            let _ = check_new_name(text);
        }
    }
}

/// What a server answers: two bytes of status, then the body.
fn answer(data: &[u8]) {
    let Some((status, body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let status = u16::from_le_bytes(*status) % 600;
    if let Err(e) = read_refs(status, body) {
        let _ = (e.kind(), e.to_string(), e.hint().map(|h| h.len()));
    }
}

fn ref_name(text: &str) {
    let short = check_ref_name(text).is_ok();
    if let Ok(name) = RefName::parse(text) {
        assert!(name.as_str() == text);
    }
    if short {
        let branch = RefName::branch(text).expect("a good short name");
        assert!(!branch.contains("..") && !branch.contains("//"), "a name that leaves its directory");
    }
    if check_path(text).is_ok() {
        let up = text.split('/').any(|part| part == ".." || part == "." || part.is_empty());
        assert!(!up, "a path that leaves its directory");
    }
}

fn revision(text: &str) {
    static REPO: OnceLock<mdl_repo::Repo> = OnceLock::new();
    let repo = REPO.get_or_init(|| repo::open(&repo::storage(&repo::small().values)).expect("a repository"));
    if let Ok(id) = mdl_repo::resolve(repo, text) {
        assert!(repo::small().versions.contains(&id), "a revision that is no version");
    }
}

/// A place that is shown is read again, as one that is shown the same.
fn place(text: &str) {
    if let Ok(place) = Place::parse(text) {
        let shown = place.to_string();
        let again = Place::parse(&shown).map(|p| p.to_string());
        assert!(again.is_ok_and(|a| a == shown), "{text:?} is shown as {shown:?}");
    }
}
