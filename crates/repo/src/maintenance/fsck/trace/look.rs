//! Looks up single objects for the reference check and records problems: what each is, and where it shows.

use crate::maintenance::fsck::trace::{Affected, MAX_AFFECTED, Trace, problem};
use mdl_objects::{Id, Kind, TensorRef};
use mdl_store::Result;

impl Trace<'_> {
    /// Whether an object exists, is of a kind, and is not damaged: its number, or the problems that it has.
    pub(super) fn find_intact(&mut self, id: &Id, kind: Kind) -> std::result::Result<u32, Vec<usize>> {
        let Some(n) = self.catalog.find(id) else {
            if !self.catalog.partial || kind == Kind::Commit || !self.unreadable.is_empty() {
                return Err(self.missing(id, "missing", kind.name()));
            }
            if self.is_own {
                return Err(self.missing(id, "missing, and a version that was made here names it", kind.name()));
            }
            self.not_fetched.insert(*id);
            return Err(Vec::new());
        };
        let is = self.catalog.best_record(n).kind;
        if is != kind {
            return Err(vec![self.note(*id, kind, &format!("it is a {is}"))]);
        }
        match self.by_object.get(&n) {
            Some(problems) => Err(problems.clone()),
            None => Ok(n),
        }
    }

    pub(super) fn sized(&mut self, id: &Id, kind: Kind, len: u64) -> std::result::Result<(), Vec<usize>> {
        let n = self.find_intact(id, kind)?;
        if self.catalog.best_record(n).logical == len {
            Ok(())
        } else {
            Err(vec![self.note(*id, kind, "what refers to it says it has another length")])
        }
    }

    /// As `sized`, for the tensor that a manifest names: of its dtype and shape too, since a reader refuses another.
    pub(super) fn shaped(&mut self, t: &TensorRef) -> std::result::Result<(), Vec<usize>> {
        self.sized(&t.id, Kind::Tensor, t.byte_len().unwrap_or(u64::MAX))?;
        let n = self.find_intact(&t.id, Kind::Tensor)?;
        let (odb, catalog) = (self.odb, self.catalog);
        let known = self.shapes.entry(n).or_insert_with(|| {
            let header = odb.header(&catalog.location(catalog.best(n))).ok()?;
            Some((header.dtype, header.shape))
        });
        // A header that cannot be read is damage that the full check has reported.
        let agrees = known.as_ref().is_none_or(|(d, s)| (*d, s) == (t.dtype, &t.shape));
        if agrees {
            Ok(())
        } else {
            let reason = "what refers to it says it has another dtype or shape";
            Err(vec![self.note(t.id, Kind::Tensor, reason)])
        }
    }

    /// What an object says, or the problems that it has.
    pub(super) fn parsed<T>(
        &mut self,
        id: &Id,
        kind: Kind,
        parse: impl FnOnce(&[u8]) -> Result<T>,
    ) -> std::result::Result<T, Vec<usize>> {
        let n = self.find_intact(id, kind)?;
        let bytes = self.catalog.content(self.odb.storage(), self.catalog.best(n));
        bytes.and_then(|bytes| parse(&bytes)).map_err(|e| vec![self.note(*id, kind, &e.to_string())])
    }

    pub(super) fn missing(&mut self, id: &Id, reason: &str, kind: &str) -> Vec<usize> {
        if self.unreadable.is_empty() {
            vec![self.note_once(*id, format!("{kind} {}", id.short()), reason)]
        } else {
            self.unreadable.clone()
        }
    }

    pub(super) fn note(&mut self, id: Id, kind: Kind, reason: &str) -> usize {
        self.note_once(id, format!("{kind} {}", id.short()), reason)
    }

    pub(super) fn note_once(&mut self, id: Id, what: String, reason: &str) -> usize {
        let problems = &mut *self.problems;
        *self.found.entry((id, what.clone())).or_insert_with(|| {
            problems.push(problem(what, reason));
            problems.len() - 1
        })
    }

    pub(super) fn affect(&mut self, problems: &[usize], commit: Id, path: &str, tensor: Option<&str>) {
        for p in problems {
            let Some(problem) = self.problems.get_mut(*p) else {
                continue;
            };
            let place = Affected { commit, path: path.to_owned(), tensor: tensor.map(str::to_owned) };
            // Hits of one place come one after the other.
            if problem.affected.len() < MAX_AFFECTED && problem.affected.last() != Some(&place) {
                problem.affected.push(place);
            }
        }
    }
}
