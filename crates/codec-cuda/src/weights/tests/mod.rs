//! Compressed weights on the shim, against the processor's decoder and a product on the host in the order that is
//! stated, byte by byte.

mod damaged;
mod decoding;
mod encoding;
mod products;

use crate::{
    CudaEngine,
    testing::Noise,
    weights::{Part, Product, Queue, Weights},
};
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Held, Span,
    quant::{
        Values,
        neuzip::{Coded, quantise},
        numbers::to_f16,
    },
};

/// Memory of the device, and what it held when it was taken.
pub(super) struct There {
    room: crate::resident::Room,
    skip: u64,
    len: usize,
}

impl There {
    /// Bytes on the device, `skip` bytes further on than what is aligned.
    pub fn new(engine: &CudaEngine, bytes: &[u8], skip: usize) -> There {
        let room = engine.room(bytes.len() + skip).unwrap();
        let there = There { room, skip: skip as u64, len: bytes.len() };
        let span = there.span();
        engine.on_session(|s| s.write(crate::engine::view_of(span), bytes)).unwrap();
        there
    }

    pub fn span(&self) -> Span {
        let whole = self.room.span();
        // SAFETY: inside of the room.
        unsafe { Span::new(whole.device(), whole.address() + self.skip, self.len) }
    }

    pub fn read(&self, engine: &CudaEngine) -> Vec<u8> {
        engine.on_session(|s| s.download(crate::engine::view_of(self.span()))).unwrap()
    }
}

/// The shim's only stream.
pub(super) fn queue() -> Queue {
    // SAFETY: the shim has done everything when a call returns.
    unsafe { Queue::new(0) }
}

/// The decoded bytes.
pub(super) fn decoded(engine: &CudaEngine, weights: &Weights, skip: usize) -> Vec<u8> {
    let out = There::new(engine, &vec![0xee; weights.len()], skip);
    weights.decode(queue(), out.span()).unwrap();
    out.read(engine)
}

/// A part in NeuZip's lossy form, and what its elements are.
pub(super) fn lossy(dtype: Dtype, raw: &[u8], keep: u32, block: usize) -> (Vec<u8>, Coded) {
    let coded = quantise(Values::new(dtype, raw).unwrap(), keep, block).unwrap().unwrap();
    let exponents: Vec<u8> = coded.codes.iter().map(|c| c.exponent).collect();
    let exponents = CpuEngine::new().encode(Dtype::U8, &exponents, Bases::NONE, None).unwrap().bytes;
    let mut rests = vec![0; (coded.codes.len() * (1 + keep as usize)).div_ceil(8)];
    for (i, code) in coded.codes.iter().enumerate() {
        let at = i * (1 + keep as usize);
        rests[at / 8] |= code.rest << (at % 8);
    }
    let mut out = vec![keep as u8, block.ilog2() as u8];
    out.extend((exponents.len() as u32).to_le_bytes());
    [&exponents, &coded.mantissas, &rests].into_iter().for_each(|part| out.extend_from_slice(part));
    (out, coded)
}

/// The product of a matrix and vectors, as the device gives it.
pub(super) fn product(
    engine: &CudaEngine,
    weights: &Weights,
    cols: usize,
    batch: usize,
    x: &[u8],
) -> mdl_codec::Result<Vec<u8>> {
    let rows = weights.len() / weights.dtype().size() / cols;
    let y = vec![0xee; rows * batch * weights.dtype().size()];
    let (x, y) = (There::new(engine, x, 0), There::new(engine, &y, 0));
    let scratch = There::new(engine, &vec![0xee; weights.scratch(cols, batch)?], 0);
    let product = Product { cols, batch, x: x.span(), y: y.span(), scratch: scratch.span() };
    weights.multiply(queue(), &product)?;
    Ok(y.read(engine))
}

/// An f32 as an element of the type, as a sum is rounded to it.
pub(super) fn narrow(dtype: Dtype, x: f32) -> Vec<u8> {
    let bits = x.to_bits();
    match dtype {
        Dtype::F32 => bits.to_le_bytes().to_vec(),
        Dtype::BF16 if x.is_nan() => ((bits >> 16) as u16 | 0x40).to_le_bytes().to_vec(),
        Dtype::BF16 => (((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16).to_le_bytes().to_vec(),
        _ if x.is_nan() => ((bits >> 16) as u16 & 0x8000 | 0x7e00).to_le_bytes().to_vec(),
        _ if x.abs() >= 65520.0 => ((bits >> 16) as u16 & 0x8000 | 0x7c00).to_le_bytes().to_vec(),
        _ => to_f16(x).to_le_bytes().to_vec(),
    }
}

/// Ordinary numbers.
pub(super) fn numbers(dtype: Dtype, n: usize, spread: f32, noise: &mut Noise) -> Vec<u8> {
    (0..n).flat_map(|_| narrow(dtype, noise.weight(spread))).collect()
}

/// One segment of a scheme that is put there whole.
pub(super) fn one(engine: &CudaEngine, dtype: Dtype, n: usize, segment: &[u8]) -> mdl_codec::Result<Weights> {
    engine.weights(dtype, n, n.max(1), &[Part::Segment(segment)])
}
