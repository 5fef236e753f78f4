//! The record of versions that gave up contents: pruned ones, aged ones, for which an approximation stands, and those
//! that lost their optimizer state. One small key, changed only by compare-and-swap.
//!
//! One key for all: pruning many versions is one step, a reader needs one read, and a writer that loses a swap reads
//! again and makes the same change to what is there now, so that no change is lost.

mod contents;
mod standing;
mod weights;

pub use contents::{pruned_contents, refuse_pruned};
pub(crate) use standing::hold;
pub use standing::{
    Fidelity, Standing, comparable, files, files_beside, is_collected, lacks_contents, resume, standing, standing_tree,
    with_tree,
};
pub(crate) use weights::is_part;
pub use weights::{LeftOut, LeftOutFiles, may_stand, whole_tree};

use crate::repo::Repo;
use mdl_objects::Id;
use mdl_store::{
    RepoError, Result,
    lock::now_ms,
    storage::{Key, Storage, Swap},
    transaction::WriteTransaction,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const KEY: Key = Key::fixed("pruned");
const HEADER: &str = "mdl pruned 1";
/// Of a record with aged versions: a program that knows none would take them for pruned.
const WITH_AGED: &str = "mdl pruned 2";
/// Of a record with versions that lost their optimizer state: a program that knows none would take them for aged.
const WITH_WEIGHTS: &str = "mdl pruned 3";
/// How the rules of a version begin that aged by a policy.
pub(crate) const BY_POLICY: &str = "exact: ";

/// What is left of a version that gave up contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing but its commit.
    #[default]
    Gone,
    /// All but its optimizer state: of its approximation, if it has one.
    Weights,
    /// Its approximation.
    Approximate,
}

impl Level {
    /// Every level, least first.
    pub const ALL: [Level; 3] = [Level::Gone, Level::Weights, Level::Approximate];

    /// As options, JSON and Python have it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Gone => "gone",
            Level::Weights => "weights",
            Level::Approximate => "approximate",
        }
    }
}

/// When a version gave up contents, and by which rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedMark {
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// The rules none of which kept it, in words.
    pub rules: String,
    /// Root directory of what stands for the version: of an aged one its approximation, else what is left without
    /// optimizer state. None: it was pruned.
    pub stand_in: Option<Id>,
    /// Files that `stand_in` lacks of the version's approximation, or of what was committed where there is none. Empty
    /// unless it lost its optimizer state.
    pub without: LeftOutFiles,
}

/// Characters of the rules of a mark that travels.
const LONGEST: usize = 1000;

impl PrunedMark {
    /// The mark as it is sent. Rules may name thousands of steps, and each version has them; control characters that a
    /// terminal obeys are not sent on, nor a time of pruning in the future.
    #[must_use]
    pub fn short(&self) -> PrunedMark {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let rules = self.rules.chars().take(LONGEST).map(plain).collect();
        let without = if self.stand_in.is_some() { self.without.clone() } else { LeftOutFiles::default() };
        PrunedMark { time_ms: self.time_ms.min(now_ms()), rules, stand_in: self.stand_in, without }
    }

    /// What it leaves of the version.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.stand_in {
            None => Level::Gone,
            Some(_) if self.without.is_empty() => Level::Approximate,
            Some(_) => Level::Weights,
        }
    }

    /// The error for a reader that wants the contents of such a version.
    pub fn error(&self, commit: &Id) -> RepoError {
        RepoError::Pruned { commit: *commit, time_ms: self.time_ms, rules: self.rules.clone() }
    }
}

/// The versions that gave up contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pruned: BTreeMap<Id, PrunedMark>,
    weights: BTreeMap<Id, PrunedMark>,
    aged: BTreeMap<Id, PrunedMark>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    commit: String,
    time_ms: i64,
    rules: String,
    /// Of an aged version, and of one without its optimizer state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<String>,
    /// Of one without its optimizer state.
    #[serde(default, skip_serializing_if = "LeftOutFiles::is_empty")]
    without: LeftOutFiles,
}

impl PrunedMark {
    /// Whether the rules of a policy took a version's exact contents, and not a call.
    pub(crate) fn is_by_policy(&self) -> bool {
        self.rules.starts_with(BY_POLICY)
    }
}

impl Pruned {
    /// The mark of a commit, if it was pruned.
    pub fn get(&self, commit: &Id) -> Option<&PrunedMark> {
        self.pruned.get(commit)
    }

    /// The mark of a commit, if it aged.
    pub fn aged(&self, commit: &Id) -> Option<&PrunedMark> {
        self.aged.get(commit)
    }

    /// The mark of a commit, if it lost its optimizer state.
    pub fn weights(&self, commit: &Id) -> Option<&PrunedMark> {
        self.weights.get(commit)
    }

    /// The mark of a commit of this level.
    pub fn at(&self, level: Level, commit: &Id) -> Option<&PrunedMark> {
        self.of_level(level).get(commit)
    }

    /// The marks that say what stands for a commit, the most that may be left of it first.
    pub fn stand_ins(&self, commit: &Id) -> impl DoubleEndedIterator<Item = &PrunedMark> {
        self.aged(commit).into_iter().chain(self.weights(commit))
    }

    /// All that were pruned, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &PrunedMark)> {
        self.pruned.iter()
    }

    /// All for which something else stands: those that aged, then those without their optimizer state.
    pub fn iter_stand_ins(&self) -> impl Iterator<Item = (&Id, &PrunedMark)> {
        self.aged.iter().chain(&self.weights)
    }

    /// Whether nothing is on record.
    pub fn is_empty(&self) -> bool {
        Level::ALL.iter().all(|level| self.of_level(*level).is_empty())
    }

    /// The last pruning: its versions, each with what it left of them. What ages by a policy is no pruning.
    pub(super) fn last(&self) -> Vec<(Id, Level)> {
        let all = Level::ALL.iter().flat_map(|level| self.of_level(*level));
        let prunings = || all.clone().filter(|(_, m)| !m.is_by_policy());
        let last = prunings().map(|(_, m)| m.time_ms).max();
        prunings().filter(|(_, m)| Some(m.time_ms) == last).map(|(id, m)| (*id, m.level())).collect()
    }

    /// Adds the mark of a commit; one of its level that is there stays as it is.
    pub fn note(&mut self, commit: Id, mark: &PrunedMark) {
        self.of_level_mut(mark.level()).entry(commit).or_insert_with(|| mark.clone());
    }

    fn of_level(&self, level: Level) -> &BTreeMap<Id, PrunedMark> {
        match level {
            Level::Gone => &self.pruned,
            Level::Weights => &self.weights,
            Level::Approximate => &self.aged,
        }
    }

    fn of_level_mut(&mut self, level: Level) -> &mut BTreeMap<Id, PrunedMark> {
        match level {
            Level::Gone => &mut self.pruned,
            Level::Weights => &mut self.weights,
            Level::Approximate => &mut self.aged,
        }
    }

    /// Forgets the marks for which `f` is false.
    pub fn keep(&mut self, f: impl Fn(Level, &Id) -> bool) {
        for level in Level::ALL {
            self.of_level_mut(level).retain(|id, _| f(level, id));
        }
    }

    fn parse(bytes: &[u8]) -> Result<Pruned> {
        let bad = || {
            RepoError::corrupt(
                "the record of pruned versions (file `pruned`)",
                "its checksum is wrong; put it back from a copy of the repository",
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
        let (body, sum) = text.trim_end().rsplit_once('\n').ok_or_else(bad)?;
        let body = format!("{body}\n");
        if blake3::hash(body.as_bytes()).to_hex().as_str() != sum {
            return Err(bad());
        }
        let mut lines = body.lines();
        if !matches!(lines.next(), Some(HEADER | WITH_AGED | WITH_WEIGHTS)) {
            return Err(RepoError::user(
                "the record of pruned versions is not of a format this program reads",
                "it was made by a newer mdl: update this one",
            ));
        }
        let mut out = Pruned::default();
        for line in lines {
            out.read_line(line).ok_or_else(bad)?;
        }
        Ok(out)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let line: Line = serde_json::from_str(line).ok()?;
        let stand_in = line.tree.map(|tree| tree.parse()).transpose().ok()?;
        if stand_in.is_none() && !line.without.is_empty() {
            return None;
        }
        let mark = PrunedMark { time_ms: line.time_ms, rules: line.rules, stand_in, without: line.without };
        self.of_level_mut(mark.level()).insert(line.commit.parse().ok()?, mark);
        Some(())
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let header = match (self.aged.is_empty(), self.weights.is_empty()) {
            (_, false) => WITH_WEIGHTS,
            (false, _) => WITH_AGED,
            _ => HEADER,
        };
        let mut text = format!("{header}\n");
        for (id, mark) in self.pruned.iter().chain(&self.aged).chain(&self.weights) {
            let PrunedMark { time_ms, rules, stand_in, without } = mark.clone();
            let tree = stand_in.map(|tree| tree.to_hex());
            let line = Line { commit: id.to_hex(), time_ms, rules, tree, without };
            let line = serde_json::to_string(&line);
            text.push_str(&line.map_err(|e| RepoError::io("cannot write the record of pruned versions")(e.into()))?);
            text.push('\n');
        }
        let sum = blake3::hash(text.as_bytes()).to_hex();
        text.push_str(&format!("{sum}\n"));
        Ok(text.into_bytes())
    }
}

/// Makes a change to the record as it is when the change is written.
///
/// # Errors
/// The record is damaged or newer than this program; an I/O error: then the change was made or it was not.
pub fn change(transaction: &WriteTransaction<'_>, storage: &dyn Storage, f: impl Fn(&mut Pruned)) -> Result<()> {
    let mut found = storage.get(&KEY)?;
    loop {
        let old = found.as_deref().map_or(Ok(Pruned::default()), Pruned::parse)?;
        let mut new = old.clone();
        f(&mut new);
        if new == old {
            return Ok(());
        }
        let value = if new.is_empty() { None } else { Some(new.bytes()?) };
        // Taking a mark away makes the contents reachable.
        transaction.revalidate()?;
        match storage.swap(&KEY, found.as_deref(), value.as_deref())? {
            Swap::Done => return Ok(()),
            Swap::Lost(other) => found = other,
        }
    }
}

/// The versions that gave up contents, whether these are still there or not.
///
/// # Errors
/// The record is damaged or newer than this program; an I/O error.
pub fn pruned(repo: &Repo) -> Result<Pruned> {
    let bytes = repo.storage().get(&KEY)?;
    bytes.as_deref().map_or(Ok(Pruned::default()), Pruned::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;

    fn record() -> Pruned {
        let id = |kind, i: i64| Id::from_content(kind, &[i as u8]);
        let rules = |i| format!("best {i} of \"odd\nname\"");
        let mark = |i: i64, stand_in| PrunedMark { time_ms: i, rules: rules(i), stand_in, ..PrunedMark::default() };
        let mut record = Pruned::default();
        (0..3).for_each(|i| record.note(id(Kind::Commit, i), &mark(i, None)));
        (2..4).for_each(|i| record.note(id(Kind::Commit, i), &mark(i, Some(id(Kind::Tree, i)))));
        let file = LeftOut { manifest: true, id: id(Kind::Manifest, 9), size: 7, executable: true };
        let without = LeftOutFiles::from([("optimizer.pt".to_owned(), file)]);
        (3..5).for_each(|i| {
            let weights = PrunedMark { without: without.clone(), ..mark(i, Some(id(Kind::Tree, -i))) };
            record.note(id(Kind::Commit, i), &weights);
        });
        record
    }

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_and_cut_is_seen() {
        let bytes = record().bytes().expect("bytes");
        assert_eq!(Pruned::parse(&bytes).expect("parse"), record());
        assert!(bytes.starts_with(b"mdl pruned 3\n"));
        let aged = Pruned { weights: BTreeMap::new(), ..record() };
        let pruned = Pruned { aged: BTreeMap::new(), ..aged.clone() };
        for (older, header) in [(aged, "mdl pruned 2\n"), (pruned, "mdl pruned 1\n")] {
            let bytes = older.bytes().expect("bytes");
            assert!(bytes.starts_with(header.as_bytes()), "{header}");
            assert_eq!(Pruned::parse(&bytes).expect("parse"), older);
        }
        for i in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[i / 8] ^= 1 << (i % 8);
            // The last newline is the only byte that says nothing.
            let parsed = Pruned::parse(&bad);
            assert!(parsed.is_err() || parsed.is_ok_and(|p| p == record() && i / 8 + 1 == bytes.len()));
        }
        for n in 0..bytes.len() - 1 {
            assert!(Pruned::parse(&bytes[..n]).is_err(), "{n} bytes");
        }
    }

    #[test]
    fn a_newer_record_is_not_guessed_at() {
        let body = "mdl pruned 4\n";
        let text = format!("{body}{}\n", blake3::hash(body.as_bytes()).to_hex());
        let error = Pruned::parse(text.as_bytes()).expect_err("newer");
        assert!(error.hint().is_some_and(|h| h.contains("newer mdl")), "{error}");
    }
}
