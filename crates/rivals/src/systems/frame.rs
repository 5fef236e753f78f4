//! Shared by all baseline systems: which tensors they may touch, the container of what they emit, and the state of the
//! parent.

use crate::systems::{
    table,
    table::{Entry, How},
};
use mdl_codec::{
    CodecError, CpuEngine, Dtype, Engine, Result, SEGMENT_BYTES,
    engine_internals::{Cursor, put_varint},
    quant::{
        Grid, Role, Thresholds,
        lattice::{Hint, Lattice},
        stays_lossless,
    },
};
use rayon::prelude::*;
use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

/// A tensor to encode.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Unique in its checkpoint.
    pub name: &'a str,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, row-major.
    pub shape: &'a [usize],
    /// Its little-endian elements.
    pub bytes: &'a [u8],
    /// The gradient of each element (or its moving average), little-endian f32, for systems that weigh by sensitivity.
    pub gradient: Option<&'a [u8]>,
}

impl Tensor<'_> {
    /// What it is for.
    pub fn role(&self) -> Role {
        let shape: Vec<u64> = self.shape.iter().map(|&d| d as u64).collect();
        Role::infer(self.name, &shape)
    }

    /// Whether a lossy system may touch it: a float matrix of some size that is no norm and no bias.
    pub fn quantisable(&self) -> bool {
        let shape: Vec<u64> = self.shape.iter().map(|&d| d as u64).collect();
        Grid::from_dtype(self.dtype).is_ok() && !stays_lossless(self.role(), &shape)
    }
}

/// A decoded tensor, and what its system remembers of it for the next checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The reconstruction, little-endian.
    pub bytes: Vec<u8>,
    /// Levels and bin count, where a system's delta needs them.
    pub levels: Option<(Vec<u16>, u16)>,
}

impl Kept {
    /// A tensor of which nothing else is remembered.
    pub(super) fn new(dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Kept {
        Kept { dtype, shape: shape.to_vec(), bytes, levels: None }
    }
}

/// A decoded checkpoint, by tensor name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The tensors.
    pub tensors: BTreeMap<String, Kept>,
}

impl State {
    /// The tensor of this name, if dtype and shape are the same: anything else is no parent.
    fn parent(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Option<&Kept> {
        self.tensors.get(name).filter(|k| k.dtype == dtype && k.shape == shape)
    }
}

/// What a system decides over the whole checkpoint before it encodes a tensor.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemPlan {
    /// Where to prune and protect.
    pub(super) thresholds: Option<Thresholds>,
    /// Bins by tensor name.
    pub(super) bins: BTreeMap<String, u16>,
    /// The root mean square of all numbers together.
    pub(super) rms: f64,
}

/// One tensor of one system.
pub(super) trait Coder: Debug + Send + Sync {
    /// Whether it takes this tensor; all others are lossless.
    fn takes(&self, tensor: &Tensor<'_>) -> bool {
        tensor.quantisable()
    }

    /// Looks at all tensors that it takes.
    fn plan(&self, _tensors: &[&Tensor<'_>]) -> Result<SystemPlan> {
        Ok(SystemPlan::default())
    }

    /// The body of a tensor; `None` where it must stay lossless.
    fn encode(&self, tensor: &Tensor<'_>, plan: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>>;

    /// The tensor of a body: `n` elements. `parent` is what `encode` had.
    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept>;
}

/// A compression system with its settings.
#[derive(Debug)]
pub struct System {
    pub(super) name: String,
    pub(super) coder: Box<dyn Coder>,
}

impl System {
    /// What it was asked for as, such as `uniform:bits=4`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Encodes a checkpoint, against the decoded parent if there is one. Names must be unique; runs on all threads of
    /// the current pool.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] where shape, dtype and bytes of a tensor disagree, or a setting does not fit.
    pub fn encode(&self, tensors: &[Tensor<'_>], parent: Option<&State>) -> Result<Vec<u8>> {
        for t in tensors {
            let n = t.shape.iter().try_fold(t.dtype.size(), |n, &d| n.checked_mul(d));
            if n != Some(t.bytes.len()) || t.gradient.is_some_and(|g| g.len() / 4 != t.bytes.len() / t.dtype.size()) {
                return Err(CodecError::BadInput("a tensor's bytes, gradient and shape disagree"));
            }
        }
        let taken: Vec<&Tensor<'_>> = tensors.iter().filter(|t| self.coder.takes(t)).collect();
        let plan = self.coder.plan(&taken)?;
        let coded: Vec<(Entry, Vec<u8>)> =
            tensors.par_iter().with_max_len(1).map(|t| self.one(t, &plan, parent)).collect::<Result<_, _>>()?;
        let (entries, bodies): (Vec<Entry>, Vec<Vec<u8>>) = coded.into_iter().unzip();
        let mut out = Vec::new();
        table::put(&mut out, &entries)?;
        bodies.iter().for_each(|b| out.extend_from_slice(b));
        Ok(out)
    }

    fn one(&self, t: &Tensor<'_>, plan: &SystemPlan, parent: Option<&State>) -> Result<(Entry, Vec<u8>)> {
        let parent = parent.and_then(|p| p.parent(t.name, t.dtype, t.shape));
        let own = if self.coder.takes(t) { self.coder.encode(t, plan, parent)? } else { None };
        let (how, body) = match (own, parent) {
            (Some(body), None) => (How::Alone, body),
            (Some(body), Some(_)) => (How::Against, body),
            (None, _) => (How::Lossless, segments(t.dtype, t.bytes, parent, None)?),
        };
        let entry = Entry { name: t.name.to_owned(), dtype: t.dtype, shape: t.shape.to_vec(), how, len: body.len() };
        Ok((entry, body))
    }

    /// Decodes what [`encode`](Self::encode) wrote, against the same parent. Refuses more than `limit` decoded bytes.
    ///
    /// # Errors
    /// Corrupt or truncated bytes, a parent that is missing. Never panics.
    pub fn decode(&self, bytes: &[u8], parent: Option<&State>, limit: usize) -> Result<State> {
        let mut cursor = Cursor::new(bytes);
        let mut work = Vec::new();
        let mut left = limit;
        for entry in table::get(&mut cursor)? {
            left = entry
                .bytes()
                .and_then(|n| left.checked_sub(n))
                .ok_or(CodecError::Corrupt("more numbers than were promised"))?;
            let body = cursor.take(entry.len)?;
            work.push((entry, body));
        }
        cursor.done()?;
        let done: Vec<(String, Kept)> = work
            .into_par_iter()
            .with_max_len(1)
            .map(|(entry, body)| {
                let kept = self.undo(&entry, body, parent)?;
                Ok((entry.name, kept))
            })
            .collect::<Result<_, _>>()?;
        Ok(State { tensors: done.into_iter().collect() })
    }

    fn undo(&self, entry: &Entry, body: &[u8], parent: Option<&State>) -> Result<Kept> {
        let n = entry.bytes().unwrap_or(0);
        let (dtype, shape) = (entry.dtype, &entry.shape);
        let parent = parent.and_then(|p| p.parent(&entry.name, dtype, shape));
        let kept = match entry.how {
            How::Lossless => Kept::new(dtype, shape, from_segments(dtype, body, n, parent)?),
            How::Alone => self.coder.decode(body, dtype, shape, None)?,
            How::Against => self.coder.decode(body, dtype, shape, Some(parent.ok_or(CodecError::MissingBase)?))?,
        };
        if kept.bytes.len() == n { Ok(kept) } else { Err(CodecError::Corrupt("a tensor of another length")) }
    }
}

/// The engine's segments of a tensor, each after its length; the parent is as long. `lattice`: what the elements lie
/// on, if they do.
pub(super) fn segments(
    dtype: Dtype,
    raw: &[u8],
    parent: Option<&Kept>,
    lattice: Option<&Arc<Lattice>>,
) -> Result<Vec<u8>> {
    let engine = CpuEngine::new();
    let mut out = Vec::new();
    for at in (0..raw.len()).step_by(SEGMENT_BYTES) {
        let range = at..raw.len().min(at + SEGMENT_BYTES);
        let hint = lattice.map(|l| Hint::new(l.clone(), at / dtype.size()));
        let e = engine.encode(dtype, &raw[range.clone()], parent.map(|p| &p.bytes[range]).into(), hint.as_ref())?;
        put_varint(&mut out, e.bytes.len() as u64);
        out.extend_from_slice(&e.bytes);
    }
    Ok(out)
}

/// The `n` bytes of a tensor; a parent of another length is none.
pub(super) fn from_segments(dtype: Dtype, body: &[u8], n: usize, parent: Option<&Kept>) -> Result<Vec<u8>> {
    let (engine, mut cursor) = (CpuEngine::new(), Cursor::new(body));
    // Before room for it is made: a segment is a byte or more.
    if n.div_ceil(SEGMENT_BYTES) > body.len() {
        return Err(CodecError::Corrupt("truncated"));
    }
    let (mut out, parent) = (vec![0; n], parent.filter(|p| p.bytes.len() == n));
    for (i, out) in out.chunks_mut(SEGMENT_BYTES).enumerate() {
        let len = cursor.varint()?;
        let (coded, at) = (cursor.take(len)?, i * SEGMENT_BYTES);
        engine.decode(dtype, coded, parent.map(|p| &p.bytes[at..at + out.len()]).into(), out)?;
    }
    cursor.done()?;
    Ok(out)
}
