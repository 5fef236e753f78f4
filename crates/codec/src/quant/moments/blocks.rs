//! Block quantiser of one moment: logarithmic levels below each block's largest.

use crate::{
    CodecError, Dtype, Result,
    quant::{
        Values,
        moments::{Bits, Moment, grid},
        put_all,
    },
};
use rayon::prelude::*;

/// Elements that share a largest level.
pub const BLOCK: usize = 128;
/// Moments of fewer elements stay lossless: they weigh nothing.
pub const FEW: usize = 4096;
/// Blocks that a thread takes at a time.
const SHARE: usize = 128;

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
    let (dtype, size) = (values.dtype(), values.dtype().size());
    let mut out = vec![0; n * size];
    let blocks = Blocks { signed: kind != Moment::Second, bits };
    // A share is whole blocks of one row, whatever the number of threads.
    let fine = out.par_chunks_mut(row * size).enumerate().all(|(r, out)| {
        out.par_chunks_mut(SHARE * BLOCK * size)
            .enumerate()
            .all(|(s, out)| blocks.share(values.part(r * row + s * SHARE * BLOCK, out.len() / size), dtype, out))
    });
    Ok(fine.then_some(out))
}

#[derive(Clone, Copy)]
struct Blocks {
    signed: bool,
    bits: Bits,
}

impl Blocks {
    /// Levels of one sign in a block.
    fn levels(self) -> u32 {
        match (self.bits, self.signed) {
            (Bits::Four, true) => 7,
            (Bits::Four, false) => 16,
            (Bits::Eight, true) => 127,
            (Bits::Eight, false) => 255,
        }
    }

    /// Quantises some blocks; false where one of them cannot be.
    fn share(self, values: Values<'_>, dtype: Dtype, out: &mut [u8]) -> bool {
        let mut wide = Vec::new();
        values.widen(&mut wide);
        let fine = |x: &f32| x.is_finite() && (self.signed || *x >= 0.0);
        if !wide.iter().all(fine) {
            return false;
        }
        for block in wide.chunks_mut(BLOCK) {
            let largest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
            let top = grid::index(self.bits, largest);
            block.iter_mut().for_each(|x| *x = self.level(*x, top));
        }
        put_all(dtype, &wide, out);
        true
    }

    /// The level of a number in a block whose highest index is `top`.
    fn level(self, x: f32, top: u32) -> f32 {
        if x == 0.0 {
            return 0.0;
        }
        let lowest = (top + 1).saturating_sub(self.levels());
        let index = grid::index(self.bits, x.abs());
        if self.signed && index + 1 < lowest {
            return 0.0;
        }
        grid::value(self.bits, index.max(lowest)).copysign(x)
    }
}
