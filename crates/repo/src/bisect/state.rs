//! The state of a bisection: where it began, and every verdict since.

use crate::{
    repo::Repo,
    sealed::{open, seal},
};
use mdl_objects::Id;
use mdl_store::{
    RepoError, Result,
    refs::Head,
    storage::{Key, Swap},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const KEY: Key = Key::fixed("bisect");
const HEADER: &str = "mdl bisect 1";
/// Bytes of a state at most.
const MOST: u64 = 16 << 20;

/// What a test said of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It has not what is looked for.
    Good,
    /// It has.
    Bad,
    /// It cannot be tested.
    Skip,
}

impl Verdict {
    /// As commands and JSON have it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Skip => "skip",
        }
    }
}

/// A verdict on a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The version.
    pub commit: Id,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether it is one of several noisy ones, and may be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noisy: bool,
}

/// How noisy verdicts are handled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Tests at most for each step that a search without noise would take.
    pub repeat: u32,
    /// Probability that a verdict is wrong.
    pub rate: f64,
}

/// A bisection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// Where HEAD stood: a branch's short name, or an id if it was on none.
    pub branch: Option<String>,
    pub commit: Option<Id>,
    /// Whether versions are checked out into the work tree.
    pub checkout: bool,
    /// All verdicts, in their order.
    pub marks: Vec<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

/// A state as it was read, for the swap that replaces it.
pub(super) struct StoredState {
    pub state: State,
    bytes: Option<Vec<u8>>,
}

impl State {
    /// Where HEAD stood.
    pub fn head(&self) -> Option<Head> {
        match (&self.branch, self.commit) {
            (Some(branch), _) => Some(Head::Branch(branch.clone())),
            (None, id) => id.map(Head::Detached),
        }
    }

    /// Versions of this verdict, each once: of several verdicts on a version that are not noisy the last counts.
    pub fn with_verdict(&self, verdict: Verdict) -> Vec<Id> {
        let mut last: BTreeMap<Id, Verdict> = BTreeMap::new();
        for mark in self.marks.iter().filter(|m| !m.noisy || m.verdict == Verdict::Skip) {
            last.insert(mark.commit, mark.verdict);
        }
        last.into_iter().filter(|(_, v)| *v == verdict).map(|(id, _)| id).collect()
    }
}

impl StoredState {
    /// The bisection under way, if there is one.
    pub fn read(repo: &Repo) -> Result<Option<StoredState>> {
        let Some(bytes) = repo.storage().get_within(&KEY, MOST)? else { return Ok(None) };
        let state: State = open(HEADER, "bisect", &bytes).map_err(|e| match e {
            RepoError::Corrupt { .. } => {
                RepoError::corrupt("the state of the bisection (file `bisect`)", "it is not what was written; end it")
            }
            newer => newer,
        })?;
        let sound = state.noise.is_none_or(|n| n.rate > 0.0 && n.rate < 0.5 && n.repeat > 0);
        match sound && (state.branch.is_some() || state.commit.is_some()) {
            true => Ok(Some(StoredState { state, bytes: Some(bytes) })),
            false => Err(RepoError::corrupt("the state of the bisection (file `bisect`)", "it makes no sense; end it")),
        }
    }

    /// One that is not stored yet.
    pub fn new(state: State) -> StoredState {
        StoredState { state, bytes: None }
    }

    /// Stores what the state is now; `Overtaken` where another process changed or began a bisection meanwhile.
    pub fn save(&mut self, repo: &Repo) -> Result<()> {
        let bytes = seal(HEADER, &self.state)?;
        match repo.storage().swap(&KEY, self.bytes.as_deref(), Some(&bytes))? {
            Swap::Lost(found) if found.as_deref() != Some(&bytes) => return Err(RepoError::Overtaken),
            _ => {}
        }
        self.bytes = Some(bytes);
        Ok(())
    }
}

/// Forgets the bisection, whatever is stored of it.
pub(super) fn forget(repo: &Repo) -> Result<()> {
    repo.storage().delete(&KEY)
}
