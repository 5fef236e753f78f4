//! The record of notes: what was noted on each version, key by key, and how two records become one.

use mdl_objects::Id;
use mdl_store::{RepoError, Result};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

const HEADER: &str = "mdl notes 1";
/// Bytes of a key, of a text, and of an author's name at most.
const LONGEST_KEY: usize = 200;
const LONGEST_TEXT: usize = 4096;
const LONGEST_NAME: usize = 200;
/// Keys on one version at most, removed ones included.
const MOST_KEYS: usize = 1000;

/// What is noted under a key.
#[derive(Clone, Debug)]
pub enum NoteValue {
    /// A metric.
    Metric(f64),
    /// A text, such as the address of a run in a tracker.
    Text(String),
}

/// A note: the last word on a key of a version.
#[derive(Clone, Debug)]
pub struct Note {
    /// When: milliseconds since 1970. Of two notes the later one counts.
    pub time_ms: i64,
    /// By whom: a name.
    pub by: String,
    /// None: it was removed.
    pub value: Option<NoteValue>,
}

/// As they are written: what is no number equals itself.
impl PartialEq for NoteValue {
    fn eq(&self, other: &NoteValue) -> bool {
        match (self, other) {
            (NoteValue::Metric(a), NoteValue::Metric(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (NoteValue::Text(a), NoteValue::Text(b)) => a == b,
            _ => false,
        }
    }
}

/// As they are written.
impl PartialEq for Note {
    fn eq(&self, other: &Note) -> bool {
        self.rank() == other.rank()
    }
}

/// A line of a record.
#[derive(Serialize, Deserialize)]
struct Line {
    commit: Id,
    key: String,
    time_ms: i64,
    by: String,
    /// A number in decimal digits that give it back to the bit; `NaN`, `inf` and `-inf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl fmt::Display for NoteValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoteValue::Metric(v) => write!(f, "{v:?}"),
            NoteValue::Text(text) => f.write_str(text),
        }
    }
}

impl Note {
    /// Of two notes on one key the greater one counts: the later, and of equal times the one that a comparison of
    /// values and names puts last, so that all places agree, in whatever order they come to hear of them.
    fn rank(&self) -> (i64, bool, Option<String>, &str) {
        let text = |v: &NoteValue| match v {
            NoteValue::Metric(v) => format!("0{v:?}"),
            NoteValue::Text(text) => format!("1{text}"),
        };
        (self.time_ms, self.value.is_none(), self.value.as_ref().map(text), &self.by)
    }

    fn line(&self, commit: &Id, key: &str) -> Line {
        let (metric, text) = match &self.value {
            Some(NoteValue::Metric(v)) => (Some(format!("{v:?}")), None),
            Some(NoteValue::Text(text)) => (None, Some(text.clone())),
            None => (None, None),
        };
        Line { commit: *commit, key: key.to_owned(), time_ms: self.time_ms, by: self.by.clone(), metric, text }
    }
}

/// Notes on versions: all there are, or those of one part of the ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionNotes {
    notes: BTreeMap<Id, BTreeMap<String, Note>>,
}

/// Refuses what is no note: `Usage`.
pub(super) fn check(key: &str, value: Option<&NoteValue>) -> Result<()> {
    let is_plain = |text: &str| !text.chars().any(char::is_control);
    let hint = "a key is a name such as `eval/acc`, a value a number or a line of text";
    if key.is_empty() || key.len() > LONGEST_KEY || !is_plain(key) || key.contains('=') || key.trim() != key {
        let shown: String = key.chars().take(LONGEST_KEY).collect();
        return Err(RepoError::usage(format!("{shown:?} is no key of a note"), hint));
    }
    match value {
        Some(NoteValue::Text(text)) if text.len() > LONGEST_TEXT || !is_plain(text) => {
            let what = format!("the note {key:?} has more than {LONGEST_TEXT} bytes, or control characters");
            Err(RepoError::usage(what, hint))
        }
        _ => Ok(()),
    }
}

impl VersionNotes {
    /// What is noted on a version, by key; what was removed is left out.
    pub fn on<'a>(&'a self, commit: &Id) -> impl Iterator<Item = (&'a str, &'a Note, &'a NoteValue)> {
        let all = self.notes.get(commit).into_iter().flatten();
        all.filter_map(|(key, note)| Some((key.as_str(), note, note.value.as_ref()?)))
    }

    /// The versions on which something is noted.
    pub fn versions(&self) -> impl Iterator<Item = &Id> {
        self.notes.iter().filter(|(_, keys)| keys.values().any(|n| n.value.is_some())).map(|(id, _)| id)
    }

    /// Whether nothing is, or was, noted.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The last word on a key, a removal included.
    pub(super) fn get(&self, commit: &Id, key: &str) -> Option<&Note> {
        self.notes.get(commit)?.get(key)
    }

    /// Takes a note in, if it is the last word.
    pub(super) fn set(&mut self, commit: Id, key: &str, note: Note) {
        let last = self.notes.entry(commit).or_default().entry(key.to_owned()).or_insert_with(|| note.clone());
        if last.rank() < note.rank() {
            *last = note;
        }
    }

    /// Refuses a version with more keys than one may have; those that come together from several places may.
    pub(super) fn check_keys(&self, commit: &Id) -> Result<()> {
        match self.notes.get(commit).is_some_and(|keys| keys.len() > MOST_KEYS) {
            true => Err(RepoError::usage(
                format!("{} would have more than {MOST_KEYS} keys of notes", commit.short()),
                "use keys again that were used before",
            )),
            false => Ok(()),
        }
    }

    /// Takes in what another record says: by key, the later note counts. In whatever order records come together, the
    /// outcome is the same.
    pub(super) fn merge(&mut self, other: &VersionNotes) {
        for (id, keys) in &other.notes {
            let own = self.notes.entry(*id).or_default();
            for (key, note) in keys {
                let last = own.entry(key.clone()).or_insert_with(|| note.clone());
                if last.rank() < note.rank() {
                    *last = note.clone();
                }
            }
        }
    }

    /// The part whose versions' ids begin with this byte.
    pub(super) fn part(&self, first: u8) -> VersionNotes {
        let notes = self.notes.iter().filter(|(id, _)| id.as_bytes()[0] == first);
        VersionNotes { notes: notes.map(|(id, keys)| (*id, keys.clone())).collect() }
    }

    /// First bytes of the ids of versions that have notes.
    pub(super) fn parts(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.notes.keys().map(|id| id.as_bytes()[0]).collect();
        out.dedup();
        out
    }

    /// The bytes of a record: a header line, then a line of JSON for each note, by version and key.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let mut out = format!("{HEADER}\n").into_bytes();
        for (id, keys) in &self.notes {
            for (key, note) in keys {
                serde_json::to_writer(&mut out, &note.line(id, key))
                    .map_err(|e| RepoError::io("cannot write down notes")(e.into()))?;
                out.push(b'\n');
            }
        }
        Ok(out)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// It is damaged, or newer than this program.
    pub(super) fn parse(bytes: &[u8]) -> Result<VersionNotes> {
        let bad = |why: &str| RepoError::corrupt("notes on versions", why);
        let text = std::str::from_utf8(bytes).map_err(|_| bad("not text"))?;
        let (header, rest) = text.split_once('\n').ok_or_else(|| bad("cut off"))?;
        if header != HEADER {
            return Err(match header.starts_with("mdl notes ") {
                true => RepoError::user(
                    "the notes on versions are not of a format this program reads",
                    "they were made by a newer mdl: update this one",
                ),
                false => bad("no record of notes"),
            });
        }
        let mut out = VersionNotes::default();
        for line in rest.lines() {
            let line: Line = serde_json::from_str(line).map_err(|e| bad(&format!("a line makes no sense: {e}")))?;
            let value = match (line.metric, line.text) {
                (Some(digits), None) => {
                    Some(NoteValue::Metric(digits.parse().map_err(|_| bad("a metric is no number"))?))
                }
                (None, text) => text.map(NoteValue::Text),
                (Some(_), Some(_)) => return Err(bad("a note is both a metric and a text")),
            };
            check(&line.key, value.as_ref()).map_err(|e| bad(&e.to_string()))?;
            if line.by.len() > LONGEST_NAME || line.by.chars().any(char::is_control) {
                return Err(bad("a name that is none"));
            }
            out.set(line.commit, &line.key, Note { time_ms: line.time_ms, by: line.by, value });
        }
        Ok(out)
    }
}

/// A name as a note has it.
pub(super) fn name(name: &str) -> String {
    let mut out: String = name.chars().filter(|c| !c.is_control()).collect();
    while out.len() > LONGEST_NAME {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;
    use proptest::{collection::vec, prelude::*};

    fn id(n: u8) -> Id {
        Id::from_content(Kind::Commit, &[n])
    }

    fn record(notes: &[(u8, u8, i64, Option<i8>)]) -> VersionNotes {
        let mut out = VersionNotes::default();
        for (version, key, time_ms, value) in notes {
            let value = value.map(|v| match v {
                0 => NoteValue::Metric(f64::NAN),
                v if v > 0 => NoteValue::Metric(f64::from(v) / 3.0),
                v => NoteValue::Text(format!("https://example.org/{v}")),
            });
            out.set(id(*version), &format!("k{key}"), Note { time_ms: *time_ms, by: "Ada".to_owned(), value });
        }
        out
    }

    fn notes() -> impl Strategy<Value = Vec<(u8, u8, i64, Option<i8>)>> {
        vec((0u8..3, 0u8..3, 0i64..4, proptest::option::of(any::<i8>())), 0..12)
    }

    proptest! {
        #[test]
        fn records_come_together_in_any_order(a in notes(), b in notes(), c in notes()) {
            let (a, b, c) = (record(&a), record(&b), record(&c));
            let all = |parts: [&VersionNotes; 3]| {
                let mut out = VersionNotes::default();
                parts.into_iter().for_each(|p| out.merge(p));
                out
            };
            let first = all([&a, &b, &c]);
            for order in [[&c, &b, &a], [&b, &a, &c], [&a, &c, &b]] {
                prop_assert_eq!(&all(order), &first);
            }
            let mut again = first.clone();
            again.merge(&a);
            prop_assert_eq!(&again, &first);
        }

        #[test]
        fn what_was_written_is_read(a in notes()) {
            let a = record(&a);
            let bytes = a.bytes().expect("bytes");
            let read = VersionNotes::parse(&bytes).expect("read");
            prop_assert_eq!(read.bytes().expect("bytes"), bytes);
            prop_assert_eq!(read, a);
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in vec(any::<u8>(), 0..200), at in any::<u16>(), bit in 0u8..8) {
            let _ = VersionNotes::parse(&bytes);
            let _ = VersionNotes::parse(&[b"mdl notes 1\n", bytes.as_slice()].concat());
            let mut whole = record(&[(1, 2, 3, Some(4)), (1, 3, 3, Some(-4)), (2, 2, 3, None)]).bytes().expect("bytes");
            let n = whole.len();
            whole[usize::from(at) % n] ^= 1 << bit;
            let _ = VersionNotes::parse(&whole);
        }
    }

    #[test]
    fn a_newer_record_is_not_guessed_at_and_nonsense_is_refused() {
        let error = VersionNotes::parse(b"mdl notes 2\nx\n").expect_err("newer");
        assert!(error.hint().is_some_and(|h| h.contains("newer mdl")), "{error}");
        for bytes in [&b""[..], b"mdl notes 1", b"hello\n", b"mdl notes 1\n{}\n", b"\xff\n"] {
            VersionNotes::parse(bytes).expect_err("no record");
        }
        for key in ["", "a=b", " a", "a\n", &"k".repeat(201)] {
            check(key, None).expect_err(key);
        }
        check("text", Some(&NoteValue::Text("x".repeat(4097)))).expect_err("long");
    }
}
