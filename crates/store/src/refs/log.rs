//! The reflog: every move of a ref, and of HEAD.
//!
//! A log line is appended *before* its ref moves, so no move is ever missing; a line whose move did not happen is not
//! part of the chain that ends at the ref's present value, and reading follows that chain.

use crate::{
    RepoError, Result,
    refs::{HEAD, RefName, Refs, name::logs},
};
use mdl_objects::{Id, Signature};
use serde::{Deserialize, Serialize};

/// One move of a ref. A line of the log is its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Value before; none if the ref was made.
    pub old: Option<Id>,
    /// Value after; none if it was deleted.
    pub new: Option<Id>,
    /// Author and time of the move.
    #[serde(flatten)]
    pub who: Signature,
    /// The reason, such as `commit: better data`.
    pub message: String,
}

impl LogEntry {
    /// A move whose reason is cut to what a log takes.
    pub(crate) fn new(old: Option<Id>, new: Option<Id>, who: &Signature, message: &str) -> LogEntry {
        LogEntry { old, new, who: who.clone(), message: message.chars().take(MAX_LINE).collect() }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        // The newline leads: a line torn by a kill then spoils only itself.
        out.push(b'\n');
        serde_json::to_writer(out, self).map_err(|e| RepoError::io("cannot write the reflog")(e.into()))
    }
}

/// Characters of a move's reason at most.
const MAX_LINE: usize = 1000;
/// Bytes of a log at most: half a million moves.
const MOST: u64 = 128 << 20;

/// Moves that happened, newest first: for a ref the chain that ends at its present value.
fn entries(name: &RefName, mut at: Option<Id>, bytes: &[u8]) -> Vec<LogEntry> {
    let lines = bytes.split(|&b| b == b'\n');
    let mut entries: Vec<LogEntry> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    entries.reverse();
    if *name == HEAD {
        return entries;
    }
    let happened = |e: &LogEntry| {
        let follows = e.new == at;
        if follows {
            at = e.old;
        }
        follows
    };
    entries.retain(happened);
    entries
}

impl Refs {
    /// Logs a move of HEAD that has happened.
    pub(crate) fn log_head(&self, made: &LogEntry) {
        // An error here would say that nothing happened, and the move would be made twice. Both commits are named by
        // other lines: the branch's, and the one that brought HEAD to the old commit.
        let _ = self.log(&HEAD, made);
    }

    pub(crate) fn log(&self, name: &RefName, made: &LogEntry) -> Result<()> {
        let mut bytes = Vec::new();
        made.write(&mut bytes)?;
        self.storage.append(&name.log_key()?, &bytes)
    }

    /// Moves of a ref, newest first. Lines that make no sense are passed over; a log that is too large is `Corrupt`.
    pub fn reflog(&self, name: &RefName) -> Result<Vec<LogEntry>> {
        // Before its log: a move between the two is then not in the chain yet, instead of breaking it.
        let at = if *name == HEAD { None } else { self.get(name)? };
        let bytes = self.storage.get_within(&name.log_key()?, MOST)?.unwrap_or_default();
        Ok(entries(name, at, &bytes))
    }

    /// Names of all refs that have a log, `HEAD` included. A log whose name no ref could have is skipped.
    pub fn logged(&self) -> Result<Vec<RefName>> {
        let listed = self.storage.list(&logs())?;
        Ok(listed.iter().filter_map(|s| RefName::of_log(&s.key)).collect())
    }

    /// Keeps a ref's newest moves for as long as `keep` holds, going back, and forgets the rest. The caller keeps
    /// writers out; where that cannot be done, a log that grows meanwhile stays as it is. After an I/O error the log is
    /// the old one or the shortened one.
    pub(crate) fn keep_log(&self, name: &RefName, keep: &dyn Fn(&LogEntry) -> bool) -> Result<()> {
        let at = if *name == HEAD { None } else { self.get(name)? };
        let key = name.log_key()?;
        let old = self.storage.get_within(&key, MOST)?;
        let log = entries(name, at, old.as_deref().unwrap_or_default());
        let kept = log.iter().take_while(|e| keep(e)).count();
        if kept == log.len() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for e in log.iter().take(kept).rev() {
            e.write(&mut bytes)?;
        }
        if !self.storage.excludes() {
            let new = (!bytes.is_empty()).then_some(bytes.as_slice());
            return self.storage.swap(&key, old.as_deref(), new).map(drop);
        }
        if bytes.is_empty() {
            self.storage.delete(&key)
        } else {
            // At once or not at all: a kill must not lose moves that are to be kept.
            self.storage.put(&key, &bytes)
        }
    }
}
