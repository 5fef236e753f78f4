//! Lattice cells and their f32 arithmetic.
//!
//! All arithmetic is f32, each operation rounded to nearest, ties to even, in the order written here, none fused:
//! `x = w / d; x = x - o; q = round(x)` and `y = q + o; y = y * d`. With |q| below 2^20 the level comes back from y
//! exactly: the roundings add up to less than 5/16 of a cell. In f16 and bf16 y is rounded once more, to the number
//! nearest to it; w is such a number, too, and within half a cell of y, so that the level comes back here as well.
//! (Ties could spoil it: it is checked.)

use crate::{
    CodecError, Dtype, Result,
    quant::{
        kmeans::splitmix64,
        lattice::{CHUNK, Params, factor, matrix, power},
    },
    simd::Simd,
};
use std::ops::Range;

/// Adding and taking away 1.5 * 2^23 rounds to an integer, ties to even, where |x| is at most 2^22.
const ROUND: f32 = 12_582_912.0;

/// The lattice of one tensor, or of a stretch of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Lattice {
    pub(super) dtype: Dtype,
    /// Step of the tensor, as [`Params`] has it.
    pub(super) step: i16,
    /// Columns of the tensor, at least 1.
    pub(super) cols: usize,
    /// The elements of the tensor that it knows.
    pub(super) known: Range<usize>,
    /// Factor of each row from that of the first known element on, or none.
    pub(super) rows: Vec<f32>,
    /// Factor of each column from that of the first known element on, going round, or none. Of more columns than there
    /// are known elements only as many as these.
    pub(super) factors: Vec<f32>,
    pub(super) seed: Option<u64>,
}

/// Steps and offsets of up to [`CHUNK`] elements.
pub(super) struct Cells {
    simd: Simd,
    pub(super) d: [f32; CHUNK],
    pub(super) o: [f32; CHUNK],
}

impl Cells {
    pub(super) fn new(simd: Simd) -> Self {
        Cells { simd, d: [1.0; CHUNK], o: [0.0; CHUNK] }
    }
}

/// The offsets of the elements at `2 * pair` and `2 * pair + 1`, in multiples of 2^-24 from -1/2 (included) to 1/2
/// (not): splitmix64's output number `pair + 1` from `seed`, its bits 40 to 63 and 16 to 39, each read as a two's
/// complement number.
#[inline(always)]
pub(crate) fn offsets(seed: u64, pair: u64) -> [f32; 2] {
    let z = splitmix64(seed, pair);
    let unit = |top: i32| (top >> 8) as f32 * (1.0 / 16_777_216.0);
    [unit((z >> 32) as i32), unit((z >> 8) as i32)]
}

/// The nearest integer and its f32, ties to even, for |x| up to 2^22; anything else gives something.
#[inline(always)]
pub(super) fn round(x: f32) -> (i32, f32) {
    let y = x + ROUND;
    ((y.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), y - ROUND)
}

/// The place of `w` in units of its cell; its nearest integer is the level.
#[inline(always)]
pub(super) fn place(w: f32, d: f32, o: f32) -> f32 {
    w / d - o
}

/// The number of level `q`.
#[inline(always)]
pub(super) fn number(q: i32, d: f32, o: f32) -> f32 {
    (q as f32 + o) * d
}

impl Lattice {
    /// The lattice of a tensor of this dtype (f32, bf16 or f16) and shape.
    ///
    /// # Errors
    /// Other dtypes; parameters that do not fit the shape.
    pub fn new(params: &Params, dtype: Dtype, shape: &[usize]) -> Result<Lattice> {
        if !matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
            return Err(CodecError::BadInput("a lattice takes f32, bf16 or f16"));
        }
        let (rows, cols) = matrix(shape).ok_or(CodecError::BadInput("shape too large"))?;
        params.check(rows, cols)?;
        let value = |&f: &u16| factor(f).unwrap_or(1.0);
        Ok(Lattice {
            dtype,
            step: params.step,
            cols: cols.max(1),
            known: 0..rows * cols,
            rows: params.rows.iter().map(value).collect(),
            factors: params.cols.iter().map(value).collect(),
            seed: params.seed,
        })
    }

    /// Of the tensor's elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Rows that `n` elements (at least 1) from `start` on lie in.
    pub(super) fn rows_of(&self, start: usize, n: usize) -> Range<usize> {
        start / self.cols..(start + n - 1) / self.cols + 1
    }

    /// Works out the cells of the `n` elements (at most [`CHUNK`]) from `start` on.
    #[inline(always)]
    pub(super) fn cells(&self, start: usize, n: usize, cells: &mut Cells) {
        let d = &mut cells.d[..n];
        let whole = power(self.step);
        let mut done = 0;
        while done < n {
            let at = start + done;
            let turn = (at - self.known.start) % self.cols;
            let left = self.cols - turn.max(at % self.cols);
            let count = left.min(n - done);
            let row = at / self.cols - self.known.start / self.cols;
            let step = self.rows.get(row).map_or(whole, |f| whole * f);
            let part = &mut d[done..done + count];
            match self.factors.get(turn..turn + count) {
                Some(f) => part.iter_mut().zip(f).for_each(|(d, f)| *d = step * f),
                None => part.fill(step),
            }
            done += count;
        }
        if let Some(seed) = self.seed {
            let (head, rest) = cells.o[..n].split_at_mut(n.min(start % 2));
            let (pairs, last) = rest.as_chunks_mut::<2>();
            let first = start.div_ceil(2) as u64;
            let next = first + pairs.len() as u64;
            head.iter_mut().for_each(|o| *o = offsets(seed, first - 1)[1]);
            cells.simd.offsets(seed, first, pairs);
            last.iter_mut().for_each(|o| *o = offsets(seed, next)[0]);
        }
    }

    /// Whether `n` elements from `start` on are known and `bytes` long in the dtype.
    pub(super) fn check(&self, start: usize, n: usize, bytes: usize) -> Result<()> {
        match start.checked_add(n) {
            Some(end) if start >= self.known.start && end <= self.known.end && bytes == n * self.dtype.size() => Ok(()),
            _ => Err(CodecError::BadInput("a segment is whole elements inside the tensor")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_the_published_generator_and_fill_the_cell() {
        // The first outputs of splitmix64 from seed 1234567.
        for (i, z) in [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973].into_iter().enumerate() {
            let signed = |v: u64| ((v << 40) as i64 >> 40) as f32 / 16_777_216.0;
            assert_eq!(offsets(1_234_567, i as u64), [signed(z >> 40), signed(z >> 16)]);
        }
        let all: Vec<f32> = (0..50_000).flat_map(|i| offsets(9, i)).collect();
        assert!(all.iter().all(|o| (-0.5..0.5).contains(o)));
        let mean = all.iter().sum::<f32>() / 1e5;
        let square = all.iter().map(|o| o * o).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.005 && (square - 1.0 / 12.0).abs() < 0.001);
    }

    #[test]
    fn many_offsets_are_those_of_each() {
        for (seed, first, n) in [(0, 0, 0), (9, 1, 3), (u64::MAX, 7, 4), (1 << 63, u64::MAX - 2, 131)] {
            let each: Vec<[f32; 2]> = (0..n).map(|i| offsets(seed, first.wrapping_add(i))).collect();
            let mut many = vec![[0.0; 2]; n as usize];
            Simd::detect().offsets(seed, first, &mut many);
            assert_eq!(many, each);
        }
    }

    #[test]
    fn rounding_is_to_even() {
        for x in [0.5f32, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e-30, -1_048_575.5, 1_048_574.5] {
            let (q, y) = round(x);
            assert_eq!((q, y), (x.round_ties_even() as i32, x.round_ties_even()), "{x}");
        }
    }
}
