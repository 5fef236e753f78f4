//! Commits: one version with its parents, its place in the training run and what storing it cost.
//!
//! A commit is a list of numbered fields in ascending order, so that later versions can add fields which older readers
//! carry along untouched.

use crate::{Id, ObjectError, Reader, Writer};
use std::collections::BTreeMap;

const VERSION: u8 = 1;

/// Name, address and time of a commit's or tag's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name.
    pub name: String,
    /// E-mail address, possibly empty.
    pub email: String,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: i64,
    /// Offset of the author's clock from UTC, in minutes.
    pub utc_offset_min: i32,
}

impl Signature {
    pub(crate) fn write(&self, w: &mut Writer) {
        w.str(&self.name);
        w.str(&self.email);
        w.signed(self.time_ms);
        w.signed(i64::from(self.utc_offset_min));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Signature, ObjectError> {
        Ok(Signature {
            name: r.str()?,
            email: r.str()?,
            time_ms: r.signed()?,
            utc_offset_min: i32::try_from(r.signed()?).map_err(|_| ObjectError::NotCanonical("UTC offset"))?,
        })
    }
}

/// What storing the commit cost, as counted when it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files in the tree.
    pub files: u64,
    /// Tensors in the tree.
    pub tensors: u64,
    /// Tensors that the repository did not have yet.
    pub new_tensors: u64,
    /// Bytes of all files.
    pub logical_bytes: u64,
    /// Encoded bytes of the objects this commit added, without the commit itself.
    pub stored_bytes: u64,
}

/// What a run resumed from a version gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Resume {
    /// Weights alone: the optimizer starts anew.
    WeightsOnly = 1,
    /// Weights and optimizer, but something is missing or lossy.
    Approximate = 2,
    /// Weights, optimizer and random state, bit for bit.
    Exact = 3,
}

impl Resume {
    /// Every label, least first.
    pub const ALL: [Resume; 3] = [Resume::WeightsOnly, Resume::Approximate, Resume::Exact];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Resume::WeightsOnly => "weights-only",
            Resume::Approximate => "approximate",
            Resume::Exact => "exact-resume",
        }
    }

    fn of(code: u64) -> Option<Resume> {
        Resume::ALL.into_iter().find(|r| *r as u64 == code)
    }
}

/// A version.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Root directory.
    pub tree: Id,
    /// Parents, first parent first; none for a root.
    pub parents: Vec<Id>,
    /// Author and time.
    pub author: Signature,
    /// Message.
    pub message: String,
    /// Training step.
    pub step: Option<u64>,
    /// Training epoch, possibly fractional.
    pub epoch: Option<f64>,
    /// Named numbers such as `loss`.
    pub metrics: BTreeMap<String, f64>,
    /// Free key-values.
    pub meta: BTreeMap<String, String>,
    /// Totals of this commit.
    pub summary: Summary,
    /// Blob with per-tensor storage statistics (docs/format.md, "Canonical objects").
    pub report: Option<Id>,
    /// The version the run was restored from before it trained up to this one.
    pub resumed_from: Option<Id>,
    /// JSON: the policy of a lossy version, what was measured, and where the next search begins.
    pub quality: Option<String>,
    /// Blobs that `quality` speaks of.
    pub side: Vec<Id>,
    /// What a run resumed from here gets back. None: the committer did not say, or there are no tensors.
    pub resume: Option<Resume>,
    /// Fields of a newer version, kept as they were.
    pub unknown: Vec<(u64, Vec<u8>)>,
}

const TREE: u64 = 1;
const PARENTS: u64 = 2;
const AUTHOR: u64 = 3;
const MESSAGE: u64 = 4;
const STEP: u64 = 5;
const EPOCH: u64 = 6;
const METRICS: u64 = 7;
const META: u64 = 8;
const SUMMARY: u64 = 9;
const REPORT: u64 = 10;
const RESUMED_FROM: u64 = 11;
const QUALITY: u64 = 12;
const SIDE: u64 = 13;
const RESUME: u64 = 14;

fn field(out: &mut Writer, number: u64, write: impl FnOnce(&mut Writer)) {
    let mut w = Writer::default();
    write(&mut w);
    out.varint(number);
    out.blob(&w.bytes);
}

impl Commit {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        field(&mut w, TREE, |w| w.id(&self.tree));
        if !self.parents.is_empty() {
            field(&mut w, PARENTS, |w| self.parents.iter().for_each(|p| w.id(p)));
        }
        field(&mut w, AUTHOR, |w| self.author.write(w));
        field(&mut w, MESSAGE, |w| w.str(&self.message));
        if let Some(step) = self.step {
            field(&mut w, STEP, |w| w.varint(step));
        }
        if let Some(epoch) = self.epoch {
            field(&mut w, EPOCH, |w| w.f64(epoch));
        }
        if !self.metrics.is_empty() {
            field(&mut w, METRICS, |w| {
                for (k, &v) in &self.metrics {
                    w.str(k);
                    w.f64(v);
                }
            });
        }
        if !self.meta.is_empty() {
            field(&mut w, META, |w| {
                for (k, v) in &self.meta {
                    w.str(k);
                    w.str(v);
                }
            });
        }
        field(&mut w, SUMMARY, |w| {
            let s = &self.summary;
            [s.files, s.tensors, s.new_tensors, s.logical_bytes, s.stored_bytes].into_iter().for_each(|n| w.varint(n));
        });
        if let Some(report) = &self.report {
            field(&mut w, REPORT, |w| w.id(report));
        }
        if let Some(from) = &self.resumed_from {
            field(&mut w, RESUMED_FROM, |w| w.id(from));
        }
        if let Some(quality) = &self.quality {
            field(&mut w, QUALITY, |w| w.str(quality));
        }
        if !self.side.is_empty() {
            field(&mut w, SIDE, |w| self.side.iter().for_each(|id| w.id(id)));
        }
        if let Some(resume) = self.resume {
            field(&mut w, RESUME, |w| w.varint(resume as u64));
        }
        for (number, bytes) in &self.unknown {
            w.varint(*number);
            w.blob(bytes);
        }
        w.bytes
    }

    /// Parses canonical bytes; fields above those known here are kept in `unknown`.
    ///
    /// # Errors
    /// Missing, repeated or unordered fields, or fields that `encode` would write otherwise.
    pub fn decode(bytes: &[u8]) -> Result<Commit, ObjectError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let mut draft = Draft::default();
        let mut last = 0;
        while r.remaining() > 0 {
            let number = r.varint()?;
            if number <= last {
                return Err(ObjectError::NotCanonical("commit fields out of order"));
            }
            last = number;
            draft.read(number, r.blob()?)?;
        }
        let commit = draft.finish()?;
        // Re-encoding catches what field-wise checks would miss (unordered maps, empty optional fields).
        if commit.encode() != bytes {
            return Err(ObjectError::NotCanonical("commit is not in canonical form"));
        }
        Ok(commit)
    }
}

#[derive(Default)]
struct Draft {
    tree: Option<Id>,
    parents: Vec<Id>,
    author: Option<Signature>,
    message: Option<String>,
    step: Option<u64>,
    epoch: Option<f64>,
    metrics: BTreeMap<String, f64>,
    meta: BTreeMap<String, String>,
    summary: Option<Summary>,
    report: Option<Id>,
    resumed_from: Option<Id>,
    quality: Option<String>,
    side: Vec<Id>,
    resume: Option<Resume>,
    unknown: Vec<(u64, Vec<u8>)>,
}

impl Draft {
    fn read(&mut self, number: u64, bytes: &[u8]) -> Result<(), ObjectError> {
        let mut r = Reader::new(bytes);
        match number {
            TREE => self.tree = Some(r.id()?),
            PARENTS => {
                while r.remaining() > 0 {
                    self.parents.push(r.id()?);
                }
            }
            AUTHOR => self.author = Some(Signature::read(&mut r)?),
            MESSAGE => self.message = Some(r.str()?),
            STEP => self.step = Some(r.varint()?),
            EPOCH => self.epoch = Some(r.f64()?),
            METRICS => {
                while r.remaining() > 0 {
                    self.metrics.insert(r.str()?, r.f64()?);
                }
            }
            META => {
                while r.remaining() > 0 {
                    self.meta.insert(r.str()?, r.str()?);
                }
            }
            SUMMARY => {
                self.summary = Some(Summary {
                    files: r.varint()?,
                    tensors: r.varint()?,
                    new_tensors: r.varint()?,
                    logical_bytes: r.varint()?,
                    stored_bytes: r.varint()?,
                });
            }
            REPORT => self.report = Some(r.id()?),
            RESUMED_FROM => self.resumed_from = Some(r.id()?),
            QUALITY => self.quality = Some(r.str()?),
            SIDE => {
                while r.remaining() > 0 {
                    self.side.push(r.id()?);
                }
            }
            RESUME => match Resume::of(r.varint()?) {
                Some(resume) => self.resume = Some(resume),
                // A label of a newer version is carried along like a field of one.
                None => {
                    self.unknown.push((number, bytes.to_vec()));
                    return Ok(());
                }
            },
            _ => {
                self.unknown.push((number, bytes.to_vec()));
                return Ok(());
            }
        }
        r.finish()
    }

    fn finish(self) -> Result<Commit, ObjectError> {
        let missing = || ObjectError::NotCanonical("commit lacks a required field");
        Ok(Commit {
            tree: self.tree.ok_or_else(missing)?,
            parents: self.parents,
            author: self.author.ok_or_else(missing)?,
            message: self.message.ok_or_else(missing)?,
            step: self.step,
            epoch: self.epoch,
            metrics: self.metrics,
            meta: self.meta,
            summary: self.summary.ok_or_else(missing)?,
            report: self.report,
            resumed_from: self.resumed_from,
            quality: self.quality,
            side: self.side,
            resume: self.resume,
            unknown: self.unknown,
        })
    }
}
