//! Commits: one version with its parents, its place in the training run and what storing it cost.
//!
//! A commit is a list of numbered fields in ascending order, so that later versions can add fields which older readers
//! carry along untouched.

use crate::{Id, Kind, ObjectError, Reader, Writer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const VERSION: u8 = 1;

/// Name, address and time of a commit's or tag's author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Summary {
    fn read(r: &mut Reader<'_>) -> Result<Summary, ObjectError> {
        Ok(Summary {
            files: r.varint()?,
            tensors: r.varint()?,
            new_tensors: r.varint()?,
            logical_bytes: r.varint()?,
            stored_bytes: r.varint()?,
        })
    }
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

    fn from_code(code: u64) -> Option<Resume> {
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
    /// Root directory of the approximation that was judged beside the exact contents, and may stand for them later.
    pub approximation: Option<Id>,
    /// JSON: where the version comes from (docs/format.md, "Provenance").
    pub provenance: Option<String>,
    /// Armoured SSH signature over [`Commit::signed_bytes`].
    pub signature: Option<String>,
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
const APPROXIMATION: u64 = 15;
const PROVENANCE: u64 = 20;
/// Above the numbers between, which later fields take: it covers these, as it covers all that are above it.
const SIGNATURE: u64 = 64;

/// Encoded fields, by number.
#[derive(Default)]
struct Encoded(BTreeMap<u64, Vec<u8>>);

impl Encoded {
    /// Adds a field, unless there are no values.
    fn field<T>(&mut self, number: u64, values: impl IntoIterator<Item = T>, write: impl Fn(&mut Writer, T)) {
        let mut w = Writer::default();
        values.into_iter().for_each(|value| write(&mut w, value));
        if !w.bytes.is_empty() {
            self.0.insert(number, w.bytes);
        }
    }
}

impl Commit {
    /// What it holds, parents aside: its trees and its blobs.
    pub fn contents(&self) -> impl Iterator<Item = (Id, Kind)> {
        let trees = std::iter::once(&self.tree).chain(&self.approximation).map(|id| (*id, Kind::Tree));
        trees.chain(self.blobs().map(|id| (id, Kind::Blob)))
    }

    /// Its blobs, those of files aside.
    pub fn blobs(&self) -> impl Iterator<Item = Id> {
        self.report.iter().chain(&self.side).copied()
    }

    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(self.signature.as_deref())
    }

    /// The bytes that a signature is made over: the canonical bytes without the field of the signature. They name the
    /// trees, the parents and the blobs by their ids, and through these every byte below.
    pub fn signed_bytes(&self) -> Vec<u8> {
        self.encode_with(None)
    }

    fn encode_with(&self, signature: Option<&str>) -> Vec<u8> {
        let mut out = Encoded::default();
        out.field(TREE, [&self.tree], Writer::id);
        out.field(PARENTS, &self.parents, Writer::id);
        out.field(AUTHOR, [&self.author], |w, author| author.write(w));
        out.field(MESSAGE, [self.message.as_str()], Writer::str);
        out.field(STEP, self.step, Writer::varint);
        out.field(EPOCH, self.epoch, Writer::f64);
        out.field(METRICS, &self.metrics, |w, (k, v)| {
            w.str(k);
            w.f64(*v);
        });
        out.field(META, &self.meta, |w, (k, v)| {
            w.str(k);
            w.str(v);
        });
        let s = &self.summary;
        let totals = [s.files, s.tensors, s.new_tensors, s.logical_bytes, s.stored_bytes];
        out.field(SUMMARY, totals, Writer::varint);
        out.field(REPORT, &self.report, Writer::id);
        out.field(RESUMED_FROM, &self.resumed_from, Writer::id);
        out.field(QUALITY, self.quality.as_deref(), Writer::str);
        out.field(SIDE, &self.side, Writer::id);
        out.field(RESUME, self.resume.map(|r| r as u64), Writer::varint);
        out.field(APPROXIMATION, &self.approximation, Writer::id);
        out.field(PROVENANCE, self.provenance.as_deref(), Writer::str);
        out.field(SIGNATURE, signature, Writer::str);
        // Fields of a newer version may lie between those that are known here.
        for (number, bytes) in &self.unknown {
            out.0.insert(*number, bytes.clone());
        }
        let mut w = Writer::default();
        w.u8(VERSION);
        for (number, bytes) in &out.0 {
            w.varint(*number);
            w.blob(bytes);
        }
        w.bytes
    }

    /// Parses canonical bytes; fields that are not known here are kept in `unknown`. Missing, repeated or unordered
    /// fields are refused, and those that `encode` would write otherwise.
    pub fn decode(bytes: &[u8]) -> Result<Commit, ObjectError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let mut fields = Fields(BTreeMap::new());
        while r.remaining() > 0 {
            let number = r.varint()?;
            if fields.0.last_key_value().map_or(0, |(last, _)| *last) >= number {
                return Err(ObjectError::NotCanonical("commit fields out of order"));
            }
            fields.0.insert(number, r.blob()?);
        }
        // A label of a newer version is carried along like a field of one.
        let label = fields.0.get(&RESUME).map(|bytes| Reader::new(bytes).varint()).transpose()?;
        let resume = label.and_then(Resume::from_code);
        if resume.is_some() {
            fields.optional(RESUME, Reader::varint)?;
        }
        let commit = Commit {
            tree: fields.required(TREE, Reader::id)?,
            parents: fields.all(PARENTS, Reader::id)?,
            author: fields.required(AUTHOR, Signature::read)?,
            message: fields.required(MESSAGE, Reader::str)?,
            step: fields.optional(STEP, Reader::varint)?,
            epoch: fields.optional(EPOCH, Reader::f64)?,
            metrics: fields.all(METRICS, |r| Ok((r.str()?, r.f64()?)))?,
            meta: fields.all(META, |r| Ok((r.str()?, r.str()?)))?,
            summary: fields.required(SUMMARY, Summary::read)?,
            report: fields.optional(REPORT, Reader::id)?,
            resumed_from: fields.optional(RESUMED_FROM, Reader::id)?,
            quality: fields.optional(QUALITY, Reader::str)?,
            side: fields.all(SIDE, Reader::id)?,
            resume,
            approximation: fields.optional(APPROXIMATION, Reader::id)?,
            provenance: fields.optional(PROVENANCE, Reader::str)?,
            signature: fields.optional(SIGNATURE, Reader::str)?,
            unknown: fields.0.into_iter().map(|(number, bytes)| (number, bytes.to_vec())).collect(),
        };
        // Re-encoding catches what field-wise checks would miss (unordered maps, empty optional fields).
        if commit.encode() != bytes {
            return Err(ObjectError::NotCanonical("commit is not in canonical form"));
        }
        Ok(commit)
    }
}

/// Fields that were not read yet, by number.
struct Fields<'a>(BTreeMap<u64, &'a [u8]>);

/// What was read of a field.
type Field<T> = Result<T, ObjectError>;

impl<'a> Fields<'a> {
    /// The values of a field, end to end.
    fn all<T, C: FromIterator<T>>(&mut self, number: u64, read: impl Fn(&mut Reader<'a>) -> Field<T>) -> Field<C> {
        let mut r = Reader::new(self.0.remove(&number).unwrap_or_default());
        std::iter::from_fn(|| (r.remaining() > 0).then(|| read(&mut r))).collect()
    }

    fn optional<T>(&mut self, number: u64, read: impl Fn(&mut Reader<'a>) -> Field<T>) -> Field<Option<T>> {
        let Some(bytes) = self.0.remove(&number) else { return Ok(None) };
        let mut r = Reader::new(bytes);
        let value = read(&mut r)?;
        r.finish()?;
        Ok(Some(value))
    }

    fn required<T>(&mut self, number: u64, read: impl Fn(&mut Reader<'a>) -> Field<T>) -> Field<T> {
        self.optional(number, read)?.ok_or(ObjectError::NotCanonical("commit lacks a required field"))
    }
}
