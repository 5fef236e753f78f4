//! Quantises numbers straight to their reconstruction, without levels in between.
//!
//! A number without a gradient becomes what its key says: one look-up in a table of 65,536 words, of which the few
//! thousand that weights touch stay in the cache. The upper half of a word is the element's upper (or only) 16 bits;
//! the lower half is 0, or says that the key alone does not settle it.

use crate::{
    CodecError, Dtype, Result,
    quant::{
        Codebook, Cuts, Grid, KEYS, Values, from_bf16,
        partition::{BLOCK, same_length},
        quantise, reconstruct, to_bf16, to_f16,
    },
};
use rayon::prelude::*;

/// In a word: the number itself is kept, in bf16.
pub const PROTECT: u32 = 1;
/// In a word: NaNs and infinities.
pub const NON_FINITE: u32 = 2;
/// In a word: a bin is needed and there is none.
pub const NO_BIN: u32 = 4;

/// Writes what [`quantise`] and then [`reconstruct`] give for `weights` to `out`, which is as long as they are; much
/// faster where there is no gradient.
///
/// False: the tensor has NaNs or infinities (as f32) and must stay lossless; what was written is of no use.
///
/// # Errors
/// [`CodecError::BadInput`] for a gradient or `out` of another length, or an empty codebook where a number needs a bin.
pub fn restore(
    weights: Values<'_>,
    gradient: Option<Values<'_>>,
    cuts: &Cuts,
    codebook: &Codebook,
    out: &mut [u8],
) -> Result<bool> {
    same_length(weights, gradient)?;
    let (dtype, raw) = (weights.dtype(), weights.bytes());
    if out.len() != raw.len() {
        return Err(CodecError::BadInput("the reconstruction is as long as the tensor"));
    }
    if gradient.is_some() {
        let quantised = quantise(weights, gradient, cuts, codebook)?;
        if let Some(quantised) = &quantised {
            out.copy_from_slice(&reconstruct(dtype, quantised, codebook)?);
        }
        return Ok(quantised.is_some());
    }
    let words = words(dtype, weights.grid(), cuts, codebook);
    let size = BLOCK * dtype.size();
    let flags = raw
        .par_chunks(size)
        .zip(out.par_chunks_mut(size))
        .with_min_len(16)
        .map(|(raw, out)| match dtype {
            Dtype::F64 => {
                fill(&words, raw, out, |e| f64::from_le_bytes(e) as f32, |w| f64::from(f32::from_bits(w)).to_le_bytes())
            }
            Dtype::F32 => fill(&words, raw, out, f32::from_le_bytes, u32::to_le_bytes),
            _ => halves(dtype, &words, raw, out),
        })
        .reduce(|| 0, |a, b| a | b);
    match flags {
        f if f & NON_FINITE != 0 => Ok(false),
        f if f & NO_BIN != 0 => Err(CodecError::BadInput("the codebook is empty and a number needs a bin")),
        _ => Ok(true),
    }
}

/// The words of all keys.
pub fn words(dtype: Dtype, grid: Grid, cuts: &Cuts, codebook: &Codebook) -> Box<[u32; KEYS]> {
    let mut words = Box::new([NON_FINITE; KEYS]);
    let (bins, bits) = (codebook.len(), codebook.bits());
    codebook.runs(grid, cuts, |keys, level| {
        let word = match usize::from(level) {
            l if l < bins => u32::from(short(dtype, bits[l])) << 16,
            l if l == bins => 0,
            l if l == bins + 1 => PROTECT,
            _ => NO_BIN,
        };
        words[keys].fill(word);
    });
    words
}

/// The upper or only 16 bits of the element that holds a bf16.
fn short(dtype: Dtype, bits: u16) -> u16 {
    match dtype {
        Dtype::F16 => to_f16(from_bf16(bits)),
        _ => bits,
    }
}

/// Elements of 4 or 8 bytes; returns the flags of all words but [`PROTECT`].
fn fill<const N: usize>(
    words: &[u32; KEYS],
    raw: &[u8],
    out: &mut [u8],
    narrow: impl Fn([u8; N]) -> f32,
    put: impl Fn(u32) -> [u8; N],
) -> u32 {
    let mut seen = 0;
    let word = |e: &[u8; N]| words[(narrow(*e).to_bits() >> 16) as usize];
    let (eights, rest) = raw.as_chunks::<N>().0.as_chunks::<8>();
    let (outs, last) = out.as_chunks_mut::<N>().0.as_chunks_mut::<8>();
    for (from, to) in eights.iter().zip(outs) {
        let mut flags = 0;
        for (e, o) in from.iter().zip(to.iter_mut()) {
            let w = word(e);
            flags |= w;
            *o = put(w);
        }
        // Protected numbers are few: they are put right after the fact.
        if flags & 0xFFFF != 0 {
            seen |= flags;
            protect(words, from, to, &narrow, &put);
        }
    }
    for (e, o) in rest.iter().zip(last.iter_mut()) {
        let w = word(e);
        seen |= w;
        *o = put(w);
    }
    protect(words, rest, last, narrow, put);
    seen & (NON_FINITE | NO_BIN)
}

#[cold]
fn protect<const N: usize>(
    words: &[u32; KEYS],
    raw: &[[u8; N]],
    out: &mut [[u8; N]],
    narrow: impl Fn([u8; N]) -> f32,
    put: impl Fn(u32) -> [u8; N],
) {
    for (e, o) in raw.iter().zip(out) {
        let x = narrow(*e);
        if words[(x.to_bits() >> 16) as usize] == PROTECT {
            *o = put(u32::from(to_bf16(x)) << 16);
        }
    }
}

/// Elements of 2 bytes, which are their own keys: a protected one is settled by its key as well.
fn halves(dtype: Dtype, words: &[u32; KEYS], raw: &[u8], out: &mut [u8]) -> u32 {
    let mut seen = 0;
    for (e, o) in raw.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0) {
        let key = u16::from_le_bytes(*e);
        let w = words[usize::from(key)];
        seen |= w;
        let bits = match w {
            PROTECT if dtype == Dtype::F16 => short(dtype, to_bf16(super::numbers::from_f16(key))),
            PROTECT => to_bf16(from_bf16(key)),
            w => (w >> 16) as u16,
        };
        *o = bits.to_le_bytes();
    }
    seen & (NON_FINITE | NO_BIN)
}
