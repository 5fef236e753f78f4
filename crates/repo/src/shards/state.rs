//! The state of a session, its one deciding key: still collecting, or which commit it became.

use crate::{
    sealed::{open, seal},
    shards::Keys,
};
use mdl_objects::Id;
use mdl_store::{
    RepoError, Result,
    storage::{Storage, Swap},
};
use serde::{Deserialize, Serialize};
use std::{
    hash::{BuildHasher, RandomState},
    time::SystemTime,
};

const HEADER: &str = "mdl session 1";

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// New whenever what has been read of the session may no longer be true.
    token: String,
    /// Commits that were decided on and could not be moved to, since another writer had moved the ref.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<Decision>,
    /// The commit, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decision>,
}

/// What a session became, and what it moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Decision {
    /// The commit.
    pub commit: String,
    /// Branch that moves (short name); none for a detached HEAD.
    pub branch: Option<String>,
    /// The value of the branch (or HEAD) before; none if there was no branch.
    pub from: Option<String>,
    /// Whether it has moved.
    pub settled: bool,
    /// The records that are in it, in the order of their ranks.
    pub shards: Vec<String>,
}

/// A state as it was read, for the swap that replaces it.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredState {
    pub state: State,
    /// None if there is no state yet: the session is collecting.
    bytes: Option<Vec<u8>>,
}

impl StoredState {
    /// Reads it.
    pub fn read(storage: &dyn Storage, keys: &Keys) -> Result<StoredState> {
        let bytes = storage.get(&keys.state)?;
        let state = bytes.as_deref().map(|b| open(HEADER, &keys.state, b)).transpose()?;
        Ok(StoredState { state: state.unwrap_or_default(), bytes })
    }

    /// Whether no `join` has begun to finish the session.
    pub fn is_untouched(&self) -> bool {
        self.bytes.is_none()
    }

    /// Replaces the state, if it is unchanged; none if it is not.
    pub fn swap(&self, storage: &dyn Storage, keys: &Keys, state: State) -> Result<Option<StoredState>> {
        let bytes = seal(HEADER, &state)?;
        let done = match storage.swap(&keys.state, self.bytes.as_deref(), Some(&bytes))? {
            Swap::Done => true,
            // A swap whose reply was lost may have been made again below.
            Swap::Lost(found) => found.as_deref() == Some(&bytes),
        };
        let bytes = Some(bytes);
        Ok(done.then_some(StoredState { state, bytes }))
    }

    /// The same with a new token: a `join` that was about to decide has to read again.
    pub fn renewed(&self) -> State {
        State { token: token(), ..self.state.clone() }
    }

    /// The state with a decision.
    pub fn deciding(&self, decision: Decision) -> State {
        State { token: token(), given_up: self.state.given_up.clone(), decided: Some(decision) }
    }

    /// The state of collecting again, with the decision given up.
    pub fn reopened(&self) -> State {
        State {
            token: token(),
            given_up: self.state.given_up.iter().chain(&self.state.decided).cloned().collect(),
            decided: None,
        }
    }
}

/// An id as a state holds it.
pub(super) fn id(text: &str) -> Result<Id> {
    text.parse().map_err(|_| RepoError::corrupt("the state of a session", format!("{text:?} is no id")))
}

/// Unlike any other of any process.
fn token() -> String {
    // The hasher's keys are random; the clock tells apart what one process draws.
    let drawn = || RandomState::new().hash_one((std::process::id(), SystemTime::now()));
    format!("{:016x}{:016x}", drawn(), drawn())
}
