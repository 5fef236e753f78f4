//! Symbols of a reconstruction's segment in their raw contexts.

use crate::{
    CodecError, Dtype, Result,
    entropy::{Axes, BitWriter, Grid, LANES},
    quant::lattice::{
        Activity, CHUNK, LIMIT, Lattice, MOVES, PLACES, Predictions, STEPS, STEPS_ALONE, mirrored, narrow, number,
        place, round, widen,
    },
    simd::{Simd, Work},
};
use rayon::prelude::*;

/// Bits under the top one that join the class of a difference.
pub(super) const CLASS_BITS: u32 = 2;

/// The axes of contexts with and without a parent: activity, place in the cell, last move.
pub fn axes(parent: bool) -> Axes {
    if parent { [STEPS, PLACES, MOVES] } else { [STEPS_ALONE, 1, 1] }
}

/// A block as symbols.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) symbols: Vec<u8>,
    /// Raw context of each.
    pub(super) raw: Vec<u16>,
    /// Bits under the classes.
    pub(super) low: Vec<u8>,
}

impl Lattice {
    /// For measurements: raw context and symbol of every element of a segment, and the bytes of raw bits under the
    /// symbols.
    #[doc(hidden)]
    pub fn symbols(&self, start: usize, rec: &[u8], bases: [Option<&[u8]>; 2]) -> Result<(Vec<(u16, u8)>, usize)> {
        let n = rec.len() / self.dtype.size();
        self.check(start, n, rec.len())?;
        let blocks = self.blocks(Simd::detect(), Grid::new(n), start, rec, bases, axes(bases[0].is_some()))?;
        let pairs = |b: &Block| -> Vec<(u16, u8)> { b.raw.iter().copied().zip(b.symbols.iter().copied()).collect() };
        let low = blocks.iter().map(|b| b.low.len()).sum();
        Ok((blocks.iter().flat_map(pairs).collect(), low))
    }

    /// The blocks of a segment as symbols.
    pub(super) fn blocks(
        &self,
        simd: Simd,
        grid: Grid,
        start: usize,
        rec: &[u8],
        bases: [Option<&[u8]>; 2],
        axes: Axes,
    ) -> Result<Vec<Block>> {
        let one = |b| {
            let elements = grid.elements(b);
            let bytes = elements.start * self.dtype.size()..elements.end * self.dtype.size();
            let bases = bases.map(|r| r.and_then(|r| r.get(bytes.clone())));
            simd.compiled(OneBlock {
                lattice: self,
                simd,
                start: start + elements.start,
                rec: &rec[bytes],
                bases,
                axes,
            })
        };
        let blocks: Option<Vec<Block>> = (0..grid.blocks()).into_par_iter().map(one).collect();
        blocks.ok_or(CodecError::BadInput("the values are not on this lattice"))
    }

    /// Mirrored differences of the levels of `values` to their predictions; false if a value is not on the lattice.
    #[inline(always)]
    fn levels(&self, known: &Predictions, values: &[f32], moved: &mut [i32; CHUNK]) -> bool {
        let n = values.len();
        let (d, o) = (&known.cells.d[..n], &known.cells.o[..n]);
        let (guess, mirror) = (&known.guess[..n], &known.mirror[..n]);
        let mut good = true;
        let mut back = [0f32; CHUNK];
        for i in 0..n {
            let x = place(values[i], d[i], o[i]);
            good &= x.abs() < LIMIT;
            let q = round(x).0;
            back[i] = number(q, d[i], o[i]);
            moved[i] = mirrored(q.wrapping_sub(guess[i]), mirror[i]);
        }
        if self.dtype != Dtype::F32 {
            let mut raw = [0u8; 2 * CHUNK];
            narrow(self.dtype, &back[..n], &mut raw);
            widen(self.dtype, &raw, &mut back);
        }
        // No early end, so that the compiler may compare many at a time.
        let same = |good, (a, b): (&f32, &f32)| good & (a.to_bits() == b.to_bits());
        back.iter().zip(values).fold(good, same)
    }
}

/// A block that starts at `start`, to be turned into symbols with what the machine has; none if a value is not on the
/// lattice.
struct OneBlock<'a> {
    lattice: &'a Lattice,
    simd: Simd,
    start: usize,
    rec: &'a [u8],
    bases: [Option<&'a [u8]>; 2],
    axes: Axes,
}

impl Work for OneBlock<'_> {
    type Output = Option<Block>;

    #[inline(always)]
    fn run(self) -> Option<Block> {
        let OneBlock { lattice, simd, start, rec, bases, axes } = self;
        let size = lattice.dtype.size();
        let n = rec.len() / size;
        let padded = n.next_multiple_of(LANES);
        let (mut known, mut wide) = (Predictions::new(simd), [0f32; CHUNK]);
        let mut activity = Activity::new(lattice.cols, n, axes[0]);
        let (mut symbols, mut raw) = (vec![0u8; padded], vec![0u16; padded]);
        let mut low = BitWriter::default();
        let width = (axes[1] * axes[2]) as u16;
        let pieces = symbols.chunks_mut(CHUNK).zip(raw.chunks_mut(CHUNK));
        for (c, (symbols, raw)) in pieces.enumerate() {
            let (from, count) = (c * CHUNK, CHUNK.min(n - c * CHUNK));
            let bytes = from * size..(from + count) * size;
            let [parent, grandparent] = bases.map(|r| r.and_then(|r| r.get(bytes.clone())));
            known.look(lattice, start + from, count, parent, grandparent);
            widen(lattice.dtype, &rec[bytes], &mut wide);
            let mut moved = [0i32; CHUNK];
            if !lattice.levels(&known, &wide[..count], &mut moved) {
                return None;
            }
            let groups = symbols.as_chunks_mut().0.iter_mut().zip(raw.as_chunks_mut::<LANES>().0);
            let facts = moved.as_chunks().0.iter().zip(known.class.as_chunks::<LANES>().0);
            for ((symbols, raw), (moved, class)) in groups.zip(facts) {
                group(moved, symbols, &mut low, &mut activity, |steps| {
                    for ((r, &step), &class) in raw.iter_mut().zip(steps).zip(class) {
                        *r = u16::from(step) * width + u16::from(class);
                    }
                });
            }
        }
        symbols.truncate(n);
        raw.truncate(n);
        Some(Block { symbols, raw, low: low.finish() })
    }
}

/// Symbols of a group and their raw bits; `contexts` is told the steps of activity before the group is learnt from.
#[inline(always)]
fn group(
    moved: &[i32; LANES],
    symbols: &mut [u8; LANES],
    low: &mut BitWriter,
    activity: &mut Activity,
    contexts: impl FnOnce(&[u8; LANES]),
) {
    let (mut steps, mut far) = ([0u8; LANES], [0u8; LANES]);
    activity.steps(&mut steps);
    contexts(&steps);
    let mut all = 0;
    for ((far, symbol), &e) in far.iter_mut().zip(symbols.iter_mut()).zip(moved) {
        let magnitude = e.unsigned_abs();
        all |= magnitude;
        *far = if magnitude > 255 { 255 } else { magnitude as u8 };
        *symbol = (magnitude as u8).wrapping_mul(2).wrapping_sub(u8::from(e > 0));
    }
    if all >= 2 << CLASS_BITS {
        wide(moved, symbols, all, low);
    }
    activity.learn(&far);
}

/// Magnitudes that leave at most 7 raw bits.
const SHORT: u32 = 1 << (CLASS_BITS + 8);

/// Symbols of a group with raw bits, and those bits; no magnitude has bits that `all` lacks.
#[inline(always)]
fn wide(moved: &[i32; LANES], symbols: &mut [u8; LANES], all: u32, low: &mut BitWriter) {
    let (mut raw, mut widths) = ([0u32; LANES], [0u32; LANES]);
    for (((symbol, &e), raw), width) in symbols.iter_mut().zip(moved).zip(&mut raw).zip(&mut widths) {
        let m = e.unsigned_abs();
        // The exponent of a float is the place of the highest bit: exact below 2^24, and levels are.
        let top = ((m | 1 << CLASS_BITS) as i32 as f32).to_bits() >> 23;
        let shift = (top - 127 - CLASS_BITS) & 31;
        let class = (shift << CLASS_BITS) + (m >> shift);
        *symbol = ((class << 1) - u32::from(e > 0)) as u8;
        *raw = m & ((1 << shift) - 1);
        *width = shift;
    }
    let (raw, widths) = (raw.as_chunks::<8>().0, widths.as_chunks::<8>().0);
    for (raw, widths) in raw.iter().zip(widths) {
        let pairs = raw.iter().zip(widths);
        if all < SHORT {
            let join = |(bits, fill), (&r, &w): (&u32, &u32)| (bits | u64::from(r) << fill, fill + w);
            let (bits, fill) = pairs.fold((0, 0), join);
            low.put(bits, fill);
        } else {
            pairs.for_each(|(&r, &w)| low.put(r.into(), w));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::diff::{class_base, symbol_of};

    #[test]
    fn wide_groups_are_what_the_format_says() {
        for top in [8i32, 9, 300, 1023, 1024, 5000, 1 << 20, (1 << 21) - 1] {
            let moved: [i32; LANES] = std::array::from_fn(|i| (top >> (i % 9)) * if i % 2 == 0 { 1 } else { -1 });
            let all = moved.iter().fold(0, |all, e| all | e.unsigned_abs());
            let (mut symbols, mut low, mut right) = ([0; LANES], BitWriter::default(), BitWriter::default());
            wide(&moved, &mut symbols, all, &mut low);
            for (&s, &e) in symbols.iter().zip(&moved) {
                assert_eq!(s, symbol_of(e.into(), CLASS_BITS), "{e}");
                let (least, width) = class_base(s.div_ceil(2), CLASS_BITS);
                right.put(u64::from(e.unsigned_abs()) - least, width);
            }
            assert_eq!(low.finish(), right.finish(), "{top}");
        }
    }
}
