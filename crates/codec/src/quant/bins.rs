//! The bin quantiser: codebook, levels, reconstruction.
//!
//! Section 4.4, with one level table of 65,536 keys for the inner loop: what a number becomes depends on its key alone
//! (and on its sensitivity, where that is known).

use crate::{
    CodecError, Dtype, Result,
    quant::{
        Cuts, Grid, KEYS, MAGNITUDES, Points, SIGMA, Sketch, Values, cluster, from_bf16, kmeans, lloyd,
        partition::{BLOCK, Block, Class, same_length},
        to_bf16, to_f16,
    },
};
use rayon::prelude::*;
use std::ops::Range;

/// Most bins of a codebook.
pub const MAX_BINS: usize = 256;
/// In a level table: a key of NaNs or infinities.
const NON_FINITE: u16 = u16::MAX;
/// In a level table: a key that needs a bin where there is none; less than [`NON_FINITE`], which is worse.
const NO_BIN: u16 = u16::MAX - 1;

/// The values of the bins: at most 256 bf16 numbers, finite, distinct, ascending; no negative zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codebook {
    bits: Vec<u16>,
}

impl Codebook {
    /// Centres rounded to f32 and then to bf16 (ties to even), sorted, without the doubles.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] where more than 256 are left or one is not finite.
    pub fn new(centres: &[f64]) -> Result<Codebook> {
        if centres.iter().any(|&c| !(c as f32).is_finite()) {
            return Err(CodecError::BadInput("a codebook needs finite values"));
        }
        // Adding +0 makes a negative zero positive and changes nothing else.
        let mut values: Vec<f32> = centres.iter().map(|&c| from_bf16(to_bf16(c as f32)) + 0.0).collect();
        values.sort_by(f32::total_cmp);
        values.dedup();
        if values.len() > MAX_BINS {
            return Err(CodecError::BadInput("a codebook has at most 256 values"));
        }
        let bits = values.into_iter().map(to_bf16).collect();
        Ok(Codebook { bits })
    }

    /// The best at most `bins` centres for a sketch under the paper's weights ([`Points::from_sketch`], sigma 0.2).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for more than 256 bins.
    pub fn exact(sketch: &Sketch, bins: u16) -> Result<Codebook> {
        Codebook::new(&cluster(&Points::from_sketch(sketch, SIGMA)?, usize::from(bins)))
    }

    /// The paper's k-means++ from a seed (Algorithms 2 and 3).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for more than 256 bins.
    pub fn seeded(sketch: &Sketch, bins: u16, seed: u64) -> Result<Codebook> {
        Codebook::new(&kmeans(&Points::from_sketch(sketch, SIGMA)?, usize::from(bins), seed))
    }

    /// Lloyd's iteration from this codebook: bins move with the weights, so that few weights change their bin.
    pub fn warmed(&self, sketch: &Sketch) -> Result<Codebook> {
        let start: Vec<f64> = self.values().map(f64::from).collect();
        Codebook::new(&lloyd(&Points::from_sketch(sketch, SIGMA)?, &start))
    }

    /// The values, ascending.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        self.bits.iter().map(|&b| from_bf16(b))
    }

    /// The values as bf16 bits, ascending by value.
    pub fn bits(&self) -> &[u16] {
        &self.bits
    }

    /// Number of bins B. Level B means pruned, B + 1 protected.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Whether there is no bin.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Twice the middle between neighbours. Sums of ascending pairs ascend, rounded or not.
    fn borders(&self) -> Vec<f64> {
        let values: Vec<f64> = self.values().map(f64::from).collect();
        values.windows(2).map(|pair| pair[0] + pair[1]).collect()
    }

    /// Calls `f` with the finite keys in runs that share a level: their class's, or the bin nearest to their
    /// representative ([`Grid::value`]), or [`NO_BIN`].
    ///
    /// Along the keys of one sign, ascending, come the pruned ones, then bin after bin, then the protected ones: so the
    /// end of a run is found by halving.
    pub(super) fn runs(&self, grid: Grid, cuts: &Cuts, mut f: impl FnMut(Range<usize>, u16)) {
        let (bins, borders) = (self.bits.len() as u16, self.borders());
        let level = |key: u16| match cuts.of_key(grid, key) {
            Class::Quantise if bins == 0 => NO_BIN,
            Class::Quantise => nearest(&borders, grid.value(key)),
            Class::Prune => bins,
            Class::Protect => bins + 1,
        };
        for sign in [0, MAGNITUDES] {
            let (mut start, end) = (sign, sign | grid.infinity());
            while start < end {
                let now = level(start);
                let (mut inside, mut beyond) = (start, end);
                while beyond - inside > 1 {
                    let middle = inside + (beyond - inside) / 2;
                    if level(middle) == now {
                        inside = middle;
                    } else {
                        beyond = middle;
                    }
                }
                f(usize::from(start)..usize::from(beyond), now);
                start = beyond;
            }
        }
    }

    /// The level of every key, finite or not.
    fn table(&self, grid: Grid, cuts: &Cuts) -> Vec<u16> {
        let mut table = vec![NON_FINITE; KEYS];
        self.runs(grid, cuts, |keys, level| table[keys].fill(level));
        table
    }
}

/// The bin whose value is nearest to `x` (finite); halfway, the one nearer to zero. So a bin's own value keeps its bin
/// even where `x` stands for its key and lies halfway to the next bf16. 0 without bins.
fn nearest(borders: &[f64], x: f32) -> u16 {
    let x = 2.0 * f64::from(x);
    borders.partition_point(|&b| b < x || (b == x && x < 0.0)) as u16
}

/// A tensor as levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantised {
    /// Of each element: its bin (0 to B - 1), B where it is pruned, B + 1 where it is protected; B bins.
    pub levels: Vec<u16>,
    /// The protected elements in order, rounded to bf16 (f64 to f32 before), ties to even; the largest finite bf16
    /// where rounding would make an infinity.
    pub protected: Vec<u16>,
}

/// Gives every weight its level. A number's bin is the nearest to its key's representative: exact nearest bin for
/// 16-bit dtypes; for f32 and f64 a number within 2^-8 (relative) of the border between two bins may be in either.
///
/// `None`: the tensor has NaNs or infinities (as f32) and must stay lossless.
///
/// # Errors
/// [`CodecError::BadInput`] for a gradient of another length, or an empty codebook where a number needs a bin.
pub fn quantise(
    weights: Values<'_>,
    gradient: Option<Values<'_>>,
    cuts: &Cuts,
    codebook: &Codebook,
) -> Result<Option<Quantised>> {
    same_length(weights, gradient)?;
    let grid = weights.grid();
    let table = codebook.table(grid, cuts);
    let bins = codebook.len() as u16;
    let mut levels = vec![0u16; weights.len()];
    let blocks: Vec<(Vec<u16>, u16)> = levels
        .par_chunks_mut(BLOCK)
        .enumerate()
        .with_min_len(16)
        .map_init(Block::default, |block, (i, out)| {
            block.read(weights, gradient, i);
            for (level, &key) in out.iter_mut().zip(&block.keys) {
                *level = table[usize::from(key)];
            }
            for ((level, &key), &s) in out.iter_mut().zip(&block.keys).zip(&block.sensitivities) {
                match cuts.with_sensitivity(cuts.of_key(grid, key), s) {
                    _ if *level == NON_FINITE => {}
                    Class::Quantise => {}
                    Class::Prune => *level = bins,
                    Class::Protect => *level = bins + 1,
                }
            }
            let most = out.iter().fold(0, |most, &level| level.max(most));
            let mut protected = Vec::new();
            if most < NO_BIN && out.contains(&(bins + 1)) {
                let values = block.values(weights, i);
                let chosen = out.iter().zip(values).filter(|&(&level, _)| level == bins + 1);
                protected.extend(chosen.map(|(_, &v)| to_bf16(v)));
            }
            (protected, most)
        })
        .collect();
    match blocks.iter().map(|b| b.1).max() {
        Some(NON_FINITE) => return Ok(None),
        Some(NO_BIN) => return Err(CodecError::BadInput("the codebook is empty and a number needs a bin")),
        _ => {}
    }
    let protected = blocks.into_iter().flat_map(|b| b.0).collect();
    Ok(Some(Quantised { levels, protected }))
}

/// The values that levels stand for, as little-endian elements of `dtype`: a bin's value, +0 for pruned, the kept bf16
/// for protected. f16 rounds them (ties to even, the largest finite f16 instead of an infinity); the other dtypes hold
/// every bf16.
///
/// # Errors
/// [`CodecError::BadInput`] for a dtype that is not quantised, a level beyond B + 1, a protected number that is
/// missing, left over or not finite.
pub fn reconstruct(dtype: Dtype, quantised: &Quantised, codebook: &Codebook) -> Result<Vec<u8>> {
    Grid::from_dtype(dtype)?;
    let (size, protect) = (dtype.size(), codebook.len() as u16 + 1);
    let Quantised { levels, protected } = quantised;
    if protected.iter().any(|&b| !Grid::Bf16.is_finite(b)) {
        return Err(CodecError::BadInput("a protected number is not finite"));
    }
    // Bins in order, then pruned.
    let fixed: Vec<[u8; 8]> = codebook.bits.iter().chain([&0]).map(|&b| element(dtype, b)).collect();
    let kept: Vec<usize> =
        levels.par_chunks(BLOCK).map(|block| block.iter().filter(|&&level| level == protect).count()).collect();
    let starts: Vec<usize> = kept.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n))).collect();
    if kept.iter().sum::<usize>() != protected.len() {
        return Err(CodecError::BadInput("the protected numbers are not as many as their levels"));
    }
    let mut out = vec![0; levels.len() * size];
    let work = out.par_chunks_mut(BLOCK * size).zip(levels.par_chunks(BLOCK)).zip(starts);
    work.try_for_each(|((out, levels), start)| {
        let kept = protected[start..].iter().map(|&b| element(dtype, b));
        // A copy of fixed length is one store.
        match size {
            8 => fill::<8>(out, levels, &fixed, protect, kept),
            4 => fill::<4>(out, levels, &fixed, protect, kept),
            _ => fill::<2>(out, levels, &fixed, protect, kept),
        }
    })?;
    Ok(out)
}

/// Writes elements of N bytes: from `fixed`, or the next of `kept` at level `protect`.
fn fill<const N: usize>(
    out: &mut [u8],
    levels: &[u16],
    fixed: &[[u8; 8]],
    protect: u16,
    mut kept: impl Iterator<Item = [u8; 8]>,
) -> Result<()> {
    for (e, &level) in out.as_chunks_mut::<N>().0.iter_mut().zip(levels) {
        let bytes = match fixed.get(usize::from(level)) {
            Some(bytes) => *bytes,
            None if level == protect => kept.next().unwrap_or_default(),
            None => return Err(CodecError::BadInput("a level is beyond the codebook")),
        };
        e.copy_from_slice(&bytes[..N]);
    }
    Ok(())
}

/// A bf16 as an element, padded to 8 bytes.
fn element(dtype: Dtype, bits: u16) -> [u8; 8] {
    let mut bytes = [0; 8];
    match dtype {
        Dtype::F64 => bytes = f64::from(from_bf16(bits)).to_le_bytes(),
        Dtype::F32 => bytes[2..4].copy_from_slice(&bits.to_le_bytes()),
        Dtype::F16 => bytes[..2].copy_from_slice(&to_f16(from_bf16(bits)).to_le_bytes()),
        _ => bytes[..2].copy_from_slice(&bits.to_le_bytes()),
    }
    bytes
}
