//! Deviation (quantisation error) of a reconstruction from its tensor.
//!
//! Sums of floats depend on their order, so the order is part of the definition; it is one that many threads can
//! follow. Elements are widened to f64, which is exact. They are taken in runs of 4,096 (the last may be shorter). In a
//! run, partial sum l of 32 starts at +0 and adds the squares of elements l, l + 32, l + 64 and so on, in this order,
//! each square rounded by itself. Then partial sum l gets l + 16 added for each l below 16, then l + 8 below 8, and so
//! on by 4, 2 and 1: number 0 is the run's sum. The runs' sums are added in pairs of neighbours, one left over going on
//! as it is; the sums of these in pairs again, until one is left. A sum that is no number is the NaN of [`f64::NAN`].

use crate::{
    CodecError, Dtype, Result,
    quant::{
        Values,
        numbers::{from_bf16, from_f16},
    },
};
use rayon::prelude::*;

/// Elements of a run.
const RUN: usize = 4096;
/// Partial sums of a run, and how many of them are kept in registers at a time.
const LANES: usize = 32;
const TOGETHER: usize = 8;
/// Runs that a thread makes into one: a power of two, so that this is a part of the tree.
const PIECE: usize = 16;

/// How far numbers are from others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// Largest deviation of an element; a NaN is none.
    pub max_abs: f64,
    /// Sum of the squares of the deviations.
    pub deviation: f64,
    /// Sum of the squares of the elements.
    pub weight: f64,
}

impl Deviation {
    /// Of a reconstruction from the tensor: little-endian elements of a float dtype (f64, f32, f16, bf16).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for another dtype, unlike lengths, or a broken element at the end.
    pub fn between(dtype: Dtype, raw: &[u8], rec: &[u8]) -> Result<Deviation> {
        let (raw, rec) = (Values::new(dtype, raw)?, Values::new(dtype, rec)?);
        if raw.len() != rec.len() {
            return Err(CodecError::BadInput("the reconstruction is as long as the tensor"));
        }
        let pieces = (0..raw.len().div_ceil(RUN * PIECE)).into_par_iter().map_init(Buffers::default, |buffers, i| {
            let start = i * RUN * PIECE;
            let count = (raw.len() - start).div_ceil(RUN).min(PIECE);
            let runs = (0..count).map(|j| buffers.run(raw, rec, start + j * RUN));
            tree(runs.collect())
        });
        Ok(deviation_of_parts(pieces.collect()))
    }

    /// Both together.
    pub fn and(self, other: Deviation) -> Deviation {
        Deviation {
            max_abs: larger(self.max_abs, other.max_abs),
            deviation: self.deviation + other.deviation,
            weight: self.weight + other.weight,
        }
    }

    /// Euclidean norm of the deviation over that of the tensor.
    pub fn rel_l2(&self) -> f64 {
        if self.weight > 0.0 { (self.deviation / self.weight).sqrt() } else { 0.0 }
    }
}

/// The end of the tree, from sums of as many runs each as one power of two (the last of what is left).
pub fn deviation_of_parts(parts: Vec<Deviation>) -> Deviation {
    let sum = tree(parts);
    let plain = |x: f64| if x.is_nan() { f64::NAN } else { x };
    Deviation { max_abs: sum.max_abs, deviation: plain(sum.deviation), weight: plain(sum.weight) }
}

fn tree(mut level: Vec<Deviation>) -> Deviation {
    while level.len() > 1 {
        let pair = |pair: &[Deviation]| match pair {
            [a, b] => a.and(*b),
            other => other[0],
        };
        level = level.chunks(2).map(pair).collect();
    }
    level.first().copied().unwrap_or_default()
}

/// The larger one; the first where the second is no number.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

type Rows = Vec<[f64; LANES]>;

/// A run of both as f64; 0 behind the last element, which changes no sum.
#[derive(Default)]
struct Buffers {
    raw: Rows,
    rec: Rows,
}

impl Buffers {
    fn run(&mut self, raw: Values<'_>, rec: Values<'_>, start: usize) -> Deviation {
        widen(raw.part(start, RUN), &mut self.raw);
        widen(rec.part(start, RUN), &mut self.rec);
        let mut all = [[0.0; LANES]; 3];
        for at in (0..LANES).step_by(TOGETHER) {
            let sums = lanes(&self.raw, &self.rec, at);
            for (all, sums) in all.iter_mut().zip(sums) {
                all[at..at + TOGETHER].copy_from_slice(&sums);
            }
        }
        let [mut most, mut deviation, mut weight] = all;
        for half in [16, 8, 4, 2, 1] {
            for l in 0..half {
                most[l] = larger(most[l], most[l + half]);
                deviation[l] += deviation[l + half];
                weight[l] += weight[l + half];
            }
        }
        Deviation { max_abs: most[0], deviation: deviation[0], weight: weight[0] }
    }
}

/// Largest deviations and both sums of lanes `at` and the seven after it.
fn lanes(raw: &Rows, rec: &Rows, at: usize) -> [[f64; TOGETHER]; 3] {
    let (mut most, mut deviation, mut weight) = ([0.0; TOGETHER], [0.0; TOGETHER], [0.0; TOGETHER]);
    for (a, b) in raw.iter().zip(rec) {
        if let (Some(a), Some(b)) = (a[at..].first_chunk::<TOGETHER>(), b[at..].first_chunk::<TOGETHER>()) {
            for l in 0..TOGETHER {
                let d = a[l] - b[l];
                most[l] = larger(most[l], d.abs());
                deviation[l] += d * d;
                weight[l] += a[l] * a[l];
            }
        }
    }
    [most, deviation, weight]
}

fn widen(values: Values<'_>, out: &mut Rows) {
    out.clear();
    out.resize(values.len().div_ceil(LANES), [0.0; LANES]);
    let to = out.as_flattened_mut();
    match values.dtype() {
        Dtype::F64 => each(values, to, f64::from_le_bytes),
        Dtype::F32 => each(values, to, |e| f64::from(f32::from_le_bytes(e))),
        Dtype::F16 => each(values, to, |e| f64::from(from_f16(u16::from_le_bytes(e)))),
        _ => each(values, to, |e| f64::from(from_bf16(u16::from_le_bytes(e)))),
    }
}

fn each<const N: usize>(values: Values<'_>, out: &mut [f64], value: impl Fn([u8; N]) -> f64) {
    for (out, e) in out.iter_mut().zip(values.bytes().as_chunks::<N>().0) {
        *out = value(*e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word for word.
    fn plain(a: &[f64], b: &[f64]) -> Deviation {
        let mut level: Vec<Deviation> = Vec::new();
        for (a, b) in a.chunks(4096).zip(b.chunks(4096)) {
            let mut sums = [Deviation::default(); 32];
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                let d = a - b;
                sums[i % 32] = sums[i % 32].and(Deviation { max_abs: d.abs(), deviation: d * d, weight: a * a });
            }
            for half in [16, 8, 4, 2, 1] {
                (0..half).for_each(|l| sums[l] = sums[l].and(sums[l + half]));
            }
            level.push(sums[0]);
        }
        while level.len() > 1 {
            level = level.chunks(2).map(|p| p.iter().copied().reduce(Deviation::and).unwrap()).collect();
        }
        level.first().copied().unwrap_or_default()
    }

    #[test]
    fn sums_are_made_in_the_stated_order() {
        for n in [0, 1, 31, 33, 4096, 4097, 65_536, 65_537, 70_001, 5 * 65_536 + 4095] {
            let a: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin()).collect();
            let b: Vec<f64> = a.iter().enumerate().map(|(i, x)| x + (i as f64).cos() * 1e-3).collect();
            let bytes = |x: &[f64]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            assert_eq!(Deviation::between(Dtype::F64, &bytes(&a), &bytes(&b)).unwrap(), plain(&a, &b), "{n}");
        }
    }

    #[test]
    fn half_floats_and_refusals() {
        let (raw, rec) = ([0x00, 0x3C, 0x00, 0xC0], [0x00, 0x38, 0x00, 0xC0]);
        let found = Deviation::between(Dtype::F16, &raw, &rec).unwrap();
        assert_eq!((found.max_abs, found.deviation, found.weight), (0.5, 0.25, 5.0));
        assert_eq!(found.rel_l2(), (0.25f64 / 5.0).sqrt());
        assert!(Deviation::between(Dtype::F32, &[0; 8], &[0; 4]).is_err());
        assert!(Deviation::between(Dtype::I8, &[0; 8], &[0; 8]).is_err());
        let nan = f64::NAN.to_le_bytes();
        let found = Deviation::between(Dtype::F64, &nan, &[0; 8]).unwrap();
        assert_eq!((found.max_abs, found.deviation.to_bits()), (0.0, f64::NAN.to_bits()));
    }
}
