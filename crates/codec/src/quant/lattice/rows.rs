//! Rows off the lattice: which rows of a segment its lattice does not hold, and values that it holds in their place.

use crate::{
    quant::lattice::{
        CHUNK, Hint, LIMIT,
        cells::{Cells, Lattice, number, place, round},
        half::{narrow, widen},
    },
    simd::{Simd, Work},
};
use rayon::prelude::*;
use std::ops::Range;

/// Elements that a thread takes at a time.
const SHARE: usize = 64 * CHUNK;

/// The rows of the matrix that `n` elements from the hint's place on lie in: the part of each that is among them,
/// counted from the first of them.
pub(crate) fn rows(hint: &Hint, n: usize) -> impl Iterator<Item = Range<usize>> {
    let (cols, mut at) = (hint.lattice.cols, 0);
    let before = hint.start % cols;
    std::iter::from_fn(move || {
        let start = at;
        at = (start + cols - (before + start) % cols).min(n);
        (start < n).then_some(start..at)
    })
}

/// For each element of `rec`, whether its row has one that is not on the lattice. The caller has checked that the
/// lattice knows these elements.
pub(crate) fn off_rows(simd: Simd, hint: &Hint, rec: &[u8]) -> Vec<bool> {
    let size = hint.lattice.dtype.size();
    let mut off = vec![false; rec.len() / size];
    off.par_chunks_mut(SHARE).zip(rec.par_chunks(SHARE * size)).enumerate().for_each(|(i, (off, rec))| {
        simd.compiled(Compare { lattice: &hint.lattice, simd, start: hint.start + i * SHARE, rec, off });
    });
    for row in rows(hint, off.len()) {
        let any = off[row.clone()].contains(&true);
        off[row].fill(any);
    }
    off
}

/// Overwrites the elements of `rec` that are `off` by values on the lattice that cost next to nothing: those that a
/// coder with this parent expects, or the ones next to zero. (Where not even these are on the lattice it is one that no
/// segment can be encoded on.)
pub(crate) fn fill(simd: Simd, hint: &Hint, off: &[bool], parent: Option<&[u8]>, rec: &mut [u8]) {
    let bytes = SHARE * hint.lattice.dtype.size();
    rec.par_chunks_mut(bytes).zip(off.par_chunks(SHARE)).enumerate().for_each(|(i, (rec, off))| {
        let parent = parent.and_then(|p| p.get(i * bytes..i * bytes + rec.len()));
        simd.compiled(Fill { lattice: &hint.lattice, simd, start: hint.start + i * SHARE, parent, off, rec });
    });
}

/// The numbers of the lattice next to `values`, and to 0 for values that have no level.
#[inline(always)]
fn nearest(lattice: &Lattice, cells: &Cells, values: &[f32], out: &mut [f32; CHUNK]) {
    for (y, (v, (&d, &o))) in out.iter_mut().zip(values.iter().zip(cells.d.iter().zip(&cells.o))) {
        let x = place(*v, d, o);
        // NaN is not below the limit either.
        let x = if x.abs() < LIMIT - 1.0 { x } else { 0.0 };
        *y = number(round(x).0, d, o);
    }
    let (size, n) = (lattice.dtype.size(), values.len());
    if size < 4 {
        let mut raw = [0u8; 2 * CHUNK];
        narrow(lattice.dtype, &out[..n], &mut raw[..n * size]);
        widen(lattice.dtype, &raw[..n * size], out);
    }
}

/// Notes which elements are not on the lattice.
struct Compare<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    start: usize,
    rec: &'a [u8],
    off: &'a mut [bool],
}

impl Work for Compare<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Compare { lattice, simd, start, rec, off } = self;
        let (mut cells, mut wide, mut back) = (Cells::new(simd), [0f32; CHUNK], [0f32; CHUNK]);
        for (i, (off, rec)) in off.chunks_mut(CHUNK).zip(rec.chunks(CHUNK * lattice.dtype.size())).enumerate() {
            let n = off.len();
            lattice.cells(start + i * CHUNK, n, &mut cells);
            widen(lattice.dtype, rec, &mut wide);
            nearest(lattice, &cells, &wide[..n], &mut back);
            for (off, (a, b)) in off.iter_mut().zip(back.iter().zip(&wide)) {
                *off = a.to_bits() != b.to_bits();
            }
        }
    }
}

/// Overwrites what is off.
struct Fill<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    start: usize,
    parent: Option<&'a [u8]>,
    off: &'a [bool],
    rec: &'a mut [u8],
}

impl Work for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Fill { lattice, simd, start, parent, off, rec } = self;
        let size = lattice.dtype.size();
        let mut cells = Cells::new(simd);
        let [mut wide, mut first, mut again, mut zero] = [[0f32; CHUNK]; 4];
        let mut raw = [0u8; 4 * CHUNK];
        for (i, (off, rec)) in off.chunks(CHUNK).zip(rec.chunks_mut(CHUNK * size)).enumerate() {
            if !off.contains(&true) {
                continue;
            }
            let n = off.len();
            lattice.cells(start + i * CHUNK, n, &mut cells);
            nearest(lattice, &cells, &[0.0; CHUNK][..n], &mut zero);
            match parent.and_then(|p| p.get(i * CHUNK * size..(i * CHUNK + n) * size)) {
                Some(parent) => {
                    widen(lattice.dtype, parent, &mut wide);
                    nearest(lattice, &cells, &wide[..n], &mut first);
                    // In halves a number may overflow, or belong to another level.
                    nearest(lattice, &cells, &first[..n], &mut again);
                    for ((y, back), zero) in first.iter_mut().zip(&again).zip(&zero) {
                        *y = if y.to_bits() == back.to_bits() { *y } else { *zero };
                    }
                }
                None => first = zero,
            }
            narrow(lattice.dtype, &first[..n], &mut raw[..n * size]);
            for (off, (to, from)) in off.iter().zip(rec.chunks_exact_mut(size).zip(raw.chunks_exact(size))) {
                if *off {
                    to.copy_from_slice(from);
                }
            }
        }
    }
}
