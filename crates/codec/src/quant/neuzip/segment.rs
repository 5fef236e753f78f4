//! A chunk of a tensor in lossy form as bytes: coded exponents, a byte for each block, then signs and mantissas.
//!
//! NeuZip (arXiv 2410.20650), section 2.3. Layout: bits kept (1 byte), log2 of the block (1), length of the exponents'
//! encoding (4, little-endian), that encoding (a segment of [`Dtype::U8`]), a mantissa for each block, and sign and
//! mantissa of each element in 1 + k bits, first element lowest.

use crate::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Result,
    entropy::Cursor,
    quant::{
        Grid, Values,
        neuzip::{BLOCKS, Code, check, code, coefficient, fields, mantissa_of, number},
        put_all,
    },
    simd::Work,
};

/// Elements of a chunk: what is encoded and decoded by itself. Every block divides it.
pub const CHUNK: usize = 1 << 18;
/// Elements of the largest block.
const LARGEST: usize = BLOCKS[BLOCKS.len() - 1];

/// At most [`CHUNK`] elements in lossy form. `None` for NaNs and infinities (as f32).
///
/// # Errors
/// [`CodecError::BadInput`] for more elements, and for `keep` and `block` as in [`quantise`](super::quantise).
pub fn encode(engine: &CpuEngine, values: Values<'_>, keep: u32, block: usize) -> Result<Option<Vec<u8>>> {
    check(keep, block)?;
    if values.len() > CHUNK {
        return Err(CodecError::BadInput("more elements than a chunk has"));
    }
    let Some(Parts { exponents, mantissas, rests }) = engine.simd().compiled(Encode { values, keep, block }) else {
        return Ok(None);
    };
    let exponents = engine.encode(Dtype::U8, &exponents, Bases::NONE, None)?.bytes;
    let mut out = Vec::with_capacity(6 + exponents.len() + mantissas.len() + rests.len());
    out.extend([keep as u8, block.ilog2() as u8]);
    out.extend((exponents.len() as u32).to_le_bytes());
    [exponents, mantissas, rests].iter().for_each(|part| out.extend_from_slice(part));
    Ok(Some(out))
}

/// Decodes a whole chunk into `out`, elements of `dtype` (f64, f32, f16 or bf16).
///
/// # Errors
/// Bytes that [`encode`] has not written for as many elements; dtypes that are no such floats. Never panics.
pub fn decode(engine: &CpuEngine, dtype: Dtype, encoded: &[u8], out: &mut [u8]) -> Result<()> {
    Grid::from_dtype(dtype)?;
    let size = dtype.size();
    if !out.len().is_multiple_of(size) || out.len() / size > CHUNK {
        return Err(CodecError::BadInput("more elements than a chunk has"));
    }
    let n = out.len() / size;
    let mut cursor = Cursor::new(encoded);
    let (keep, log) = (u32::from(cursor.u8()?), cursor.u8()?);
    let block = 1usize.checked_shl(u32::from(log)).unwrap_or(0);
    check(keep, block).map_err(|_| CodecError::Corrupt("no such mantissas or blocks"))?;
    let coded = cursor.u32()? as usize;
    let coded = cursor.take(coded)?;
    let mantissas = cursor.take(n.div_ceil(block))?;
    let rests = cursor.take((n * (1 + keep as usize)).div_ceil(8))?;
    cursor.done()?;
    let mut exponents = vec![0; n];
    engine.decode(Dtype::U8, coded, Bases::NONE, &mut exponents)?;
    engine.simd().compiled(Decode { dtype, keep, block, exponents: &exponents, mantissas, rests, out });
    Ok(())
}

/// What a chunk consists of: of each element the exponent; of each block the mantissa; signs and mantissas, packed.
struct Parts {
    exponents: Vec<u8>,
    mantissas: Vec<u8>,
    rests: Vec<u8>,
}

/// Takes numbers apart.
struct Encode<'a> {
    values: Values<'a>,
    keep: u32,
    block: usize,
}

impl Work for Encode<'_> {
    type Output = Option<Parts>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        match self.keep {
            0 => self.parts::<0, 1>(),
            1 => self.parts::<1, 2>(),
            _ => self.parts::<3, 4>(),
        }
    }
}

impl Encode<'_> {
    /// `None` for NaNs and infinities.
    #[inline(always)]
    fn parts<const KEEP: u32, const BITS: usize>(self) -> Option<Parts> {
        let n = self.values.len();
        let mut parts = Parts {
            exponents: vec![0; n],
            mantissas: Vec::with_capacity(n.div_ceil(self.block)),
            rests: vec![0; (n * BITS).div_ceil(8)],
        };
        let (mut wide, mut rests) = ([0f32; LARGEST], [0u8; LARGEST]);
        let packed = parts.rests.chunks_mut(self.block * BITS / 8);
        for (b, (exponents, packed)) in parts.exponents.chunks_mut(self.block).zip(packed).enumerate() {
            let (wide, rests) = (&mut wide[..exponents.len()], &mut rests[..exponents.len()]);
            self.values.part(b * self.block, self.block).widen_to(wide);
            let largest = wide.iter().fold(0, |most, x| most.max(x.to_bits() & (u32::MAX >> 1)));
            let largest = f32::from_bits(largest);
            if !largest.is_finite() {
                return None;
            }
            let mantissa = mantissa_of(largest);
            let scale = coefficient(mantissa);
            for ((x, exponent), rest) in wide.iter().zip(&mut *exponents).zip(&mut *rests) {
                Code { exponent: *exponent, rest: *rest } = code(x / scale, KEEP);
            }
            fields::pack::<BITS>(rests, packed);
            parts.mantissas.push(mantissa);
        }
        Some(parts)
    }
}

/// Puts numbers together.
struct Decode<'a> {
    dtype: Dtype,
    keep: u32,
    block: usize,
    exponents: &'a [u8],
    mantissas: &'a [u8],
    rests: &'a [u8],
    out: &'a mut [u8],
}

impl Work for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.keep {
            0 => self.numbers::<0, 1>(),
            1 => self.numbers::<1, 2>(),
            _ => self.numbers::<3, 4>(),
        }
    }
}

impl Decode<'_> {
    #[inline(always)]
    fn numbers<const KEEP: u32, const BITS: usize>(self) {
        let (mut values, mut rests) = ([0f32; LARGEST], [0u8; LARGEST]);
        let blocks = self.exponents.chunks(self.block).zip(self.rests.chunks(self.block * BITS / 8));
        let outs = self.out.chunks_mut(self.block * self.dtype.size()).zip(self.mantissas);
        for ((exponents, packed), (out, &mantissa)) in blocks.zip(outs) {
            let (values, rests) = (&mut values[..exponents.len()], &mut rests[..exponents.len()]);
            fields::unpack::<BITS>(packed, rests);
            let scale = coefficient(mantissa);
            for ((value, &exponent), &rest) in values.iter_mut().zip(exponents).zip(&*rests) {
                *value = number(Code { exponent: exponent.min(254), rest }, KEEP, scale);
            }
            put_all(self.dtype, values, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{
        neuzip::{KEPT, quantise, reconstruct},
        uniform,
    };

    fn numbers(n: usize) -> Vec<f32> {
        (0..n as u64).map(|i| (((uniform(1, i) - 0.5) * 20.0).exp2() * (uniform(2, i) - 0.5)) as f32).collect()
    }

    fn raw(dtype: Dtype, values: &[f32]) -> Vec<u8> {
        let mut out = vec![0; values.len() * dtype.size()];
        put_all(dtype, values, &mut out);
        out
    }

    #[test]
    fn a_chunk_decodes_to_what_its_codes_stand_for() {
        let engine = CpuEngine::new();
        for dtype in [Dtype::BF16, Dtype::F32, Dtype::F16, Dtype::F64] {
            for n in [0, 1, 31, 33, 512, 5001] {
                let raw = raw(dtype, &numbers(n));
                let values = Values::new(dtype, &raw).unwrap();
                for keep in KEPT {
                    for block in BLOCKS {
                        let encoded = encode(&engine, values, keep, block).unwrap().unwrap();
                        let mut out = vec![7; raw.len()];
                        decode(&engine, dtype, &encoded, &mut out).unwrap();
                        let coded = quantise(values, keep, block).unwrap().unwrap();
                        assert_eq!(out, reconstruct(dtype, &coded, keep, block).unwrap(), "{dtype:?} {n} {keep}");
                    }
                }
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_other_numbers_and_never_a_panic() {
        let engine = CpuEngine::new();
        let raw = raw(Dtype::BF16, &numbers(700));
        let encoded = encode(&engine, Values::new(Dtype::BF16, &raw).unwrap(), 3, 64).unwrap().unwrap();
        let mut out = vec![0; raw.len()];
        for at in 0..encoded.len() {
            for bit in 0..8 {
                let mut bad = encoded.clone();
                bad[at] ^= 1 << bit;
                let _ = decode(&engine, Dtype::BF16, &bad, &mut out);
            }
            assert!(decode(&engine, Dtype::BF16, &encoded[..at], &mut out).is_err());
        }
        assert!(decode(&engine, Dtype::BF16, &encoded, &mut out[2..]).is_err());
        assert!(decode(&engine, Dtype::I16, &encoded, &mut out).is_err());
    }

    #[test]
    fn what_cannot_be_encoded_is_said() {
        let engine = CpuEngine::new();
        let nan = raw(Dtype::F32, &[1.0, f32::NAN]);
        assert_eq!(encode(&engine, Values::new(Dtype::F32, &nan).unwrap(), 3, 32).unwrap(), None);
        let long = vec![0; 2 * (CHUNK + 1)];
        assert!(encode(&engine, Values::new(Dtype::BF16, &long).unwrap(), 3, 32).is_err());
        assert!(encode(&engine, Values::new(Dtype::BF16, &[]).unwrap(), 2, 32).is_err());
    }
}
