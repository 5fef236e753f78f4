//! The tensors that the lossy bench works on, and later versions of them.

use crate::tensors;
use mdl_codec::{
    Dtype, SEGMENT_BYTES,
    quant::{Role, stays_lossless},
};

pub struct Tensor {
    pub role: Role,
    pub shape: Vec<usize>,
    pub raw: Vec<u8>,
}

impl Tensor {
    /// The root mean square of the numbers.
    pub fn rms(&self) -> f64 {
        let squares = numbers(&self.raw).map(|v| f64::from(v) * f64::from(v));
        (squares.sum::<f64>() / (self.raw.len() / 4) as f64).sqrt()
    }
}

pub fn numbers(raw: &[u8]) -> impl Iterator<Item = f32> + '_ {
    raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))
}

/// Byte ranges of the segments of a tensor.
pub fn segments(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..len).step_by(SEGMENT_BYTES).map(move |at| at..len.min(at + SEGMENT_BYTES))
}

/// The f32 tensors of a safetensors file that are not kept lossless.
pub fn load(path: &str) -> Vec<Tensor> {
    let take = |(name, t): (String, tensors::Tensor)| {
        let wide: Vec<u64> = t.shape.iter().map(|&d| d as u64).collect();
        let role = Role::infer(&name, &wide);
        let lossy = t.dtype == DTYPE && !stays_lossless(role, &wide);
        lossy.then_some(Tensor { role, shape: t.shape, raw: t.raw })
    };
    let found: Vec<Tensor> = tensors::read(path).into_iter().filter_map(take).collect();
    assert!(!found.is_empty(), "no tensor of {path} can be quantised");
    found
}

/// A counter-based generator: splitmix64.
fn hash(seed: u64, i: u64) -> u64 {
    let mut z = (seed << 40 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The tensor after a step: every number moves by about a bell curve (eight dice) of `step` times the root mean square.
pub fn moved(t: &Tensor, step: f64, seed: u64) -> Tensor {
    let scale = step * t.rms() / 209.0;
    let bell = |i: u64| -> f64 {
        let dice = hash(seed, i).to_le_bytes();
        dice.iter().map(|&b| f64::from(b) - 127.5).sum()
    };
    let next = |(v, i): (f32, u64)| ((f64::from(v) + scale * bell(i)) as f32).to_le_bytes();
    Tensor { role: t.role, shape: t.shape.clone(), raw: numbers(&t.raw).zip(0..).flat_map(next).collect() }
}

/// All of it is f32.
pub const DTYPE: Dtype = Dtype::F32;
