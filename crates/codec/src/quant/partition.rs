//! Partition of the numbers into pruned, quantised and protected.
//!
//! Sections 4.1 to 4.3: protect what is large or sensitive, over the whole model; prune the least, per kind of layer;
//! embeddings are never pruned. Thresholds fall between keys, so a decision by magnitude is a decision about a key.

use crate::{
    CodecError, Result,
    quant::{Config, Grid, KEYS, Metric, Role, Sketch, Values},
};
use rayon::prelude::*;

/// Elements handled at a time: their keys and classes stay in the cache.
pub(crate) const BLOCK: usize = 1 << 14;
/// The key of a sensitivity that is no number.
const NAN_KEY: u32 = 0x7FC0;

/// What a [`Survey`] says to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was counted and can be quantised.
    Counted,
    /// It has NaNs or infinities (as f32), was not counted, and has to stay lossless.
    Lossless,
}

/// First pass: sketches of magnitude and sensitivity by role. Surveys of shards or tensors merge exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    magnitude: Vec<Sketch>,
    sensitivity: Vec<Sketch>,
}

impl Default for Survey {
    fn default() -> Self {
        let sketches = vec![Sketch::default(); Role::ALL.len()];
        Survey { magnitude: sketches.clone(), sensitivity: sketches }
    }
}

impl Survey {
    /// Counts a tensor's weights and, where its gradient is known (any float dtype, as many elements), its
    /// sensitivities |g w|, computed in f32. A sensitivity that is not finite has no rank.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] where the gradient has another number of elements.
    pub fn add(&mut self, role: Role, weights: Values<'_>, gradient: Option<Values<'_>>) -> Result<Verdict> {
        same_length(weights, gradient)?;
        if self.add_sketch(role, &Sketch::from_values(weights)) == Verdict::Lossless {
            return Ok(Verdict::Lossless);
        }
        if let Some(gradient) = gradient {
            self.sensitivity[role as usize].merge(&sensitivities(weights, gradient)?);
        }
        Ok(Verdict::Counted)
    }

    /// Counts a tensor whose gradient is not known from its sketch. A caller that keeps the sketch (a few dozen KiB)
    /// until the thresholds are known gets the codebook's points from it by [`rest_of`], without reading the tensor
    /// again.
    pub fn add_sketch(&mut self, role: Role, sketch: &Sketch) -> Verdict {
        if sketch.non_finite() > 0 {
            return Verdict::Lossless;
        }
        self.magnitude[role as usize].merge(sketch);
        Verdict::Counted
    }

    /// As [`add`](Self::add) with a gradient, from the sketches of a tensor's weights and of its [`sensitivities`], as
    /// [`Engine::survey`](crate::Engine::survey) gives them.
    pub fn add_counted(&mut self, role: Role, weights: &Sketch, sensitivities: &Sketch) -> Verdict {
        let verdict = self.add_sketch(role, weights);
        if verdict == Verdict::Counted {
            self.sensitivity[role as usize].merge(sensitivities);
        }
        verdict
    }

    /// Adds what another survey counted.
    pub fn merge(&mut self, other: &Survey) {
        let pairs = |a: &mut [Sketch], b: &[Sketch]| a.iter_mut().zip(b).for_each(|(a, b)| a.merge(b));
        pairs(&mut self.magnitude, &other.magnitude);
        pairs(&mut self.sensitivity, &other.sensitivity);
    }

    /// The thresholds of a configuration. Of n numbers, at most ceil(protect / 2 * n) are protected by magnitude and as
    /// many by sensitivity, and at most floor(prune * n) of a role's numbers are pruned: whole keys that fit the limit.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for a configuration out of range, or one that prunes by sensitivity where no gradient
    /// was counted.
    pub fn thresholds(&self, config: &Config) -> Result<Thresholds> {
        config.check()?;
        let by_sensitivity = config.metric == Metric::Sensitivity;
        if by_sensitivity && config.prune > 0.0 && self.sensitivity.iter().all(Sketch::is_empty) {
            return Err(CodecError::BadInput("pruning by sensitivity needs gradients"));
        }
        let top = |sketches: &[Sketch]| {
            let mut all = Sketch::default();
            sketches.iter().for_each(|s| all.merge(s));
            all.top((config.protect / 2.0 * all.len() as f64).ceil() as u64)
        };
        let metric = if by_sensitivity { &self.sensitivity } else { &self.magnitude };
        let bottom = |s: &Sketch| s.bottom((config.prune * s.len() as f64).floor() as u64);
        Ok(Thresholds {
            magnitude: top(&self.magnitude),
            sensitivity: top(&self.sensitivity),
            metric: config.metric,
            prune: metric.iter().map(|s| if s.is_empty() { 0.0 } else { bottom(s) }).collect(),
        })
    }
}

/// Thresholds for a whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    magnitude: f32,
    sensitivity: f32,
    metric: Metric,
    /// By role.
    prune: Vec<f32>,
}

impl Thresholds {
    /// What they mean for tensors of one role.
    pub fn cuts(&self, role: Role) -> Cuts {
        let below = match role {
            Role::Embedding => 0.0,
            _ => self.prune[role as usize],
        };
        let (magnitude, sensitivity) = match self.metric {
            Metric::Magnitude => (below, 0.0),
            Metric::Sensitivity => (0.0, below),
        };
        Cuts {
            prune_magnitude: magnitude,
            prune_sensitivity: sensitivity,
            protect_magnitude: self.magnitude,
            protect_sensitivity: self.sensitivity,
        }
    }
}

/// Thresholds of one role. Protection wins over pruning. A sensitivity that is unknown or not finite decides nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cuts {
    /// Prune numbers of smaller magnitude; 0 prunes none.
    pub prune_magnitude: f32,
    /// Prune numbers of smaller sensitivity; 0 prunes none.
    pub prune_sensitivity: f32,
    /// Protect numbers of at least this magnitude; infinity protects none.
    pub protect_magnitude: f32,
    /// Protect numbers of at least this sensitivity; infinity protects none.
    pub protect_sensitivity: f32,
}

impl Cuts {
    /// Everything is quantised.
    pub const NONE: Cuts = Cuts {
        prune_magnitude: 0.0,
        prune_sensitivity: 0.0,
        protect_magnitude: f32::INFINITY,
        protect_sensitivity: f32::INFINITY,
    };

    fn by_magnitude(&self, magnitude: f32) -> Class {
        match () {
            () if magnitude >= self.protect_magnitude => Class::Protect,
            () if magnitude < self.prune_magnitude => Class::Prune,
            () => Class::Quantise,
        }
    }

    /// What the magnitude of a key says: decided by the key's low end.
    #[inline]
    pub(crate) fn of_key(&self, grid: Grid, key: u16) -> Class {
        self.by_magnitude(grid.low(key))
    }

    /// What sensitivity makes of a decision by magnitude.
    pub(crate) fn with_sensitivity(&self, class: Class, sensitivity: f32) -> Class {
        match class {
            Class::Protect => Class::Protect,
            _ if sensitivity.is_finite() && sensitivity >= self.protect_sensitivity => Class::Protect,
            _ if sensitivity < self.prune_sensitivity => Class::Prune,
            decided => decided,
        }
    }
}

/// The decisions by magnitude of a grid's keys without sign, up to that of infinity, for another engine: keys from the
/// second border on are protected, of the others those below the first are pruned.
pub fn class_borders(cuts: &Cuts, grid: Grid) -> [u16; 2] {
    // Keys ascend with magnitude.
    let first = |beyond: &dyn Fn(Class) -> bool| {
        let (mut low, mut high) = (0, grid.infinity() + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match beyond(cuts.of_key(grid, middle)) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    };
    [first(&|class| class != Class::Prune), first(&|class| class == Class::Protect)]
}

/// What happens to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Prune,
    Quantise,
    Protect,
}

/// A sketch of the sensitivities |g w| of a tensor, each computed in f32, on [`Grid::F32`]. What is no number is
/// counted, too, all NaNs as one key.
///
/// # Errors
/// [`CodecError::BadInput`] where the gradient has another number of elements.
pub fn sensitivities(weights: Values<'_>, gradient: Values<'_>) -> Result<Sketch> {
    same_length(weights, Some(gradient))?;
    let counts = fold_blocks(weights, Some(gradient), |counts, block| {
        for s in &block.sensitivities {
            // A NaN is one key, whatever payload a machine gives it.
            counts[(s.to_bits() >> 16).min(NAN_KEY) as usize] += 1;
        }
    });
    Ok(Sketch::from_counts(Grid::F32, counts))
}

/// Second pass: a sketch of the weights that are neither pruned nor protected, for a codebook. Sketches of tensors that
/// share a codebook merge.
///
/// # Errors
/// [`CodecError::BadInput`] where the gradient has another number of elements.
pub fn rest(weights: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts) -> Result<Sketch> {
    same_length(weights, gradient)?;
    if gradient.is_none() {
        return Ok(rest_of(&Sketch::from_values(weights), cuts));
    }
    let grid = weights.grid();
    let counts = fold_blocks(weights, gradient, |counts, block| {
        for (&key, &s) in block.keys.iter().zip(&block.sensitivities) {
            let class = cuts.with_sensitivity(cuts.of_key(grid, key), s);
            counts[usize::from(key)] += u64::from(class == Class::Quantise);
        }
    });
    Ok(Sketch::from_counts(weights.grid(), counts))
}

/// [`rest`] for a tensor whose gradient is not known, from its sketch.
pub fn rest_of(sketch: &Sketch, cuts: &Cuts) -> Sketch {
    sketch.retain(|m| cuts.by_magnitude(m) == Class::Quantise)
}

/// # Errors
/// [`CodecError::BadInput`] where they differ in length.
pub(crate) fn same_length(weights: Values<'_>, gradient: Option<Values<'_>>) -> Result<()> {
    match gradient {
        Some(g) if g.len() != weights.len() => Err(CodecError::BadInput("a gradient for every weight is needed")),
        _ => Ok(()),
    }
}

/// Keys and sensitivities of a few elements; buffers that are used again.
#[derive(Default)]
pub(crate) struct Block {
    /// Of the weights.
    pub(crate) keys: Vec<u16>,
    /// |g w|; empty without a gradient.
    pub(crate) sensitivities: Vec<f32>,
    wide: Vec<f32>,
}

impl Block {
    pub(crate) fn read(&mut self, weights: Values<'_>, gradient: Option<Values<'_>>, i: usize) {
        let part = weights.part(i * BLOCK, BLOCK);
        self.keys.clear();
        part.push_keys(&mut self.keys);
        self.sensitivities.clear();
        if let Some(gradient) = gradient {
            gradient.part(i * BLOCK, BLOCK).widen(&mut self.sensitivities);
            part.widen(&mut self.wide);
            let pairs = self.sensitivities.iter_mut().zip(&self.wide);
            pairs.for_each(|(g, w)| *g = (*g * w).abs());
        }
    }

    /// The weights of block number `i` as f32.
    pub(crate) fn values(&mut self, weights: Values<'_>, i: usize) -> &[f32] {
        weights.part(i * BLOCK, BLOCK).widen(&mut self.wide);
        &self.wide
    }
}

/// Counts over all blocks, in any order: sums of counts are exact.
fn fold_blocks(
    weights: Values<'_>,
    gradient: Option<Values<'_>>,
    count: impl Fn(&mut [u64], &Block) + Sync,
) -> Vec<u64> {
    let start = || (vec![0u64; KEYS], Block::default());
    (0..weights.len().div_ceil(BLOCK))
        .into_par_iter()
        .with_min_len(64)
        .fold(start, |(mut counts, mut block), i| {
            block.read(weights, gradient, i);
            count(&mut counts, &block);
            (counts, block)
        })
        .map(|(counts, _)| counts)
        .reduce_with(|mut a, b| {
            a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
            a
        })
        .unwrap_or_else(|| vec![0; KEYS])
}
