//! Lattice quantiser: numbers to a reconstruction.

use crate::{
    CodecError, Dtype, Result,
    quant::lattice::{
        CHUNK, LIMIT,
        cells::{Cells, Lattice, number, place, round},
        half::{narrow, widen},
    },
    simd::{Simd, Work},
};
use rayon::prelude::*;

/// Elements that a thread takes at a time.
const SHARE: usize = 64 * CHUNK;

/// What quantising a piece of a tensor gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reconstruction is written.
    Quantised,
    /// The tensor must be stored lossless; what was written is of no use.
    Lossless(Reason),
}

/// Why a tensor must be stored lossless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The level does not come back from its number in the dtype, because that overflows.
    OutOfRange,
    /// A level would be 2^20 or more away from 0.
    TooLarge,
    /// An infinity or NaN.
    NotFinite,
}

/// What [`Lattice::share`] is asked for.
struct Share<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    start: usize,
    w: &'a [u8],
    rec: &'a mut [u8],
}

impl Work for Share<'_> {
    type Output = Option<Reason>;

    #[inline(always)]
    fn run(self) -> Option<Reason> {
        self.lattice.share(self.simd, self.start, self.w, self.rec)
    }
}

impl Lattice {
    /// Quantises `w`, the elements from `start` on (little-endian, in the lattice's dtype), and writes the
    /// reconstruction to `rec`, which has the same length. Every value is at most half a step (and its rounding to the
    /// dtype) away from its original. Any cut of a tensor into pieces gives the same numbers; one piece that must stay
    /// lossless makes the tensor so.
    ///
    /// # Errors
    /// Lengths that disagree.
    pub fn quantise(&self, start: usize, w: &[u8], rec: &mut [u8]) -> Result<Outcome> {
        let size = self.dtype.size();
        self.check(start, w.len() / size, w.len())?;
        if rec.len() != w.len() {
            return Err(CodecError::BadInput("the reconstruction is as long as the tensor"));
        }
        let simd = Simd::detect();
        let worst = w
            .par_chunks(SHARE * size)
            .zip(rec.par_chunks_mut(SHARE * size))
            .enumerate()
            .map(|(i, (w, rec))| simd.compiled(Share { lattice: self, simd, start: start + i * SHARE, w, rec }))
            .max()
            .flatten();
        Ok(worst.map_or(Outcome::Quantised, Outcome::Lossless))
    }

    /// The reconstruction whose every element is at level `q` (|q| below 2^20), whole tensor, little-endian in the
    /// lattice's dtype: for tensors that are a row's factor times a column's.
    pub(crate) fn level_everywhere(&self, q: i32) -> Vec<u8> {
        let size = self.dtype.size();
        let mut out = vec![0; self.known.len() * size];
        out.par_chunks_mut(CHUNK * size).enumerate().for_each(|(i, out)| {
            let (mut cells, mut wide) = (Cells::new(Simd::detect()), [0f32; CHUNK]);
            let n = out.len() / size;
            self.cells(i * CHUNK, n, &mut cells);
            for (w, (&d, &o)) in wide[..n].iter_mut().zip(cells.d.iter().zip(&cells.o)) {
                *w = number(q, d, o);
            }
            narrow(self.dtype, &wide[..n], out);
        });
        out
    }

    #[inline(always)]
    pub(super) fn share(&self, simd: Simd, start: usize, w: &[u8], rec: &mut [u8]) -> Option<Reason> {
        let size = self.dtype.size();
        let (mut cells, mut wide, mut back) = (Cells::new(simd), [0f32; CHUNK], [0f32; CHUNK]);
        let mut worst = None;
        let parts = w.chunks(CHUNK * size).zip(rec.chunks_mut(CHUNK * size));
        for (i, (w, rec)) in parts.enumerate() {
            let n = w.len() / size;
            self.cells(start + i * CHUNK, n, &mut cells);
            widen(self.dtype, w, &mut wide);
            // Without a break, so that the compiler may work on many at a time.
            let (mut finite, mut small, mut same) = (true, true, true);
            for (w, (&d, &o)) in wide[..n].iter_mut().zip(cells.d.iter().zip(&cells.o)) {
                let x = place(*w, d, o);
                finite &= w.is_finite();
                small &= x.abs() < LIMIT - 1.0;
                *w = number(round(x).0, d, o);
            }
            narrow(self.dtype, &wide[..n], rec);
            if self.dtype != Dtype::F32 {
                widen(self.dtype, rec, &mut back);
                for (i, (&y, &r)) in wide[..n].iter().zip(&back).enumerate() {
                    let (d, o) = (cells.d[i], cells.o[i]);
                    let x = place(r, d, o);
                    same &= x.abs() < LIMIT && number(round(x).0, d, o).to_bits() == y.to_bits();
                }
            }
            worst = worst.max(match (finite, small, same) {
                (false, ..) => Some(Reason::NotFinite),
                (_, false, _) => Some(Reason::TooLarge),
                (.., false) => Some(Reason::OutOfRange),
                _ => None,
            });
        }
        worst
    }
}
