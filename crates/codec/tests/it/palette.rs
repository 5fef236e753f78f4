//! Palettes: tensors of few values are detected, stored near their entropy, and a quantiser's moves near the
//! conditional one.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use mdl_codec::{CpuEngine, Dtype, Encoded, Engine, Scheme};
use proptest::prelude::*;
use std::collections::HashMap;

/// A counter-based generator.
fn hash(seed: u64, i: u64) -> u64 {
    let mut z = (seed << 32 ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn bell(seed: u64, i: usize) -> f64 {
    hash(seed, i as u64).to_le_bytes().iter().map(|&b| f64::from(b) - 127.5).sum::<f64>() / 208.0
}

/// Levels of `n` weights after a walk of `steps` small steps, in `bins` uneven bins; every `protect`-th is left as it
/// is, in bf16.
fn quantised(n: usize, bins: i32, steps: usize, protect: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 * n);
    for i in 0..n {
        let w = bell(1, i) + (1..=steps).map(|s| 0.02 * bell(1 + s as u64, i)).sum::<f64>();
        let bin = (w.abs().sqrt() * f64::from(bins) / 4.0).round().min(f64::from(bins) / 2.0);
        let level = (bin * 4.0 / f64::from(bins)).powi(2).copysign(w) as f32;
        let kept = if protect > 0 && i % protect == 3 { w as f32 } else { level };
        out.extend_from_slice(&(kept.to_bits() & 0xffff_0000).to_le_bytes());
    }
    out
}

/// Bits that the numbers of `raw` take given `context`, by their own statistics.
fn entropy(raw: &[u8], context: impl Fn(usize) -> u32) -> f64 {
    let (mut joint, mut alone): (HashMap<(u32, u32), f64>, HashMap<u32, f64>) = Default::default();
    for (i, e) in raw.as_chunks::<4>().0.iter().enumerate() {
        *joint.entry((context(i), u32::from_le_bytes(*e))).or_default() += 1.0;
        *alone.entry(context(i)).or_default() += 1.0;
    }
    joint.iter().map(|((c, _), n)| n * (alone[c] / n).log2()).sum()
}

fn round_trip(raw: &[u8], base: Option<&[u8]>) -> Encoded {
    let e = CpuEngine::new().encode(Dtype::F32, raw, base.into(), None).unwrap();
    assert_eq!(CpuEngine::portable().encode(Dtype::F32, raw, base.into(), None).unwrap(), e);
    let base = if e.scheme.needs_base() { base } else { None };
    for engine in [CpuEngine::new(), CpuEngine::portable()] {
        let mut out = vec![1; raw.len()];
        engine.decode(Dtype::F32, &e.bytes, base.into(), &mut out).unwrap();
        assert!(out == raw);
    }
    e
}

#[test]
fn a_quantised_tensor_is_stored_near_its_entropy() {
    for bins in [4, 16, 32] {
        let raw = quantised(400_000, bins, 0, 0);
        let e = round_trip(&raw, None);
        assert_eq!(e.scheme, Scheme::Palette);
        let bound = entropy(&raw, |_| 0) / 8.0;
        assert!((e.bytes.len() as f64) < 1.01 * bound + 600.0, "{bins}: {} of {bound:.0}", e.bytes.len());
    }
}

#[test]
fn its_next_version_is_stored_near_the_conditional_entropy() {
    for bins in [8, 32] {
        let (base, raw) = (quantised(400_000, bins, 1, 0), quantised(400_000, bins, 2, 0));
        let e = round_trip(&raw, Some(&base));
        assert_eq!(e.scheme, Scheme::PaletteDelta);
        let parent = |i: usize| u32::from_le_bytes(base.as_chunks().0[i]);
        let bound = entropy(&raw, parent) / 8.0;
        assert!((e.bytes.len() as f64) < 1.03 * bound + 900.0, "{bins}: {} of {bound:.0}", e.bytes.len());
    }
}

#[test]
fn protected_values_stay_and_cost_their_upper_half() {
    let raw = quantised(400_000, 16, 0, 200);
    let e = round_trip(&raw, None);
    assert_eq!(e.scheme, Scheme::Palette);
    let plain = round_trip(&quantised(400_000, 16, 0, 0), None).bytes.len();
    assert!(e.bytes.len() < plain + 2000 * 2 + 2500, "{} after {plain}", e.bytes.len());
    let next = quantised(400_000, 16, 1, 200);
    assert_eq!(round_trip(&next, Some(&raw)).scheme, Scheme::PaletteDelta);
}

#[test]
fn a_codebook_that_moved_or_changed_its_size_still_helps() {
    let raw = quantised(300_000, 16, 2, 0);
    for bins in [12, 32] {
        let e = round_trip(&raw, Some(&quantised(300_000, bins, 1, 0)));
        assert_eq!(e.scheme, Scheme::PaletteDelta);
        assert!(e.bytes.len() * 3 < round_trip(&raw, None).bytes.len() * 2);
    }
}

#[test]
fn ordinary_weights_are_no_palette() {
    let raw: Vec<u8> = (0..100_000).flat_map(|i| (bell(9, i) as f32).to_le_bytes()).collect();
    assert_eq!(round_trip(&raw, None).scheme, Scheme::Planes);
}

proptest! {
    #[test]
    fn any_few_values_come_back(
        values in prop::collection::vec(any::<u32>(), 1..300),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..3000),
        other in any::<u64>(),
    ) {
        let numbers: Vec<u32> = picks.iter().map(|p| *p.get(&values)).collect();
        let raw: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let base: Vec<u8> = (0..numbers.len()).flat_map(|i| (hash(other, i as u64) as u32).to_le_bytes()).collect();
        for dtype in [Dtype::F32, Dtype::I32, Dtype::BF16, Dtype::U16, Dtype::F64, Dtype::I64] {
            let len = raw.len() / dtype.size() * dtype.size();
            for scheme in [Scheme::Palette, Scheme::PaletteDelta] {
                let bases = Some(&base[..len]).into();
                let e = CpuEngine::new().encode_as(scheme, dtype, &raw[..len], bases, None).unwrap();
                let mut out = vec![0; len];
                CpuEngine::portable().decode(dtype, &e.bytes, Some(&base[..len]).into(), &mut out).unwrap();
                prop_assert!(out == raw[..len]);
            }
        }
    }
}
