//! The record of versions that gave up contents: pruned ones, and aged ones, for which an approximation stands. One
//! small key, changed only by compare-and-swap.
//!
//! One key for all: pruning many versions is one step, a reader needs one read, and a writer that loses a swap reads
//! again and makes the same change to what is there now, so that no change is lost.

mod contents;
mod standing;

pub use contents::{pruned_contents, refuse_pruned};
pub(crate) use standing::hold;
pub use standing::{
    Fidelity, Standing, comparable, files, files_beside, is_collected, lacks_contents, standing, standing_tree,
};

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

/// When a version gave up contents, and by which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedMark {
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// The rules none of which kept it, in words.
    pub rules: String,
    /// Of an aged version: root directory of the approximation that stands for its exact contents. None: it was pruned.
    pub stand_in: Option<Id>,
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
        PrunedMark { time_ms: self.time_ms.min(now_ms()), rules, stand_in: self.stand_in }
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
    aged: BTreeMap<Id, PrunedMark>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    commit: String,
    time_ms: i64,
    rules: String,
    /// Of an aged version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<String>,
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

    /// Root directory of the approximation of a commit, if it aged.
    pub fn stand_in(&self, commit: &Id) -> Option<Id> {
        self.aged(commit)?.stand_in
    }

    /// All that were pruned, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &PrunedMark)> {
        self.pruned.iter()
    }

    /// All that aged, by their ids.
    pub fn iter_aged(&self) -> impl Iterator<Item = (&Id, &PrunedMark)> {
        self.aged.iter()
    }

    /// Whether nothing is on record.
    pub fn is_empty(&self) -> bool {
        self.pruned.is_empty() && self.aged.is_empty()
    }

    /// Versions pruned by the last pruning.
    pub(super) fn last(&self) -> Vec<Id> {
        let last = self.pruned.values().map(|m| m.time_ms).max();
        let of_last = self.pruned.iter().filter(|(_, m)| Some(m.time_ms) == last);
        of_last.map(|(id, _)| *id).collect()
    }

    /// Adds commits that were pruned; those that are there stay as they are.
    pub(super) fn add(&mut self, commits: impl Iterator<Item = Id>, mark: &PrunedMark) {
        commits.for_each(|id| self.note(id, mark));
    }

    /// Adds a commit that was pruned, or that aged; one that is there stays as it is.
    pub fn note(&mut self, commit: Id, mark: &PrunedMark) {
        self.marks(mark).entry(commit).or_insert_with(|| mark.clone());
    }

    /// Those of a mark's kind.
    fn marks(&mut self, mark: &PrunedMark) -> &mut BTreeMap<Id, PrunedMark> {
        if mark.stand_in.is_some() { &mut self.aged } else { &mut self.pruned }
    }

    /// Forgets the prunings of the commits for which `f` is false.
    pub fn keep(&mut self, f: impl Fn(&Id) -> bool) {
        self.pruned.retain(|id, _| f(id));
    }

    /// Forgets that the commits aged for which `f` is false.
    pub fn keep_aged(&mut self, f: impl Fn(&Id) -> bool) {
        self.aged.retain(|id, _| f(id));
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
        if !matches!(lines.next(), Some(HEADER | WITH_AGED)) {
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
        let mark = PrunedMark { time_ms: line.time_ms, rules: line.rules, stand_in };
        self.marks(&mark).insert(line.commit.parse().ok()?, mark);
        Some(())
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let header = if self.aged.is_empty() { HEADER } else { WITH_AGED };
        let mut text = format!("{header}\n");
        for (id, mark) in self.pruned.iter().chain(&self.aged) {
            let PrunedMark { time_ms, rules, stand_in } = mark.clone();
            let line = Line { commit: id.to_hex(), time_ms, rules, tree: stand_in.map(|tree| tree.to_hex()) };
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
        let mark = |i: i64, stand_in| PrunedMark { time_ms: i, rules: format!("best {i} of \"odd\nname\""), stand_in };
        let mut record = Pruned::default();
        (0..3).for_each(|i| record.note(id(Kind::Commit, i), &mark(i, None)));
        (2..4).for_each(|i| record.note(id(Kind::Commit, i), &mark(i, Some(id(Kind::Tree, i)))));
        record
    }

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_and_cut_is_seen() {
        let bytes = record().bytes().expect("bytes");
        assert_eq!(Pruned::parse(&bytes).expect("parse"), record());
        let older = Pruned { aged: BTreeMap::new(), ..record() };
        assert!(older.bytes().expect("bytes").starts_with(b"mdl pruned 1\n"));
        assert_eq!(Pruned::parse(&older.bytes().expect("bytes")).expect("parse"), older);
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
        let body = "mdl pruned 3\n";
        let text = format!("{body}{}\n", blake3::hash(body.as_bytes()).to_hex());
        let error = Pruned::parse(text.as_bytes()).expect_err("newer");
        assert!(error.hint().is_some_and(|h| h.contains("newer mdl")), "{error}");
    }
}
