//! Lattice parameters: the step of every element and the seed of the offsets.
//!
//! The step of the element in row r, column c is `2^(step / 16) * rows[r]`, rounded to f32, times `cols[c]`, rounded to
//! f32.

use crate::{CodecError, Result, entropy::log2_of_float, quant::lattice::to_bf16};

/// 2^(i/16), the bits of the nearest f32.
const LADDER: [u32; 16] = [
    0x3f800000, 0x3f85aac3, 0x3f8b95c2, 0x3f91c3d3, 0x3f9837f0, 0x3f9ef532, 0x3fa5fed7, 0x3fad583f, 0x3fb504f3,
    0x3fbd08a4, 0x3fc5672a, 0x3fce248c, 0x3fd744fd, 0x3fe0ccdf, 0x3feac0c7, 0x3ff5257d,
];
/// Steps reach from 2^-80 to 2^80: all products and quotients then stay far from overflow and from subnormal numbers.
const STEP_MAX: i16 = 16 * 80;
/// Factors that sensitivity makes: within 3 octaves, in sixteenths.
const CLIP: i64 = 3 * 16;
/// Most factors of one axis.
const FACTORS_MAX: usize = 1 << 22;

/// A lattice, apart from the tensor's dtype and shape. A tensor is seen as a matrix: its first axis gives the rows, all
/// others together the columns; a tensor of one axis (or none) is one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Step of the tensor in sixteenths of an octave: 2^(step / 16), in the tensor's unit; from -1280 to 1280.
    pub step: i16,
    /// Factor of each row, the bits of a bf16 from 1/16 to 16; or empty.
    pub rows: Vec<u16>,
    /// Factor of each column, likewise.
    pub cols: Vec<u16>,
    /// Seed of the offsets, one for each tensor and each life of a model between restores; none for offsets of 0.
    pub seed: Option<u64>,
}

/// Rows and columns of a tensor of this shape; none if there are more elements than a 64-bit machine could address.
pub(super) fn matrix(shape: &[usize]) -> Option<(usize, usize)> {
    let (rows, rest) = match shape {
        [] | [_] => (1, shape),
        [rows, rest @ ..] => (*rows, rest),
    };
    let cols = rest.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    rows.checked_mul(cols)?;
    Some((rows, cols))
}

/// 2^(k / 16) as the nearest f32, for |k| up to 1,280.
pub(crate) fn power(k: i16) -> f32 {
    let k = i32::from(k);
    let octaves = k.div_euclid(16) << 23;
    f32::from_bits(LADDER[k.rem_euclid(16) as usize].wrapping_add_signed(octaves))
}

/// Whether a tensor's step may be 2^(k / 16).
pub(super) fn step_is_valid(k: i16) -> bool {
    (-STEP_MAX..=STEP_MAX).contains(&k)
}

/// The value of a stored factor, if it is one.
pub(super) fn factor(bits: u16) -> Option<f32> {
    let v = f32::from_bits(u32::from(bits) << 16);
    (0.0625..=16.0).contains(&v).then_some(v)
}

/// Factors in proportion to `mean^(-1/3)`, their geometric mean 1, rounded to half octaves (finer ones gain nothing and
/// cost more than they do, since every segment carries its factors), at most 3 octaves away from 1, then rounded to
/// bf16. Means of 0 (rows that no gradient reaches) get 8, broken ones 1; neither counts in the mean. Only
/// integers decide.
fn factors(means: &[f64]) -> Vec<u16> {
    let usable = |m: f64| m.is_normal() && m > 0.0;
    let logs = means.iter().copied().filter(|&m| usable(m)).map(log2_of_float);
    let (n, sum) = logs.fold((0, 0), |(n, sum), l| (n + 1, sum + l));
    let mean = if n > 0 { i64::div_euclid(sum, n) } else { 0 };
    let one = |&m: &f64| {
        let k = match m {
            m if usable(m) => (((mean - log2_of_float(m) + 768).div_euclid(1536)) * 8).clamp(-CLIP, CLIP),
            m if (0.0..1.0).contains(&m) => CLIP,
            _ => 0,
        };
        to_bf16(power(k as i16))
    };
    means.iter().map(one).collect()
}

impl Params {
    /// The factor 2^(k / 16) as it is kept, for |k| up to 64.
    pub fn factor(k: i16) -> u16 {
        to_bf16(power(k))
    }

    /// The value of a factor as it is kept; none for what is no factor.
    pub fn value(factor_bits: u16) -> Option<f32> {
        factor(factor_bits)
    }

    /// The lattice of a tensor of `shape` whose elements have these sensitivities (mean squared gradient, or Adam's v;
    /// any unit, in row-major order). Tensors of one axis, or whose sensitivities are not one for each element, get no
    /// factors.
    ///
    /// The means of rows and columns are sums in f64, in the order of the elements.
    pub fn from_sensitivity(step: i16, seed: Option<u64>, shape: &[usize], sensitivity: &[f32]) -> Params {
        let mut params = Params { step, seed, ..Params::default() };
        let (rows, cols) = matrix(shape).unwrap_or_default();
        if shape.len() < 2 || rows * cols != sensitivity.len() || sensitivity.is_empty() {
            return params;
        }
        let (mut by_row, mut by_col) = (Vec::with_capacity(rows), vec![0f64; cols]);
        for row in sensitivity.chunks_exact(cols) {
            let mut sum = 0f64;
            for (c, &s) in by_col.iter_mut().zip(row) {
                *c += f64::from(s);
                sum += f64::from(s);
            }
            by_row.push(sum);
        }
        // Sums do as well as means: a common factor leaves the geometric mean's ratio alone.
        params.rows = factors(&by_row);
        params.cols = factors(&by_col);
        params
    }

    /// Refuses what `Lattice` cannot work with.
    pub(super) fn check(&self, rows: usize, cols: usize) -> Result<()> {
        if !step_is_valid(self.step) {
            return Err(CodecError::BadInput("step out of range"));
        }
        for (list, n) in [(&self.rows, rows), (&self.cols, cols)] {
            if !(list.is_empty() || list.len() == n && n <= FACTORS_MAX) {
                return Err(CodecError::BadInput("as many factors as rows or columns, or none"));
            }
            if list.iter().any(|&f| factor(f).is_none()) {
                return Err(CodecError::BadInput("factor out of range"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_the_nearest_power() {
        for k in -STEP_MAX..=STEP_MAX {
            assert_eq!(power(k), (f64::from(k) / 16.0).exp2() as f32, "{k}");
        }
    }

    #[test]
    fn factors_follow_the_cube_root_and_are_clipped() {
        let f = |means: &[f64]| -> Vec<f32> { factors(means).into_iter().filter_map(factor).collect() };
        assert_eq!(f(&[1.0, 64.0, 8.0]), [2.0, 0.5, 1.0]);
        assert_eq!(f(&[1e-30, 1e30]), [8.0, 0.125]);
        assert_eq!(f(&[3.0, 0.0, f64::NAN, f64::INFINITY, -1.0, 3.0]), [1.0, 8.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(f(&[1e-300; 3]), [1.0; 3]);
    }
}
