//! Block quantiser of one moment: logarithmic levels below each block's largest.

use crate::{
    CodecError, Result,
    quant::{
        Values,
        moments::{Bits, Moment, grid},
        put_all,
    },
    simd::{Simd, Work},
    threads::share_out,
};

/// Elements that share a largest level.
pub const BLOCK: usize = 128;
/// Moments of fewer elements stay lossless: they weigh nothing.
pub const FEW: usize = 4096;
/// Blocks that a thread takes at a time.
const SHARE: usize = 128;
/// A float's bits but its sign.
const MAGNITUDE: u32 = u32::MAX >> 1;

/// A coarser version of a moment: little-endian elements of its dtype (f64, f32, f16, bf16), as many as there were, in
/// the same order. `shape` is the tensor's; rows of at least [`BLOCK`] elements begin a block of their own, so that a
/// row that is hardly ever trained does not vanish beside one that often is.
///
/// In each block the levels lie on the grid of [`Bits`], from that of its largest magnitude downwards. A signed number
/// that is more than a level below the lowest becomes +0, else it keeps its sign; a second moment below the lowest
/// becomes the lowest, and only 0 becomes 0. Quantising twice is quantising once (f16 subnormals excepted).
///
/// `None`: the tensor must stay lossless: NaNs or infinities (as f32), a negative second moment, fewer than [`FEW`]
/// elements.
///
/// # Errors
/// [`CodecError::BadInput`] for a shape of another size.
pub fn quantise(kind: Moment, bits: Bits, values: Values<'_>, shape: &[usize]) -> Result<Option<Vec<u8>>> {
    let n = values.len();
    if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(n) {
        return Err(CodecError::BadInput("the shape and the number of elements differ"));
    }
    if n < FEW {
        return Ok(None);
    }
    let row = match shape {
        [_, rest @ ..] if !rest.is_empty() => rest.iter().product::<usize>(),
        _ => n,
    };
    let row = if row < BLOCK { n } else { row };
    let (simd, size) = (Simd::detect(), values.dtype().size());
    let mut out = vec![0; n * size];
    let blocks = Blocks { signed: kind != Moment::Second, bits };
    // A share is whole blocks of one row, or several short rows, whatever the number of threads.
    let (within, most) = (row.min(SHARE * BLOCK), (SHARE * BLOCK / row).max(1));
    let rows = out.chunks_mut(most * row * size).enumerate();
    let shares = rows.flat_map(|(r, out)| {
        let shares = out.chunks_mut(most * within * size).enumerate();
        shares.map(move |(s, out)| (r * most * row + s * within, out))
    });
    let fine = share_out(shares.collect(), |(first, out)| {
        out.chunks_mut(within * size).enumerate().all(|(i, out)| {
            let values = values.part(first + i * within, out.len() / size);
            simd.compiled(Share { blocks, values, out })
        })
    });
    let fine = fine.into_iter().all(|fine| fine);
    Ok(fine.then_some(out))
}

#[derive(Clone, Copy)]
struct Blocks {
    signed: bool,
    bits: Bits,
}

/// Some blocks to quantise; the result is false where one of them cannot be.
struct Share<'a> {
    blocks: Blocks,
    values: Values<'a>,
    out: &'a mut [u8],
}

impl Work for Share<'_> {
    type Output = bool;

    /// A loop for each kind, so that nothing is asked for an element.
    #[inline(always)]
    fn run(self) -> bool {
        match (self.blocks.bits, self.blocks.signed) {
            (Bits::Four, true) => self.quantise(Blocks { bits: Bits::Four, signed: true }),
            (Bits::Four, false) => self.quantise(Blocks { bits: Bits::Four, signed: false }),
            (Bits::Eight, true) => self.quantise(Blocks { bits: Bits::Eight, signed: true }),
            (Bits::Eight, false) => self.quantise(Blocks { bits: Bits::Eight, signed: false }),
        }
    }
}

impl Share<'_> {
    #[inline(always)]
    fn quantise(self, blocks: Blocks) -> bool {
        let (dtype, mut wide) = (self.values.dtype(), [0f32; BLOCK]);
        for (b, out) in self.out.chunks_mut(BLOCK * dtype.size()).enumerate() {
            let part = self.values.part(b * BLOCK, BLOCK);
            let wide = &mut wide[..part.len()];
            part.widen_to(wide);
            let largest = f32::from_bits(wide.iter().fold(0, |most, x| most.max(x.to_bits() & MAGNITUDE)));
            // -0 is no negative number.
            let negative = wide.iter().fold(false, |any, &x| any | (x < 0.0));
            if !largest.is_finite() || (negative && !blocks.signed) {
                return false;
            }
            let lowest = (grid::index(blocks.bits, largest) + 1).saturating_sub(blocks.levels());
            // A loop and no closure: that would be compiled by itself, for the least of processors.
            for x in &mut *wide {
                *x = blocks.level(*x, lowest);
            }
            put_all(dtype, wide, out);
        }
        true
    }
}

impl Blocks {
    /// Levels of one sign in a block.
    #[inline(always)]
    fn levels(self) -> u32 {
        match (self.bits, self.signed) {
            (Bits::Four, true) => 7,
            (Bits::Four, false) => 16,
            (Bits::Eight, true) => 127,
            (Bits::Eight, false) => 255,
        }
    }

    /// The level of a number in a block whose lowest index is `lowest`.
    #[inline(always)]
    fn level(self, x: f32, lowest: u32) -> f32 {
        let index = grid::index(self.bits, x.abs());
        let level = grid::value(self.bits, index.max(lowest)).copysign(x);
        let vanishes = x == 0.0 || (self.signed && index + 1 < lowest);
        if vanishes { 0.0 } else { level }
    }
}
