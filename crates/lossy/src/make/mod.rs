//! Makes candidates: reconstructions of all weights under one choice, kept where an evaluator can look at them, and the
//! bytes that storing them would take.

mod replaced;

pub(crate) use replaced::Keep;
pub use replaced::ReplacedTensor;

use crate::{
    allocate::Allocation,
    bins::{BinTables, Books, needs_gradients},
    bounds::Bounds,
    bounds::earlier::EarlierVersion,
    bounds::inherit::Inherited,
    bounds::quantise::{Kept, Reconstruction, Tensor},
    bounds::rows::{RowErrors, over},
    bounds::steps::Steps,
    bounds::yardstick::Yardstick,
    decoded::DecodedBases,
    model::{Model, Part},
    moments,
    policy::Policy,
    policy_toml::Book,
    record::State,
    refused,
    sensitivity::Sensitivity,
};
use mdl_codec::{
    CodecError, Dtype,
    quant::{Config, Role, Values, lattice::Params},
};
use mdl_objects::tensor_id;
use mdl_store::{
    Result,
    object_db::Odb,
    write::{BaseTensors, Chains, DiskFile, Hints, below, measure},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
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
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The directory with what a checkout would give, if there is one.
    pub dir: PathBuf,
    /// Where the changed files are, by their name in the tree.
    pub files: HashMap<String, PathBuf>,
    /// What was kept in memory, by its place in the model.
    pub tensors: Vec<(usize, ReplacedTensor)>,
    /// Bytes that the weights' encodings take.
    pub bytes: u64,
    /// By `FILE:EXTENT`: how far the reconstruction is from the weights.
    pub errors: BTreeMap<String, RowErrors>,
    /// The lattice of each tensor that was put on one.
    pub hints: Hints,
    /// By `FILE:EXTENT`: the steps of its rows, 0 for those that are exact.
    pub steps: Allocation,
    /// Weights that had to stay as they are, for the quantiser cannot hold them.
    pub kept: Vec<String>,
    /// Weights that stay as they are because of a bound.
    pub bounded: Vec<String>,
    /// The codebooks that were used.
    pub books: Option<Books>,
}

/// What is known before a search.
pub(crate) struct Setting<'a> {
    pub odb: &'a Odb,
    pub policy: &'a Policy,
    pub model: &'a Model,
    pub list: &'a [DiskFile],
    pub sensitivity: &'a Sensitivity,
    /// The parent's tensors, file by file.
    pub bases: &'a [BaseTensors],
    pub max_depth: u8,
    pub state: State,
    pub allocation: Allocation,
    /// By a weight's place in the model: how far it may be moved; none for those that are stored already.
    pub yardsticks: BTreeMap<usize, Yardstick>,
    /// The steps of the version that the yardsticks begin at.
    pub earlier: &'a EarlierVersion,
    /// Files in which something other than weights was already replaced.
    pub before: moments::Replaced,
}

impl Setting<'_> {
    /// The steps that a tensor has in the version that the yardsticks begin at, if it is on a lattice there.
    pub fn earlier_steps(&self, part: &Part) -> Option<&Params> {
        self.earlier.steps(self.model, part)
    }
}

/// What making needs.
pub(crate) struct Maker<'a> {
    pub setting: &'a Setting<'a>,
    /// What may be lost of a row.
    pub bounds: Bounds,
    /// Seed of the offsets: the version that training was last restored from.
    pub life: Option<String>,
    /// The decoded bases that candidates are sized against.
    pub decoded: DecodedBases,
    /// By file and offset: the rows that weights inherit from their bases; the same for all candidates.
    pub inherited: HashMap<(usize, u64), Option<Inherited>>,
    pub bin_tables: BinTables,
}

impl Maker<'_> {
    /// Makes a candidate.
    pub fn make(&mut self, choice: &Choice, keep: Keep<'_>) -> Result<Made> {
        let setting = self.setting;
        let model = setting.model;
        let mut made = Made::default();
        if let Keep::Files(scratch, name) = keep {
            made.dir = scratch.fresh(name)?;
        }
        let weights: Vec<_> = model.weights().collect();
        if let Choice::Bins(config, book) = choice {
            self.bin_tables.prepare(setting.odb.engine(), model, setting.sensitivity, config, *book)?;
            made.books = self.bin_tables.books();
        }
        for (index, container) in model.files.iter().enumerate() {
            let mine: Vec<_> = weights.iter().filter(|(_, p, _)| p.file == index).collect();
            if mine.is_empty() {
                continue;
            }
            let draft = match keep {
                Keep::Files(..) => Some(setting.draft(container, &made.dir)?),
                Keep::Memory | Keep::Nowhere => None,
            };
            for (i, part, role) in mine {
                let Some(yard) = setting.yardsticks.get(i) else { continue };
                let Some(bytes) = self.part(choice, (part, *role), yard, &mut made)? else { continue };
                match (keep, &draft) {
                    (_, Some(draft)) => draft.patch(part.extent.offset, &bytes)?,
                    (Keep::Memory, None) => made.tensors.push((*i, setting.replaced(part, bytes))),
                    _ => {}
                }
            }
            if let Some(draft) = draft {
                made.files.insert(container.file.rel.clone(), draft.finish(container)?);
            }
        }
        if let Keep::Files(..) = keep {
            let dir = made.dir.clone();
            setting.link_others(&mut made, &dir)?;
        }
        Ok(made)
    }

    /// The reconstruction of one weight; none where it stays as it is.
    fn part(
        &mut self,
        choice: &Choice,
        (part, role): (&Part, Role),
        yard: &Yardstick,
        made: &mut Made,
    ) -> Result<Option<Vec<u8>>> {
        let raw = self.setting.model.read(part)?;
        let label = self.setting.model.label(part);
        let extent = &part.extent;
        let id = tensor_id(extent.dtype, &extent.shape, &raw);
        let Setting { odb, max_depth, .. } = *self.setting;
        let bases = &self.setting.bases[part.file];
        let below = self.decoded.get_or_decode(part, || below(odb, extent, &id, bases, Chains::in_line(max_depth)));
        let done = match choice {
            Choice::Lattice(sixteenths) => {
                let base = below.as_deref().map(|pair| pair.0.as_slice());
                self.lattice(*sixteenths, (part, &label), &raw, yard, base)?
            }
            Choice::Bins(config, _) => self.bins(config, part, role, &raw, yard)?,
        };
        let done = match done {
            Ok(done) => done,
            Err(why) => {
                made.bytes += measure(odb, extent, &raw, below.as_deref(), None)?;
                match why {
                    Kept::Quantiser => made.kept.push(label),
                    Kept::Bound => made.bounded.push(label),
                }
                return Ok(None);
            }
        };
        made.bytes += measure(odb, extent, &done.bytes, below.as_deref(), done.lattice.as_ref())?;
        let rel = self.setting.model.files[part.file].file.rel.clone();
        made.errors.insert(self.setting.model.stored_label(part), done.error);
        if let Some(lattice) = done.lattice {
            made.hints.insert(rel, part.extent.name.clone(), lattice);
        }
        made.steps.insert(self.setting.model.stored_label(part), done.steps);
        Ok(Some(done.bytes))
    }

    fn lattice(
        &mut self,
        sixteenths: i32,
        (part, label): (&Part, &str),
        raw: &[u8],
        yard: &Yardstick,
        base: Option<&[u8]>,
    ) -> Result<std::result::Result<Reconstruction, Kept>> {
        let Some(mut wish) = self.setting.allocation.get(label).cloned() else { return Ok(Err(Kept::Quantiser)) };
        wish.step = (i32::from(wish.step) + sixteenths).clamp(-1200, 1200) as i16;
        wish.seed = self.life.as_ref().map(|life| seed(life, label));
        let bounds = &self.bounds;
        let steps = Steps::new(&wish, yard, bounds, self.setting.earlier_steps(part));
        let dtype = part.extent.dtype;
        let find = || base.and_then(|base| Inherited::find(dtype, yard, bounds, raw, base));
        let inherited = self.inherited.entry((part.file, part.extent.offset)).or_insert_with(find).as_ref().zip(base);
        let tensor = Tensor { dtype, shape: &part.matrix(), raw, yard, inherited };
        tensor.on_lattice(self.setting.odb.engine(), steps, bounds).map_err(refused)
    }

    fn bins(
        &self,
        config: &Config,
        part: &Part,
        role: Role,
        raw: &[u8],
        yard: &Yardstick,
    ) -> Result<std::result::Result<Reconstruction, Kept>> {
        let Some((cuts, book)) = self.bin_tables.for_role(role) else {
            return Ok(Err(Kept::Quantiser));
        };
        let gradient = match needs_gradients(config) {
            true => self.setting.sensitivity.gradient(part)?,
            false => None,
        };
        let mut bytes = vec![0; raw.len()];
        let mut work = || {
            let weights = Values::new(part.extent.dtype, raw)?;
            let gradient = values_of(gradient.as_ref())?;
            self.setting.odb.engine().restore_measured(weights, gradient, &cuts, book, &mut bytes)
        };
        let Some(all) = work().map_err(refused)? else { return Ok(Err(Kept::Quantiser)) };
        let errors = yard.errors(part.extent.dtype, raw, &bytes);
        if !over(yard, &self.bounds, &errors).is_empty() {
            return Ok(Err(Kept::Bound));
        }
        let steps = Steps::record_of_errors(&errors, yard.cols);
        Ok(Ok(Reconstruction { error: RowErrors::new(all, yard, &errors, 0), bytes, lattice: None, steps }))
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
