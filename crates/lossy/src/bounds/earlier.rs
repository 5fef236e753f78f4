//! The version that updates are counted from: the parent, or what training was restored from since.

use crate::{
    allocate::{self, Allocation, fits},
    bounds::since::Since,
    bounds::yardstick::{Earlier, Yardstick},
    model::{Container, Model, Part},
    record::Quality,
};
use mdl_codec::quant::lattice::Params;
use mdl_objects::{Commit, Entry, Id, Kind, tensor_id};
use mdl_store::{
    RepoError, Result,
    object_db::{Files, Odb},
    write::{BaseTensors, bases_of},
};
use std::collections::BTreeMap;

/// Versions without a record that are passed over to find the one with.
const MOST_WITHOUT_RECORD: usize = 1000;

/// The version that updates are counted from.
#[derive(Debug, Default)]
pub(crate) struct EarlierVersion {
    files: Files,
    /// The approximation beside them, where they are exact: what the next one is stored against.
    approximation: Option<Files>,
    /// What the nearest version with a record says of its tensors; none if this version is what training had.
    record: Option<StepsRecord>,
}

/// What a version with a record says of its tensors.
#[derive(Debug)]
struct StepsRecord {
    files: Files,
    /// By `FILE:EXTENT`; a tensor that is not listed is exact. None: reconstructions are among them, and it is not
    /// known which (an earlier release, or damage).
    steps: Option<Allocation>,
}

/// What is known of a tensor's error in the earlier version.
#[derive(Debug, PartialEq)]
enum StoredError<'a> {
    /// It is what training had.
    Exact,
    /// It lies on a lattice of these steps.
    Steps(&'a Params),
    /// It may be anything.
    Nothing,
}

/// The yardsticks of a model's weights.
#[derive(Debug, Default)]
pub(crate) struct Yardsticks {
    /// By the weight's place, of those that are not stored already: what is stays as it is, so that a checked-out
    /// version that is committed again costs nothing.
    pub new: BTreeMap<usize, Yardstick>,
    /// The steps of weights that are those of the earlier version.
    pub carried: Allocation,
}

impl EarlierVersion {
    /// What training was restored from: it has no error. One whose contents are gone tells nothing.
    pub fn restored(odb: &Odb, commit: &Commit) -> Result<Option<EarlierVersion>> {
        let found = match commit.approximation {
            // Exact: the run goes on as if it had never stopped.
            Some(_) => EarlierVersion::parent(odb, commit),
            None => odb.files(&commit.tree).map(|files| EarlierVersion { files, ..EarlierVersion::default() }),
        };
        match found {
            Ok(version) => Ok(Some(version)),
            Err(RepoError::Io { context, source }) => Err(RepoError::Io { context, source }),
            Err(_) => Ok(None),
        }
    }

    /// The parent: what it does not store exactly has the error that the record of the version tells which brought it.
    pub fn parent(odb: &Odb, commit: &Commit) -> Result<EarlierVersion> {
        let files = odb.files(&commit.tree)?;
        let approximation = commit.approximation.map(|tree| odb.files(&tree)).transpose()?;
        let mut at = commit.clone();
        for _ in 0..MOST_WITHOUT_RECORD {
            if let Some(quality) = Quality::from_commit(&at)? {
                let record = match odb.files(&at.approximation.unwrap_or(at.tree)) {
                    Ok(files) => StepsRecord { files, steps: recorded(odb, &at, &quality) },
                    // Its contents may be gone: which of the parent's tensors it brought is not known.
                    Err(_) => StepsRecord { files: files.clone(), steps: None },
                };
                return Ok(EarlierVersion { files, approximation, record: Some(record) });
            }
            match at.parents.first().map(|id| odb.commit(id)) {
                Some(Ok(parent)) => at = parent,
                _ => break,
            }
        }
        Ok(EarlierVersion { files, approximation, record: None })
    }

    fn file(&self, model: &Model, container: &Container) -> Option<(&str, &Entry)> {
        file_of(&self.files, model, container)
    }

    /// The tensors of the version, file by file of the model.
    fn tensors(&self, odb: &Odb, model: &Model) -> Result<Vec<BaseTensors>> {
        tensors_of(&self.files, odb, model)
    }

    /// The tensors that the next approximation is stored against, file by file of the model.
    pub fn stored_tensors(&self, odb: &Odb, model: &Model) -> Result<Vec<BaseTensors>> {
        tensors_of(self.approximation.as_ref().unwrap_or(&self.files), odb, model)
    }

    /// The steps of a tensor, if it is on a lattice.
    pub fn steps(&self, model: &Model, part: &Part) -> Option<&Params> {
        let (file, _) = self.file(model, &model.files[part.file])?;
        let steps = self.record.as_ref()?.steps.as_ref()?.get(&format!("{file}:{}", part.extent.name))?;
        fits(steps, part).then_some(steps)
    }

    fn known(&self, odb: &Odb, model: &Model, part: &Part, id: &Id) -> Result<StoredError<'_>> {
        let (Some(record), Some((file, _))) = (&self.record, self.file(model, &model.files[part.file])) else {
            return Ok(StoredError::Exact);
        };
        // What came after the record, without one of its own, is exact.
        let brought = bases_of(odb, record.files.get(file))?.get(&part.extent.name) == Some(id);
        Ok(match &record.steps {
            _ if !brought => StoredError::Exact,
            None => StoredError::Nothing,
            Some(steps) => match steps.get(&format!("{file}:{}", part.extent.name)) {
                None => StoredError::Exact,
                Some(steps) if fits(steps, part) => StoredError::Steps(steps),
                Some(_) => StoredError::Nothing,
            },
        })
    }

    /// The yardsticks of all weights. Those without an earlier tensor go by a checkpoint outside, if there is one.
    pub fn yardsticks(&self, odb: &Odb, model: &Model, since: Option<&Since>) -> Result<Yardsticks> {
        let (tensors, stored) = (self.tensors(odb, model)?, self.stored_tensors(odb, model)?);
        let mut out = Yardsticks::default();
        for (i, part, _) in model.weights() {
            let (raw, extent) = (model.read(part)?, &part.extent);
            let id = tensor_id(extent.dtype, &extent.shape, &raw);
            let before = tensors[part.file].get(&extent.name);
            // What has not changed, and has an approximation, keeps it.
            let approximated = before == Some(&id) && stored[part.file].get(&extent.name) != before;
            if odb.contains(&id)? && !approximated {
                if before == Some(&id)
                    && let Some(steps) = self.steps(model, part)
                {
                    out.carried.insert(model.stored_label(part), steps.clone());
                }
                continue;
            }
            let known = before.map_or(Ok(StoredError::Nothing), |id| self.known(odb, model, part, id))?;
            // A version whose contents are gone tells nothing.
            let bytes = before.filter(|_| known != StoredError::Nothing).and_then(|id| {
                let tensor = odb.tensor(id).ok()?;
                let alike = tensor.header().dtype == extent.dtype && tensor.byte_len() == raw.len() as u64;
                if alike { tensor.read().ok() } else { None }
            });
            let outside = match &bytes {
                None => since.map_or(Ok(None), |since| since.read(part))?,
                Some(_) => None,
            };
            let steps = if let StoredError::Steps(steps) = known { Some(steps) } else { None };
            let kept = self.approximation.as_ref().and_then(|_| self.steps(model, part));
            let stored = bytes.as_deref().map(|bytes| Earlier { bytes, steps, kept, outside: false });
            let on_disk = |bytes| Earlier { bytes, steps: None, kept: None, outside: true };
            let earlier = stored.or(outside.as_deref().map(on_disk));
            out.new.insert(i, Yardstick::new(extent.dtype, part.matrix()[1], &raw, earlier.as_ref()));
        }
        Ok(out)
    }
}

/// The file of a version that goes on in one of the model: the one of its name; where each has but one, that.
fn file_of<'f>(files: &'f Files, model: &Model, container: &Container) -> Option<(&'f str, &'f Entry)> {
    let alone = || files.iter().next().filter(|_| (model.files.len(), files.len()) == (1, 1));
    let found = files.get_key_value(&container.file.rel).or_else(alone);
    found.map(|(name, entry)| (name.as_str(), entry))
}

fn tensors_of(files: &Files, odb: &Odb, model: &Model) -> Result<Vec<BaseTensors>> {
    model.files.iter().map(|c| bases_of(odb, file_of(files, model, c).map(|f| f.1))).collect()
}

/// The steps that a version's record names.
fn recorded(odb: &Odb, commit: &Commit, quality: &Quality) -> Option<Allocation> {
    if !quality.state.steps {
        return (quality.family == "lossless").then(Allocation::new);
    }
    let id = commit.side.get(1 + usize::from(quality.state.allocation))?;
    allocate::all_from_bytes(&odb.read(id, Kind::Blob).ok()?)
}
