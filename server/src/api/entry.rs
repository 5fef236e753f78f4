//! A commit as JSON: the fields and names of `mdl log --json`.

use crate::request::prelude::*;
use jiff::{Timestamp, tz::Offset};
use mdl_objects::{Resume, Signature};
use mdl_repo::{Fidelity, Head, Listed, Odb, Pruned, Standing, VersionNotes, pruned::resume};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// A number; those that JSON lacks are strings, which Python's `float` and JavaScript's `Number` read.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Number {
    /// A finite one.
    Finite(f64),
    /// One that JSON lacks.
    Other(NotFinite),
}

/// A number that JSON lacks.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(super) enum NotFinite {
    #[serde(rename = "NaN")]
    NaN,
    Infinity,
    #[serde(rename = "-Infinity")]
    MinusInfinity,
}

impl From<f64> for Number {
    fn from(v: f64) -> Number {
        match v {
            v if v.is_finite() => Number::Finite(v),
            v if v.is_nan() => Number::Other(NotFinite::NaN),
            v if v > 0.0 => Number::Other(NotFinite::Infinity),
            _ => Number::Other(NotFinite::MinusInfinity),
        }
    }
}

/// A number as JSON, or as a string if JSON lacks it.
pub fn json_number(v: f64) -> Value {
    serde_json::to_value(Number::from(v)).unwrap_or_default()
}

/// Who.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Person {
    name: String,
    /// May be empty.
    email: String,
}

impl From<&Signature> for Person {
    fn from(who: &Signature) -> Person {
        Person { name: who.name.clone(), email: who.email.clone() }
    }
}

/// That a version was pruned.
#[derive(Debug, Serialize, ToSchema)]
struct PrunedInfo {
    /// When: RFC 3339.
    date: String,
    /// The rules none of which kept it, in words.
    rules: String,
}

/// That a version lost its optimizer state.
#[derive(Debug, Serialize, ToSchema)]
struct WeightsInfo {
    /// When: RFC 3339.
    date: String,
    /// The rules none of which kept it, in words.
    rules: String,
    /// The files that hold it.
    without: Vec<String>,
    /// Whether they are still there.
    contents: bool,
}

/// That a version left the window of those that stay exact.
#[derive(Debug, Serialize, ToSchema)]
struct AgedInfo {
    /// When: RFC 3339.
    date: String,
    /// The rules none of which kept it exact, in words.
    rules: String,
    /// Whether its exact contents are still there. Once a collection has taken them, an approximation stands for them.
    exact_contents: bool,
}

/// Who noted something on a version after it was committed, and when.
#[derive(Debug, Serialize, ToSchema)]
struct NoteInfo {
    /// When: RFC 3339.
    date: String,
    by: String,
}

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub struct CommitInfo {
    /// The commit's id: 64 hex digits.
    commit: String,
    /// Id of its root directory: of what it gives today.
    tree: String,
    /// Ids of its parents, the first parent first.
    parents: Vec<String>,
    /// Names that stand on it: `main`, `tag: v1`, `HEAD -> main`.
    refs: Vec<String>,
    author: Person,
    /// When: RFC 3339 in the author's zone; `N ms` where it is no time.
    date: String,
    message: String,
    /// Training step.
    step: Option<u64>,
    /// Training epoch.
    epoch: Option<Number>,
    /// Named numbers such as `loss`; those that were noted later stand in the place of those of the same name.
    metrics: BTreeMap<String, Number>,
    /// Free key-values, those that were noted later among them.
    meta: BTreeMap<String, String>,
    /// The names of metrics and key-values that were noted after the version was committed.
    notes: BTreeMap<String, NoteInfo>,
    /// Files in the version.
    files: u64,
    /// Tensors in it.
    tensors: u64,
    /// Of these, what the repository did not have yet.
    new_tensors: u64,
    /// Bytes of all files.
    logical_bytes: u64,
    /// Bytes that the commit added to the repository.
    stored_bytes: u64,
    /// The version that training was restored from.
    resumed_from: Option<String>,
    /// What a run that goes on from here gets back today: `exact-resume`, `approximate`, `weights-only`.
    resume: Option<&'static str>,
    /// The quality record of a lossy commit; `exact_bytes` in it: what its exact contents take beside the approximation
    /// that the rest is about.
    quality: Value,
    /// How close what it gives today is to what training had: `exact`, `approximate`, `weights`, `gone`. None: it
    /// cannot be told.
    fidelity: Option<&'static str>,
    aged: Option<AgedInfo>,
    weights: Option<WeightsInfo>,
    pruned: Option<PrunedInfo>,
    /// Whether the version carries a signature; what it is worth is not said here.
    signed: bool,
    /// The key that its signature names.
    signing_key: Option<SigningKey>,
    /// Where the version comes from: code, datasets, environment, command; null where the committer did not say.
    provenance: Value,
    /// In a list: whether it says more than is shown here, its message's beginning. The version by itself has all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

/// An SSH key.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct SigningKey {
    /// As OpenSSH names it: `ssh-ed25519`.
    #[serde(rename = "type")]
    kind: String,
    /// `SHA256:...`
    fingerprint: String,
}

impl From<(String, String)> for SigningKey {
    fn from((kind, fingerprint): (String, String)) -> SigningKey {
        SigningKey { kind, fingerprint }
    }
}

/// Names of branches, tags and HEAD by the commit they point at: `main`, `tag: v1`, `HEAD -> main`.
#[derive(Debug, Default)]
pub struct Labels(HashMap<Id, Vec<String>>);

impl Labels {
    /// Reads all refs.
    pub fn read(repo: &Repo) -> mdl_repo::Result<Labels> {
        let mut labels: HashMap<Id, Vec<String>> = HashMap::new();
        let head = repo.refs().head()?;
        if let Head::Detached(id) = head {
            labels.entry(id).or_default().push("HEAD".to_owned());
        }
        for (name, id) in repo.refs().list(HEADS)? {
            let of = labels.entry(id).or_default();
            if head == Head::Branch(name.clone()) {
                of.insert(0, format!("HEAD -> {name}"));
            } else {
                of.push(name);
            }
        }
        for (name, id) in repo.refs().list(TAGS)? {
            // A tag whose commit is damaged must not hide all the others.
            if let Ok(id) = mdl_repo::peel(repo, &id) {
                labels.entry(id).or_default().push(format!("tag: {name}"));
            }
        }
        Ok(Labels(labels))
    }

    /// The names of a commit.
    pub fn names_of(&self, id: &Id) -> &[String] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }
}

/// What is known of commits beside what they say.
#[derive(Debug, Default)]
pub struct Notes {
    /// The names that stand on them.
    pub labels: Labels,
    /// Which of them gave up contents.
    pub pruned: Pruned,
    /// What was noted on them after they were committed.
    pub noted: VersionNotes,
}

impl Notes {
    /// Reads all refs, the record of versions that gave up contents, and the notes.
    pub fn read(repo: &Repo) -> mdl_repo::Result<Notes> {
        let noted = mdl_repo::shown_notes(repo)?;
        Ok(Notes { labels: Labels::read(repo)?, pruned: mdl_repo::pruned(repo)?, noted })
    }

    /// A commit as it is sent in a list.
    pub(super) fn listed(&self, odb: &Odb, listed: Listed) -> Result<CommitInfo> {
        let commit = &listed.step.commit;
        let info = self.commit_info(odb, &listed.step.id, commit)?;
        // The record that tells it may have been cut off.
        let is_told = !listed.cut || commit.quality.is_some() || commit.approximation.is_some();
        Ok(CommitInfo { cut: listed.cut, fidelity: info.fidelity.filter(|f| is_told || *f == "gone"), ..info })
    }

    /// A commit as it is sent.
    pub fn commit_info(&self, odb: &Odb, id: &Id, commit: &Commit) -> mdl_repo::Result<CommitInfo> {
        let annotated = self.noted.annotated(id, commit.clone());
        let mut info = CommitInfo::new(id, &annotated, self.pruned.get(id), self.labels.names_of(id));
        let noted = |(key, note, _): (&str, &mdl_repo::Note, _)| {
            (key.to_owned(), NoteInfo { date: rfc3339(note.time_ms, 0), by: note.by.clone() })
        };
        info.notes = self.noted.on(id).map(noted).collect();
        info.with_standing(odb, &self.pruned, id, commit)
    }
}

impl CommitInfo {
    /// The document of a commit, with the names that point at it, and without what it gives today.
    fn new(id: &Id, commit: &Commit, pruned: Option<&mdl_repo::PrunedMark>, names: &[String]) -> CommitInfo {
        let s = commit.summary;
        CommitInfo {
            commit: id.to_hex(),
            tree: commit.tree.to_hex(),
            parents: commit.parents.iter().map(Id::to_hex).collect(),
            refs: names.to_vec(),
            author: Person::from(&commit.author),
            date: rfc3339(commit.author.time_ms, commit.author.utc_offset_min),
            message: commit.message.clone(),
            step: commit.step,
            epoch: commit.epoch.map(Number::from),
            metrics: commit.metrics.iter().map(|(k, &v)| (k.clone(), v.into())).collect(),
            meta: commit.meta.clone(),
            notes: BTreeMap::new(),
            files: s.files,
            tensors: s.tensors,
            new_tensors: s.new_tensors,
            logical_bytes: s.logical_bytes,
            stored_bytes: s.stored_bytes,
            resumed_from: commit.resumed_from.map(|id| id.to_hex()),
            resume: commit.resume.map(Resume::name),
            quality: without_search_state(
                commit.quality.as_deref().and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default(),
            ),
            fidelity: None,
            aged: None,
            weights: None,
            pruned: pruned.map(|mark| PrunedInfo { date: rfc3339(mark.time_ms, 0), rules: mark.rules.clone() }),
            signed: commit.signature.is_some(),
            signing_key: commit.signature.as_deref().and_then(mdl_repo::signing_key).map(SigningKey::from),
            provenance: commit.provenance.as_deref().and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default(),
            cut: false,
        }
    }

    /// With what the version gives today, by the record of those that gave up contents.
    fn with_standing(mut self, odb: &Odb, record: &Pruned, id: &Id, commit: &Commit) -> mdl_repo::Result<CommitInfo> {
        let stand_in = match record.standing(odb, id, commit)? {
            Standing::StandIn(tree, _) => Some(tree),
            Standing::Committed | Standing::Gone => None,
        };
        let tree = stand_in.unwrap_or(commit.tree);
        self.tree = tree.to_hex();
        self.resume = resume(commit, &tree).map(Resume::name);
        self.aged = match record.aged(id) {
            Some(mark) => Some(AgedInfo {
                date: rfc3339(mark.time_ms, 0),
                rules: mark.rules.clone(),
                exact_contents: odb.has(&commit.tree)?,
            }),
            None => None,
        };
        self.weights = record.weights(id).map(|mark| WeightsInfo {
            date: rfc3339(mark.time_ms, 0),
            rules: mark.rules.clone(),
            without: mark.without.keys().cloned().collect(),
            contents: stand_in != mark.stand_in && record.get(id).is_none(),
        });
        // A record of quality that a newer program made must not hide the rest.
        self.fidelity = record.fidelity(odb, id, commit).ok().map(Fidelity::name);
        Ok(self)
    }
}

/// A quality record without what only the next search needs.
pub fn without_search_state(mut record: Value) -> Value {
    if let Some(map) = record.as_object_mut() {
        map.remove("state");
    }
    record
}

/// `2026-11-21T12:30:05.250+01:00`
pub fn rfc3339(time_ms: i64, utc_offset_min: i32) -> String {
    time_in_zone(time_ms, utc_offset_min, "%Y-%m-%dT%H:%M:%S%.3f%:z")
}

/// A time in its zone, as `strftime` writes it; what is no time is the number that it is.
pub fn time_in_zone(time_ms: i64, utc_offset_min: i32, pattern: &str) -> String {
    let offset = utc_offset_min.checked_mul(60).and_then(|s| Offset::from_seconds(s).ok());
    let zoned = offset.zip(Timestamp::from_millisecond(time_ms).ok());
    zoned.map_or_else(
        || format!("{time_ms} ms"),
        |(offset, time)| time.to_zoned(offset.to_time_zone()).strftime(pattern).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_those_of_the_command_line() {
        let text = |v: f64| serde_json::to_string(&Number::from(v)).expect("JSON");
        assert_eq!([0.5, 3.0].map(text), ["0.5", "3.0"]);
        let other = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(text);
        assert_eq!(other, ["\"NaN\"", "\"Infinity\"", "\"-Infinity\""]);
        assert_eq!(rfc3339(1_500, -60), "1969-12-31T23:00:01.500-01:00");
        assert_eq!(rfc3339(i64::MAX, 0), "9223372036854775807 ms");
    }
}
