//! Notes: metrics and texts on versions that exist already, without changing their ids.
//!
//! All notes are behind one ref, which points at a commit without parents; its tree has a file for each first byte of
//! the ids of versions that have notes. So notes are kept, checked, sent and received as versions are, a change writes
//! one small file anew, and what the notes were before stays in the reflog. The ref moves by compare-and-swap; who
//! loses makes the same change to what is there now.

mod record;

pub use record::{Note, NoteValue, VersionNotes};

use crate::repo::Repo;
use mdl_objects::{Commit, Entry, Id, Kind, Mode, Signature, Summary, Tree};
use mdl_store::{
    RepoError, Result,
    lock::now_ms,
    refs::{NOTES, RefName},
    transaction::WriteTransaction,
};
use record::check;
use std::{collections::BTreeMap, thread::sleep, time::Duration};

/// Bytes of all notes at most.
const MOST: u64 = 64 << 20;
/// How often a change is made anew because another process changed the notes meanwhile.
const TRIES: u32 = 64;

fn of_notes() -> Result<RefName> {
    RefName::parse(NOTES)
}

/// The number or text that a user wrote.
pub fn note_value(text: &str) -> NoteValue {
    text.trim().parse().map_or_else(|_| NoteValue::Text(text.to_owned()), NoteValue::Metric)
}

/// All notes.
///
/// # Errors
/// They are damaged, or newer than this program; an I/O error.
pub fn notes(repo: &Repo) -> Result<VersionNotes> {
    match repo.refs().get(&of_notes()?)? {
        None => Ok(VersionNotes::default()),
        // They are replaced as a whole; what was read of them may be gone when the next part is read.
        Some(id) => repo.odb().retry_on_repack(|| notes_at(repo, &id)),
    }
}

/// All notes, for a listing of versions: damaged ones, which a check tells of, must not hide the versions.
///
/// # Errors
/// They are newer than this program; an I/O error.
pub fn shown_notes(repo: &Repo) -> Result<VersionNotes> {
    match notes(repo) {
        Err(RepoError::Corrupt { .. } | RepoError::NotFound { .. }) => Ok(VersionNotes::default()),
        found => found,
    }
}

/// The notes that a commit of notes has.
///
/// # Errors
/// As [`notes`].
pub fn notes_at(repo: &Repo, commit: &Id) -> Result<VersionNotes> {
    let mut out = VersionNotes::default();
    for entry in tree_of(repo, commit)?.entries {
        out.merge(&read_part(repo, &entry)?);
    }
    Ok(out)
}

/// Refuses a commit whose tree has other things than notes: one that came from elsewhere must not become the ref.
///
/// # Errors
/// As [`notes`].
pub fn check_notes(repo: &Repo, commit: &Id) -> Result<()> {
    for entry in tree_of(repo, commit)?.entries {
        let first = first_byte(&entry.name);
        let part = read_part(repo, &entry)?;
        if first.is_none_or(|first| part.parts().iter().any(|b| *b != first)) {
            return Err(RepoError::corrupt("notes on versions", "a file is not of the versions that its name says"));
        }
    }
    Ok(())
}

fn tree_of(repo: &Repo, commit: &Id) -> Result<Tree> {
    let commit = repo.odb().commit(commit)?;
    if !commit.parents.is_empty() {
        return Err(RepoError::corrupt("notes on versions", "what the ref points at has parents, and is no notes"));
    }
    let tree = repo.odb().tree(&commit.tree)?;
    let size = tree.entries.iter().fold(0, |sum: u64, e| sum.saturating_add(e.size));
    match size <= MOST && tree.entries.iter().all(|e| e.mode == Mode::Blob) {
        true => Ok(tree),
        false => Err(RepoError::corrupt("notes on versions", "their files are no small blobs")),
    }
}

fn read_part(repo: &Repo, entry: &Entry) -> Result<VersionNotes> {
    let stored = repo.odb().find(&entry.id, Kind::Blob)?.record.logical;
    if stored != entry.size {
        return Err(RepoError::corrupt("notes on versions", "a file of them has another size than its directory says"));
    }
    VersionNotes::parse(&repo.odb().read(&entry.id, Kind::Blob)?)
}

fn file_name(first: u8) -> String {
    format!("{first:02x}")
}

fn first_byte(name: &str) -> Option<u8> {
    u8::from_str_radix(name, 16).ok().filter(|first| file_name(*first) == name)
}

/// Notes values under keys on a version; none removes what is noted there. `who` none: the author in the settings.
/// Returns whether anything changed.
///
/// # Errors
/// A key or a value that is none; there is no such commit; `Conflict` where other processes changed the notes again
/// and again; an I/O error: the change was made, or it was not.
pub fn set_notes(
    repo: &Repo,
    commit: &Id,
    values: &BTreeMap<String, Option<NoteValue>>,
    who: Option<&Signature>,
) -> Result<bool> {
    values.iter().try_for_each(|(key, value)| check(key, value.as_ref()))?;
    // What is no version would be noted for ever.
    repo.odb().commit(commit)?;
    let who = repo.config().moved_by(who);
    change(repo, &who, "notes: changed", &mut |now| {
        for (key, value) in values {
            let last = now.get(commit, key);
            if last.and_then(|n| n.value.as_ref()) == value.as_ref() {
                continue;
            }
            // Later than what it replaces, whatever the clocks said.
            let time_ms = last.map_or(i64::MIN, |n| n.time_ms.saturating_add(1)).max(now_ms());
            now.set(*commit, key, Note { time_ms, by: record::name(&who.name), value: value.clone() });
        }
        now.check_keys(commit)
    })
}

/// Removes what is noted on a version under these keys; none: all. Returns whether anything was.
///
/// # Errors
/// As [`set_notes`].
pub fn remove_notes(repo: &Repo, commit: &Id, keys: &[String]) -> Result<bool> {
    let all = notes(repo)?;
    let there = all.on(commit).map(|(key, ..)| key.to_owned());
    let chosen = there.filter(|key| keys.is_empty() || keys.contains(key));
    set_notes(repo, commit, &chosen.map(|key| (key, None)).collect(), None)
}

/// Takes in the notes that a commit of notes from elsewhere has: key by key the later note counts. Returns where the
/// ref stands now.
///
/// # Errors
/// They are damaged; as [`set_notes`].
pub fn merge_notes(repo: &Repo, theirs: &Id) -> Result<Id> {
    check_notes(repo, theirs)?;
    let other = notes_at(repo, theirs)?;
    let name = of_notes()?;
    let their_tree = repo.odb().commit(theirs)?.tree;
    let who = repo.config().signature();
    for tries in 0..TRIES {
        let transaction = WriteTransaction::begin_at(repo, theirs)?;
        let found = repo.refs().get(&name)?;
        let mut merged = found.map(|id| notes_at(repo, &id)).transpose()?.unwrap_or_default();
        merged.merge(&other);
        let new = write(&transaction, found, &merged, &who)?;
        // The same notes elsewhere are the same commit, or two places would go on telling each other.
        let tree = repo.odb().commit(&new)?.tree;
        let kept = found.filter(|id| repo.odb().commit(id).is_ok_and(|c| c.tree == tree));
        let new = kept.unwrap_or(if tree == their_tree { *theirs } else { new });
        if found == Some(new) {
            return Ok(new);
        }
        match transaction.update_ref(&name, found, Some(new), &who, "notes: merged") {
            Err(RepoError::Conflict { .. } | RepoError::Overtaken) if tries + 1 < TRIES => pause(tries),
            done => return done.map(|()| new),
        }
    }
    Err(RepoError::Overtaken)
}

fn pause(tries: u32) {
    sleep(Duration::from_millis(u64::from(1 + tries.min(20))));
}

/// Makes a change to the notes as they are when it is stored.
fn change(
    repo: &Repo,
    who: &Signature,
    message: &str,
    f: &mut dyn FnMut(&mut VersionNotes) -> Result<()>,
) -> Result<bool> {
    let name = of_notes()?;
    for tries in 0..TRIES {
        let transaction = WriteTransaction::begin(repo)?;
        let found = repo.refs().get(&name)?;
        let old = found.map(|id| notes_at(repo, &id)).transpose()?.unwrap_or_default();
        let mut new = old.clone();
        f(&mut new)?;
        if new == old {
            return Ok(false);
        }
        let written = write(&transaction, found, &new, who);
        match written.and_then(|id| transaction.update_ref(&name, found, Some(id), who, message)) {
            Err(RepoError::Conflict { .. } | RepoError::Overtaken) if tries + 1 < TRIES => pause(tries),
            done => return done.map(|()| true),
        }
    }
    Err(RepoError::Overtaken)
}

/// Stores notes, of whose files those that are there already stay as they are; returns their commit.
fn write(transaction: &WriteTransaction<'_>, old: Option<Id>, notes: &VersionNotes, who: &Signature) -> Result<Id> {
    let (mut objects, mut entries) = (Vec::new(), Vec::new());
    for first in notes.parts() {
        let bytes = notes.part(first).bytes()?;
        let size = bytes.len() as u64;
        let id = Id::from_content(Kind::Blob, &bytes);
        entries.push(Entry { name: file_name(first), mode: Mode::Blob, executable: false, size, id });
        objects.push((Kind::Blob, bytes));
    }
    let logical_bytes = entries.iter().map(|e| e.size).sum();
    if logical_bytes > MOST {
        let hint = "note fewer or shorter things: what was removed is remembered, too";
        return Err(RepoError::user(format!("all notes together would have more than {} MiB", MOST >> 20), hint));
    }
    let summary = Summary { files: entries.len() as u64, logical_bytes, ..Summary::default() };
    let tree = Tree { entries }.encode();
    let commit = Commit {
        tree: Id::from_content(Kind::Tree, &tree),
        parents: Vec::new(),
        author: who.clone(),
        message: "notes on versions".to_owned(),
        step: None,
        epoch: None,
        metrics: BTreeMap::new(),
        meta: BTreeMap::new(),
        summary,
        report: None,
        resumed_from: None,
        quality: None,
        side: Vec::new(),
        resume: None,
        approximation: None,
        provenance: None,
        signature: None,
        unknown: Vec::new(),
    };
    let commit = commit.encode();
    let id = Id::from_content(Kind::Commit, &commit);
    objects.extend([(Kind::Tree, tree), (Kind::Commit, commit)]);
    transaction.add_all(&objects, old)?;
    Ok(id)
}

impl VersionNotes {
    /// A version as it is to be shown and judged: what is noted on it stands beside what it was committed with, and of
    /// the same name in its place. Metrics are metrics, texts are key-values.
    #[must_use]
    pub fn annotated(&self, id: &Id, mut commit: Commit) -> Commit {
        for (key, _, value) in self.on(id) {
            match value {
                NoteValue::Metric(v) => drop(commit.metrics.insert(key.to_owned(), *v)),
                NoteValue::Text(text) => drop(commit.meta.insert(key.to_owned(), text.clone())),
            }
        }
        commit
    }

    /// A metric of a version: what is noted, else what it was committed with.
    pub fn metric(&self, id: &Id, commit: &Commit, name: &str) -> Option<f64> {
        let noted = self.get(id, name).and_then(|n| n.value.as_ref());
        match noted {
            Some(NoteValue::Metric(v)) => Some(*v),
            _ => commit.metrics.get(name).copied(),
        }
    }
}
