//! Refs, HEAD and the reflog: names that move by compare-and-swap, every move written down. Neighbours: `Storage` below,
//! transactions above. It must not know what a commit holds.
//!
//! A log line is appended *before* its ref moves, so no move is ever missing; a line whose move did not happen is not part
//! of the chain that ends at the ref's present value, and reading follows that chain.

use crate::{
    RepoError, Result,
    storage::{Storage, Swap},
};
use mdl_objects::{Id, Signature};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Prefix of branches.
pub const HEADS: &str = "refs/heads/";
/// Prefix of tags.
pub const TAGS: &str = "refs/tags/";
const HEAD: &str = "HEAD";

/// Where a command works: on a branch (that may have no commit yet), or on a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A branch, by its short name.
    Branch(String),
    /// A commit, on no branch.
    Detached(Id),
}

/// One move of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Value before; none if the ref was made.
    pub old: Option<Id>,
    /// Value after; none if it was deleted.
    pub new: Option<Id>,
    /// Who moved it, and when.
    pub who: Signature,
    /// What for, such as `commit: better data`.
    pub message: String,
}

#[derive(Serialize, Deserialize)]
struct LogLine {
    old: Option<String>,
    new: Option<String>,
    name: String,
    email: String,
    time_ms: i64,
    utc_offset_min: i32,
    message: String,
}

impl LogLine {
    fn entry(self) -> Option<LogEntry> {
        let id = |text: Option<String>| match text {
            None => Some(None),
            Some(hex) => hex.parse().ok().map(Some),
        };
        let who = Signature {
            name: self.name,
            email: self.email,
            time_ms: self.time_ms,
            utc_offset_min: self.utc_offset_min,
        };
        Some(LogEntry {
            old: id(self.old)?,
            new: id(self.new)?,
            who,
            message: self.message,
        })
    }
}

/// The refs of a repository.
#[derive(Clone, Debug)]
pub struct Refs {
    storage: Arc<dyn Storage>,
}

/// Refuses names that git would refuse, and names that this program's revision syntax could not tell apart.
///
/// # Errors
/// Says what is wrong.
pub fn check_ref_name(short: &str) -> Result<()> {
    let bad_part =
        |p: &str| p.is_empty() || p.starts_with(['.', '-']) || p.ends_with('.') || p.ends_with(".lock") || p == "@";
    let bad_char = |c: char| c.is_control() || " ~^:?*[\\%".contains(c);
    let wrong = short.len() > 200
        || short.contains("..")
        || short.contains("@{")
        || short == HEAD
        || short.chars().any(bad_char)
        || short.split('/').any(bad_part);
    if wrong {
        return Err(RepoError::user(
            format!("{short:?} is not a valid name for a branch or tag"),
            "use letters, digits, '-', '_', '.', '=' and '/', without '..', '@{', spaces or a leading '-' or '.'; HEAD and \
             names that end in .lock are not for branches and tags",
        ));
    }
    Ok(())
}

fn log_key(name: &str) -> String {
    // One flat file per ref: `a` and `a/b` may both have had a log. Ref names hold no '%'.
    format!("logs/{}", name.replace('/', "%2F"))
}

fn parse_id(name: &str, bytes: &[u8]) -> Result<Id> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end()
        .parse()
        .map_err(|_| RepoError::corrupt(format!("ref {name}"), "it holds no object id"))
}

fn ref_bytes(id: &Id) -> Vec<u8> {
    format!("{id}\n").into_bytes()
}

impl Refs {
    /// The refs in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Refs {
        Refs { storage }
    }

    /// Where HEAD points.
    ///
    /// # Errors
    /// There is none or it is damaged; the medium failed.
    pub fn head(&self) -> Result<Head> {
        let bytes = self
            .storage
            .get(HEAD)?
            .ok_or_else(|| RepoError::corrupt(HEAD, "missing"))?;
        let text = String::from_utf8(bytes).map_err(|_| RepoError::corrupt(HEAD, "not text"))?;
        match text.trim_end().strip_prefix("ref: ") {
            Some(full) => match full.strip_prefix(HEADS) {
                Some(branch) => Ok(Head::Branch(branch.to_owned())),
                None => Err(RepoError::corrupt(HEAD, "it points at no branch")),
            },
            None => parse_id(HEAD, text.as_bytes()).map(Head::Detached),
        }
    }

    /// The commit HEAD stands on; none on a branch without commits.
    ///
    /// # Errors
    /// Damaged refs; the medium failed.
    pub fn head_commit(&self) -> Result<Option<Id>> {
        match self.head()? {
            Head::Branch(branch) => self.get(&format!("{HEADS}{branch}")),
            Head::Detached(id) => Ok(Some(id)),
        }
    }

    /// Points HEAD elsewhere and logs it.
    ///
    /// # Errors
    /// The medium failed.
    pub fn set_head(&self, head: &Head, who: &Signature, message: &str) -> Result<()> {
        let old = self.head_commit().ok().flatten();
        let (value, new) = match head {
            Head::Branch(b) => (
                format!("ref: {HEADS}{b}\n").into_bytes(),
                self.get(&format!("{HEADS}{b}"))?,
            ),
            Head::Detached(id) => (ref_bytes(id), Some(*id)),
        };
        self.storage.put(HEAD, &value)?;
        self.log(HEAD, old, new, who, message)
    }

    /// Writes HEAD of a repository being made.
    ///
    /// # Errors
    /// The medium failed.
    pub fn init_head(&self, branch: &str) -> Result<()> {
        self.storage.put(HEAD, format!("ref: {HEADS}{branch}\n").as_bytes())
    }

    /// Value of a full ref name.
    ///
    /// # Errors
    /// Damaged; the medium failed.
    pub fn get(&self, name: &str) -> Result<Option<Id>> {
        self.storage.get(name)?.map(|bytes| parse_id(name, &bytes)).transpose()
    }

    /// All refs below a prefix, with the names that follow it.
    ///
    /// # Errors
    /// Damaged; the medium failed.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Id)>> {
        let mut out = Vec::new();
        for stored in self.storage.list(prefix)? {
            if let (Some(short), Some(id)) = (stored.key.strip_prefix(prefix), self.get(&stored.key)?) {
                out.push((short.to_owned(), id));
            }
        }
        Ok(out)
    }

    /// Moves (or with `new` none deletes) a ref that stands at `expected` (none: does not exist).
    ///
    /// # Errors
    /// `Conflict` where it stands elsewhere; a name that collides with a directory of names; the medium failed.
    pub fn update(
        &self,
        name: &str,
        expected: Option<Id>,
        new: Option<Id>,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        if expected.is_none() {
            self.check_free(name)?;
        }
        self.log(name, expected, new, who, message)?;
        let as_bytes = |id: Option<Id>| id.as_ref().map(ref_bytes);
        let (old, value) = (as_bytes(expected), as_bytes(new));
        match self.storage.swap(name, old.as_deref(), value.as_deref())? {
            Swap::Done => {}
            Swap::Lost(found) => {
                let found = found.map(|bytes| parse_id(name, &bytes)).transpose()?;
                return Err(RepoError::Conflict {
                    name: name.to_owned(),
                    expected,
                    found,
                });
            }
        }
        let on_it = matches!(self.head(), Ok(Head::Branch(b)) if name.strip_prefix(HEADS) == Some(&b));
        if on_it {
            self.log(HEAD, expected, new, who, message)
        } else {
            Ok(())
        }
    }

    /// Refuses `a` where `a/b` exists and the other way round.
    fn check_free(&self, name: &str) -> Result<()> {
        let taken = |other: &str| {
            RepoError::user(
                format!("cannot make {name}: {other} exists"),
                "choose a name that is no part of it",
            )
        };
        if let Some(below) = self.storage.list(&format!("{name}/"))?.first() {
            return Err(taken(&below.key));
        }
        for (i, _) in name.match_indices('/').skip(2) {
            if self.storage.get(&name[..i])?.is_some() {
                return Err(taken(&name[..i]));
            }
        }
        Ok(())
    }

    fn log(&self, name: &str, old: Option<Id>, new: Option<Id>, who: &Signature, message: &str) -> Result<()> {
        let mut bytes = Vec::new();
        write_line(&mut bytes, old, new, who, message)?;
        self.storage.append(&log_key(name), &bytes)
    }

    /// Moves of a ref (full name, or `HEAD`), newest first.
    ///
    /// # Errors
    /// The medium failed. Lines that make no sense are passed over.
    pub fn reflog(&self, name: &str) -> Result<Vec<LogEntry>> {
        let bytes = self.storage.get(&log_key(name))?.unwrap_or_default();
        let lines = bytes
            .split(|&b| b == b'\n')
            .filter_map(|l| serde_json::from_slice::<LogLine>(l).ok());
        let mut entries: Vec<LogEntry> = lines.filter_map(LogLine::entry).collect();
        entries.reverse();
        if name == HEAD {
            return Ok(entries);
        }
        let mut at = self.get(name)?;
        let happened = |e: &LogEntry| {
            let follows = e.new == at;
            if follows {
                at = e.old;
            }
            follows
        };
        entries.retain(happened);
        Ok(entries)
    }

    /// Names of all refs that have a log, `HEAD` included.
    ///
    /// # Errors
    /// The medium failed.
    pub fn logged(&self) -> Result<Vec<String>> {
        let keys = self.storage.list("logs/")?;
        Ok(keys
            .iter()
            .filter_map(|s| s.key.strip_prefix("logs/"))
            .map(|k| k.replace("%2F", "/"))
            .collect())
    }

    /// Keeps a ref's newest moves for as long as `keep` holds, going back, and forgets the rest. The caller keeps writers
    /// out.
    ///
    /// # Errors
    /// The medium failed: the old log stands.
    pub fn keep_log(&self, name: &str, keep: &dyn Fn(&LogEntry) -> bool) -> Result<()> {
        let log = self.reflog(name)?;
        let kept = log.iter().take_while(|e| keep(e)).count();
        if kept == log.len() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for e in log.iter().take(kept).rev() {
            write_line(&mut bytes, e.old, e.new, &e.who, &e.message)?;
        }
        if bytes.is_empty() {
            self.storage.delete(&log_key(name))
        } else {
            // At once or not at all: a kill must not lose moves that are to be kept.
            self.storage.put(&log_key(name), &bytes)
        }
    }
}

fn write_line(out: &mut Vec<u8>, old: Option<Id>, new: Option<Id>, who: &Signature, message: &str) -> Result<()> {
    let line = LogLine {
        old: old.map(|id| id.to_hex()),
        new: new.map(|id| id.to_hex()),
        name: who.name.clone(),
        email: who.email.clone(),
        time_ms: who.time_ms,
        utc_offset_min: who.utc_offset_min,
        message: message.to_owned(),
    };
    // The newline leads: a line torn by a kill then spoils only itself.
    out.push(b'\n');
    serde_json::to_writer(out, &line).map_err(|e| RepoError::io("cannot write the reflog")(e.into()))
}
