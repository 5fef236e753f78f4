//! Target: encoded segments. Both implementations agree, ranges are parts of the whole, and nothing is written beyond
//! the stated length.

use crate::mutate::Random;
use mdl_codec::{Bases, CpuEngine, Dtype, Engine, quant::lattice::Hint};

/// Before the encoded bytes: dtype, three bytes of length, a number that base and grandparent are made from.
pub const HEAD: usize = 5;
/// Decoded bytes at most; longer ones only take longer.
const LONGEST: usize = 96 << 10;
/// Bytes behind the output that must stay as they are.
const FENCE: usize = 64;

/// Base and grandparent that seeds were encoded against: floats near zero whose low bytes vary.
#[must_use]
pub fn bases(dtype: Dtype, len: usize, seed: u8) -> [Vec<u8>; 2] {
    let mut random = Random::new(u64::from(seed) + 1);
    let mut base = vec![0u8; len];
    for element in base.chunks_mut(dtype.size().max(1)) {
        let value = (random.below(1 << 16) as f32 - 32768.0) * 1e-6;
        let bytes = if seed & 1 == 0 { value.to_le_bytes() } else { (value * 0.02).round().to_le_bytes() };
        for (to, from) in element.iter_mut().rev().zip(bytes.iter().rev()) {
            *to = *from;
        }
    }
    let mut grandparent = base.clone();
    grandparent.iter_mut().step_by(7).for_each(|b| *b ^= 3);
    [base, grandparent]
}

/// `HEAD`, then an encoded segment.
pub fn segments(data: &[u8]) {
    let Some((head, encoded)) = data.split_first_chunk::<HEAD>() else {
        return;
    };
    let dtype = Dtype::ALL[usize::from(head[0]) % Dtype::ALL.len()];
    let len = u32::from_le_bytes([head[1], head[2], head[3], 0]) as usize % LONGEST;
    let [base, grandparent] = bases(dtype, len, head[4]);
    let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
    let mut fenced = vec![0xa5; len + FENCE];
    let Some((out, fence)) = fenced.split_at_mut_checked(len) else {
        return;
    };
    let first = CpuEngine::new().decode(dtype, encoded, family, out);
    assert!(fence.iter().all(|b| *b == 0xa5), "written beyond the segment");
    let mut plain = vec![0x5a; len];
    let second = CpuEngine::portable().decode(dtype, encoded, family, &mut plain);
    assert!(first.is_ok() == second.is_ok(), "{first:?} {second:?}");
    if let Ok(hint) = Hint::from_encoded(dtype, encoded, len) {
        drop(hint);
    }
    let elements = len / dtype.size();
    let range = elements / 3..elements - elements / 4;
    let mut part = vec![0; range.len() * dtype.size()];
    let partly = CpuEngine::new().decode_range(dtype, encoded, len, family, range.clone(), &mut part);
    if first.is_err() {
        return;
    }
    assert!(*out == plain, "the two implementations differ");
    assert!(partly.is_ok(), "a part of a segment that decodes does not: {partly:?}");
    assert!(part == out[range.start * dtype.size()..range.end * dtype.size()], "a part differs from the whole");
    again(dtype, out, family);
}

/// What was decoded is encoded and decoded to the same.
fn again(dtype: Dtype, raw: &[u8], family: Bases<'_>) {
    let engine = CpuEngine::new();
    let encoded = engine.encode(dtype, raw, family, None).expect("lengths are right");
    assert!(encoded.bytes.len() <= raw.len() + 1, "longer than stored");
    let mut out = vec![0; raw.len()];
    engine.decode(dtype, &encoded.bytes, family, &mut out).expect("what an encoder wrote");
    assert!(out == raw, "decoded to something else");
}
