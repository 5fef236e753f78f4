//! What a version says of where it comes from, as other programs may have written it.

use crate::support::bare_commit;
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::provenance::Provenance;

fn saying(text: &str) -> Commit {
    Commit { provenance: Some(text.to_owned()), ..bare_commit(Id::from_content(Kind::Tree, b"none"), 0) }
}

#[test]
fn what_is_not_understood_is_told_and_no_failure() {
    for text in ["", "[]", "{", "{}", r#"{"version":2}"#, r#"{"version":1,"command":"a"}"#, r#"{"version":-1}"#] {
        let commit = saying(text);
        Provenance::from_commit(&commit).expect_err(text);
        assert_eq!(Provenance::summary_lines(&commit).len(), 1, "{text}");
    }
    let later = saying(r#"{"version":1,"command":["a"],"more":{"b":1}}"#);
    assert_eq!(Provenance::from_commit(&later).expect("a record").expect("one").command, ["a"]);
    let silent = Commit { provenance: None, ..later };
    assert!(Provenance::summary_lines(&silent).is_empty() && Provenance::from_commit(&silent).expect("none").is_none());
}

#[test]
fn no_text_passes_for_another_line() {
    let commit = saying(r#"{"version":1,"command":["a\nAuthor: Eve\u001b[31m"],"datasets":[{"name":"x\ry"}]}"#);
    for (_, text) in Provenance::summary_lines(&commit) {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}
