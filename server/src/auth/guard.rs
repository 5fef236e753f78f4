//! Whether a server is open to all users of its machine or asks for tokens: decided at start, and only ever tightened.
//!
//! A server is open only where its state directory never had a token and nothing but this machine can ask. What a
//! directory has had is a file in it, made with the first token, which outlives the tokens.

use crate::{
    auth::Tokens,
    problem::{Problem, Result},
    process::state::{failed, write_private},
    request::stamp::Stamp,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

const FILE: &str = "guarded";
const WHY: &[u8] = b"This server has had tokens: it asks for them, however many are left.\n\
    Remove this file and tokens.json to open it again.\n";

/// Marker file in the state directory: it ever had a token.
#[derive(Clone, Debug)]
pub(super) struct Marker(PathBuf);

impl Marker {
    /// In a state directory.
    pub(super) fn new(state: &Path) -> Marker {
        Marker(state.join(FILE))
    }

    /// Records that there is, or is about to be, a token.
    pub(super) fn set(&self) -> Result<()> {
        if self.is_set()? {
            return Ok(());
        }
        write_private(&self.0, WHY).map_err(failed("write", &self.0))
    }

    /// Returns whether there ever was a token.
    pub(super) fn is_set(&self) -> Result<bool> {
        let found = Stamp::from_path(&self.0).map_err(|e| Problem::internal(format!("{}: {e}", self.0.display())))?;
        Ok(found.is_some())
    }
}

/// Whether the server requires tokens.
#[derive(Debug)]
pub struct Guard(AtomicBool);

impl Guard {
    /// State at start; `local`: only this machine can connect.
    pub fn at_start(tokens: &Tokens, local: bool) -> Result<Guard> {
        let had = tokens.were_ever_made()?;
        if had {
            // Also for a state directory from before this file existed.
            tokens.marker.set()?;
        }
        Ok(Guard(AtomicBool::new(had || !local)))
    }

    /// Returns whether every caller on this machine may do everything. The first token ends that, for good. Where that
    /// cannot be read, nothing is allowed.
    pub fn is_open(&self, tokens: &Tokens) -> Result<bool> {
        if self.0.load(Ordering::Acquire) {
            return Ok(false);
        }
        if !tokens.were_ever_made()? {
            return Ok(true);
        }
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::warn!("guarded from now on: a token was made");
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{NewToken, Scope};
    use std::fs;

    fn token() -> NewToken {
        NewToken { name: "ada".to_owned(), repo: "**".to_owned(), scope: Scope::Admin, expires_ms: None }
    }

    #[test]
    fn the_first_token_guards_and_nothing_opens_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let guard = Guard::at_start(&tokens, true).expect("started");
        assert!(guard.is_open(&tokens).expect("read"));
        let (made, _) = tokens.create(token()).expect("made");
        // No request came while there was a token.
        tokens.revoke(&made.id).expect("revoked");
        assert!(!guard.is_open(&tokens).expect("read"));
        for lost in ["tokens.json", FILE] {
            fs::remove_file(dir.path().join(lost)).expect("lost");
            assert!(!guard.is_open(&tokens).expect("read"), "{lost} is lost");
            let again = Guard::at_start(&tokens, true).expect("started");
            assert_eq!(again.is_open(&tokens).expect("read"), lost == FILE, "only one without both is new");
        }
    }

    #[test]
    fn tokens_from_before_there_was_a_marker_guard_for_good() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("tokens.json"), r#"{"version": 1, "tokens": []}"#).expect("written");
        let tokens = Tokens::new(dir.path());
        assert!(!Guard::at_start(&tokens, true).expect("started").is_open(&tokens).expect("read"));
        fs::remove_file(dir.path().join("tokens.json")).expect("lost");
        assert!(!Guard::at_start(&tokens, true).expect("started").is_open(&tokens).expect("read"));
    }

    #[test]
    fn a_server_that_others_reach_is_never_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        assert!(!Guard::at_start(&tokens, false).expect("started").is_open(&tokens).expect("read"));
    }
}
