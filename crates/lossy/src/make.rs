//! Makes candidates: reconstructions of all weights under one choice, written where an evaluator can look at them, and
//! the bytes that storing them would take.

use crate::{
    allocate::Allocation,
    bins::{Books, Shelves, needs_gradients},
    candidate::{Draft, Scratch, link_rest},
    model::{Model, Part},
    policy_toml::Book,
    refused,
    relatives::Decoded,
    sensitivity::Sensitivity,
};
use mdl_codec::{
    CodecError, Dtype,
    quant::{Config, Deviation, Role, Values, lattice::Lattice},
};
use mdl_objects::tensor_id;
use mdl_store::{
    Result,
    object_db::Odb,
    write::{Bases, DiskFile, Hints, below, measure},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

/// One choice of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    /// Steps 2^(sixteenths / 16) times the allocation's.
    Lattice(i32),
    /// Bins, their values from there.
    Bins(Config, Book),
}

/// A candidate.
#[derive(Debug)]
pub(crate) struct Made {
    /// The directory with what a checkout would give.
    pub dir: PathBuf,
    /// Where the changed files are, by their name in the tree.
    pub files: HashMap<String, PathBuf>,
    /// Bytes that the weights' encodings take.
    pub bytes: u64,
    /// By `FILE:EXTENT`: how far the reconstruction is from the weights.
    pub errors: BTreeMap<String, Deviation>,
    /// The lattice of each tensor that was put on one.
    pub hints: Hints,
    /// Weights that had to stay as they are.
    pub kept: Vec<String>,
    /// The codebooks that were used.
    pub books: Option<Books>,
}

/// What making needs.
pub(crate) struct Maker<'a> {
    pub odb: &'a Odb,
    pub model: &'a Model,
    pub list: &'a [DiskFile],
    pub sensitivity: &'a Sensitivity,
    pub allocation: &'a Allocation,
    /// Seed of the offsets: the version that training was last restored from.
    pub life: Option<String>,
    /// The parent's tensors, file by file.
    pub bases: &'a [Bases],
    pub max_depth: u8,
    /// The decoded bases that candidates are sized against.
    pub decoded: Decoded,
    pub shelves: Shelves,
    /// Files in which something other than weights was already replaced.
    pub before: HashMap<String, PathBuf>,
}

/// One tensor's reconstruction.
struct Done {
    bytes: Vec<u8>,
    /// How far it is from the tensor.
    error: Deviation,
    lattice: Option<Arc<Lattice>>,
}

impl Maker<'_> {
    /// Makes a candidate in the directory `name`.
    pub fn make(&mut self, choice: &Choice, scratch: &Scratch, name: &str) -> Result<Made> {
        let dir = scratch.fresh(name)?;
        let mut made = Made {
            dir,
            files: HashMap::new(),
            bytes: 0,
            errors: BTreeMap::new(),
            hints: Hints::default(),
            kept: Vec::new(),
            books: None,
        };
        let model = self.model;
        let weights: Vec<(&Part, Role)> = model.weights().map(|(_, p, role)| (p, role)).collect();
        if let Choice::Bins(config, book) = choice {
            self.shelves.prepare(self.odb.engine(), model, self.sensitivity, config, *book)?;
            made.books = self.shelves.books();
        }
        for (index, container) in model.files.iter().enumerate() {
            let mine: Vec<_> = weights.iter().filter(|(p, _)| p.file == index).collect();
            if mine.is_empty() {
                continue;
            }
            let rel = &container.file.rel;
            let from = self.before.get(rel).unwrap_or(&container.file.path);
            let draft = Draft::copy(from, &made.dir, rel)?;
            for (part, role) in mine {
                self.part(choice, part, *role, &draft, &mut made)?;
            }
            made.files.insert(rel.clone(), draft.finish(container)?);
        }
        for (rel, path) in &self.before {
            made.files.entry(rel.clone()).or_insert_with(|| path.clone());
        }
        link_rest(&made.dir, self.list, &self.before)?;
        Ok(made)
    }

    fn part(&mut self, choice: &Choice, part: &Part, role: Role, draft: &Draft, made: &mut Made) -> Result<()> {
        let raw = self.model.read(part)?;
        let label = self.model.label(part);
        let extent = &part.extent;
        // A tensor that the repository has costs nothing as it is: a checked-out version that is committed again stays
        // as it was.
        let id = tensor_id(extent.dtype, &extent.shape, &raw);
        if self.odb.contains(&id)? {
            return Ok(());
        }
        let (odb, bases, max_depth) = (self.odb, &self.bases[part.file], self.max_depth);
        let below = self.decoded.of(part, || below(odb, extent, &id, bases, max_depth));
        let done = match choice {
            Choice::Lattice(knob) => self.lattice(*knob, part, &label, &raw),
            Choice::Bins(config, _) => self.bins(config, part, role, &raw)?,
        };
        let Some(done) = done else {
            made.bytes += measure(odb, extent, &raw, below.as_deref(), None)?;
            made.kept.push(label);
            return Ok(());
        };
        made.bytes += measure(odb, extent, &done.bytes, below.as_deref(), done.lattice.as_ref())?;
        let rel = self.model.files[part.file].file.rel.clone();
        made.errors.insert(format!("{rel}:{}", part.extent.name), done.error);
        draft.patch(part.extent.offset, &done.bytes)?;
        if let Some(lattice) = done.lattice {
            made.hints.insert(rel, part.extent.name.clone(), lattice);
        }
        Ok(())
    }

    /// None: the tensor has to stay as it is.
    fn lattice(&self, knob: i32, part: &Part, label: &str, raw: &[u8]) -> Option<Done> {
        let mut params = self.allocation.get(label)?.clone();
        params.step = i16::try_from(i32::from(params.step) + knob).ok()?;
        params.seed = self.life.as_ref().map(|life| seed(life, label));
        let lattice = Lattice::new(&params, part.extent.dtype, &part.shape).ok()?;
        let mut bytes = vec![0; raw.len()];
        let quantised = self.odb.engine().quantise_measured(&lattice, 0, raw, &mut bytes);
        Some(Done { error: quantised.ok()??, bytes, lattice: Some(Arc::new(lattice)) })
    }

    fn bins(&self, config: &Config, part: &Part, role: Role, raw: &[u8]) -> Result<Option<Done>> {
        let Some((cuts, book)) = self.shelves.of(role) else {
            return Ok(None);
        };
        let gradient = match needs_gradients(config) {
            true => self.sensitivity.gradient(part)?,
            false => None,
        };
        let mut bytes = vec![0; raw.len()];
        let mut work = || {
            let weights = Values::new(part.extent.dtype, raw)?;
            let gradient = values_of(gradient.as_ref())?;
            self.odb.engine().restore_measured(weights, gradient, &cuts, book, &mut bytes)
        };
        let error = work().map_err(refused)?;
        Ok(error.map(|error| Done { bytes, error, lattice: None }))
    }
}

pub(crate) fn values_of(gradient: Option<&(Dtype, Vec<u8>)>) -> std::result::Result<Option<Values<'_>>, CodecError> {
    gradient.map(|(dtype, bytes)| Values::new(*dtype, bytes)).transpose()
}

/// The seed of a tensor's offsets in a life of the model.
fn seed(life: &str, label: &str) -> u64 {
    let hash = blake3::hash(format!("{life}\n{label}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}
