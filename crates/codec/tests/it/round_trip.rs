//! Round trips: every dtype, length and oddity, with and without a base, on every path.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::xorshift::Xorshift;
use mdl_codec::{CpuEngine, Dtype, Encoded, Engine, SEGMENT_BYTES, Scheme};
use proptest::prelude::*;

const SCHEMES: [Scheme; 7] = [
    Scheme::Stored,
    Scheme::Zstd,
    Scheme::Planes,
    Scheme::Delta,
    Scheme::Sparse,
    Scheme::Palette,
    Scheme::PaletteDelta,
];

fn noise(n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Xorshift::seeded(seed);
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        out.extend_from_slice(&noise.next().to_le_bytes());
    }
    out.truncate(n);
    out
}

/// Numbers that look like weights: bell-shaped, as this dtype.
fn weights(dtype: Dtype, n: usize, seed: u64) -> Vec<u8> {
    let bytes = noise(n * 8, seed);
    let mut out = Vec::with_capacity(n * dtype.size());
    for b in bytes.chunks_exact(8) {
        let sum: i32 = b.iter().map(|&v| i32::from(v) - 128).sum();
        let v = sum as f32 * 1.37e-4 + f32::from(b[3]) * 1e-9;
        match dtype {
            Dtype::F64 => out.extend_from_slice(&(f64::from(v) * 1.000_000_123).to_le_bytes()),
            Dtype::F32 => out.extend_from_slice(&v.to_le_bytes()),
            Dtype::BF16 => out.extend_from_slice(&v.to_le_bytes()[2..]),
            d => out.extend_from_slice(&(v * 1e5).to_bits().to_le_bytes().repeat(4)[..d.size()]),
        }
    }
    out
}

fn check(dtype: Dtype, raw: &[u8], base: Option<&[u8]>, e: &Encoded) {
    assert!(e.bytes.len() <= raw.len() + 1, "{dtype} grew");
    assert_eq!(mdl_codec::scheme_of(&e.bytes), Ok(e.scheme));
    let base = if e.scheme.needs_base() { base } else { None };
    for engine in [CpuEngine::new(), CpuEngine::portable()] {
        let mut out = vec![0xaa; raw.len()];
        engine.decode(dtype, &e.bytes, base.into(), &mut out).unwrap();
        assert!(out == raw, "{dtype} {:?} {} bytes", e.scheme, raw.len());
    }
    let (size, n) = (dtype.size(), raw.len() / dtype.size());
    for range in [0..0, 0..n.min(1), n / 3..n / 2, n.saturating_sub(1)..n, n.min(100)..n] {
        let mut out = vec![0; range.len() * size];
        CpuEngine::new().decode_range(dtype, &e.bytes, raw.len(), base.into(), range.clone(), &mut out).unwrap();
        assert!(out == raw[range.start * size..range.end * size], "{dtype} {:?} {range:?}", e.scheme);
    }
}

fn both(dtype: Dtype, raw: &[u8], base: Option<&[u8]>) -> Encoded {
    let e = CpuEngine::new().encode(dtype, raw, base.into(), None).unwrap();
    assert_eq!(e, CpuEngine::portable().encode(dtype, raw, base.into(), None).unwrap());
    check(dtype, raw, base, &e);
    for scheme in SCHEMES.into_iter().filter(|s| base.is_some() || !s.needs_base()) {
        let forced = CpuEngine::new().encode_as(scheme, dtype, raw, base.into(), None).unwrap();
        assert_eq!(forced, CpuEngine::portable().encode_as(scheme, dtype, raw, base.into(), None).unwrap());
        check(dtype, raw, base, &forced);
    }
    e
}

#[test]
fn every_dtype_and_length() {
    for dtype in Dtype::ALL {
        for n in [0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 1000, 4097] {
            let raw = weights(dtype, n, n as u64 + 1);
            both(dtype, &raw, None);
            let mut base = raw.clone();
            base.iter_mut().step_by(37).for_each(|b| *b = b.wrapping_add(1));
            both(dtype, &raw, Some(&base));
            both(dtype, &raw, Some(&weights(dtype, n, 99)));
        }
    }
}

#[test]
fn block_borders() {
    for dtype in [Dtype::BF16, Dtype::F32, Dtype::I8] {
        for n in [(1 << 17) - 1, 1 << 17, (1 << 17) + 1, (1 << 18) + 77] {
            let raw = weights(dtype, n, 5);
            let mut base = raw.clone();
            base.iter_mut().step_by(dtype.size() * 3).for_each(|b| *b ^= 1);
            both(dtype, &raw, Some(&base));
        }
    }
}

#[test]
fn special_values_survive() {
    let specials: Vec<u32> = vec![
        0,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0xffff_ffff,
        0x7f80_0001,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x3f80_0000,
    ];
    for repeat in [1, 7, 500] {
        let raw: Vec<u8> = specials.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().repeat(repeat);
        let base: Vec<u8> = specials.iter().rev().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().repeat(repeat);
        for dtype in Dtype::ALL {
            let n = raw.len() / 16 * 16;
            both(dtype, &raw[..n], None);
            both(dtype, &raw[..n], Some(&base[..n]));
        }
    }
    // A wide spread of exponents: the window cannot hold them all.
    let wide: Vec<u8> =
        (0..20_000u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) & 0xff80_0000 | i).to_le_bytes()).collect();
    both(Dtype::F32, &wide, None);
    let mut rare = weights(Dtype::F32, 20_000, 3);
    rare[4000..4004].copy_from_slice(&f32::INFINITY.to_le_bytes());
    rare[8000..8004].copy_from_slice(&1e-35f32.to_le_bytes());
    both(Dtype::F32, &rare, None);
}

#[test]
fn constants_are_tiny() {
    for dtype in Dtype::ALL {
        let raw = vec![0x3c; 1 << 16];
        assert!(both(dtype, &raw, None).bytes.len() < 200, "{dtype}");
        assert!(both(dtype, &raw, Some(&raw.clone())).bytes.len() < 200, "{dtype}");
    }
}

#[test]
fn clean_low_bytes_cost_nothing() {
    let mut raw = weights(Dtype::F32, 50_000, 8);
    raw.chunks_exact_mut(4).for_each(|e| e[..2].fill(0));
    let e = both(Dtype::F32, &raw, None);
    let half: Vec<u8> = raw.chunks_exact(4).flat_map(|e| [e[2], e[3]]).collect();
    assert!(e.bytes.len() <= both(Dtype::BF16, &half, None).bytes.len() + 32);
    // Only a stretch of rows is clean, at 13 bits.
    let mut raw = weights(Dtype::F32, 50_000, 8);
    raw.chunks_exact_mut(4).take(20_000).for_each(|e| {
        e[0] = 0;
        e[1] &= 0xe0;
    });
    let full = both(Dtype::F32, &weights(Dtype::F32, 50_000, 8), None).bytes.len();
    assert!(both(Dtype::F32, &raw, None).bytes.len() < full - 30_000);
}

#[test]
fn nearly_equal_tensors_shrink_a_hundredfold() {
    let n = SEGMENT_BYTES / 2;
    let base = weights(Dtype::BF16, n, 11);
    let mut raw = base.clone();
    for i in 0..n / 120 {
        let at = i * 240 + (i * 7919 % 100) * 2;
        raw[at] = raw[at].wrapping_add(1);
    }
    let e = CpuEngine::new().encode(Dtype::BF16, &raw, Some(&base[..]).into(), None).unwrap();
    assert_eq!(e.scheme, Scheme::Sparse);
    assert!(raw.len() / e.bytes.len() >= 100, "{}", raw.len() / e.bytes.len());
    check(Dtype::BF16, &raw, Some(&base), &e);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let raw = weights(Dtype::F32, 700_000, 2);
    let base = weights(Dtype::F32, 700_000, 3);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            SCHEMES.map(|s| CpuEngine::new().encode_as(s, Dtype::F32, &raw, Some(&base[..]).into(), None).unwrap())
        })
    };
    assert!(run(1) == run(5));
}

#[test]
fn wrong_lengths_are_refused() {
    let engine = CpuEngine::new();
    assert!(engine.encode(Dtype::F32, &[0; 5], None.into(), None).is_err());
    assert!(engine.encode(Dtype::F32, &[0; 8], Some(&[0; 4][..]).into(), None).is_err());
    assert!(engine.encode(Dtype::U8, &vec![0; SEGMENT_BYTES + 1], None.into(), None).is_err());
    let raw = weights(Dtype::F32, 1000, 1);
    let e = engine.encode_as(Scheme::Sparse, Dtype::F32, &raw, Some(&raw[..]).into(), None).unwrap();
    let mut out = vec![0; raw.len()];
    assert_eq!(engine.decode(Dtype::F32, &e.bytes, None.into(), &mut out), Err(mdl_codec::CodecError::MissingBase));
    assert!(engine.decode(Dtype::F32, &e.bytes, Some(&raw[4..]).into(), &mut out).is_err());
    assert!(engine.decode_range(Dtype::F32, &e.bytes, raw.len(), Some(&raw[..]).into(), 5..1001, &mut out).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_round_trips(
        dtype in 0usize..18, n in 0usize..700, seed: u64, kind in 0u8..4, changed in 0usize..700, with_base: bool,
    ) {
        let dtype = Dtype::ALL[dtype];
        let mut raw = match kind {
            0 => noise(n * dtype.size(), seed),
            1 => weights(dtype, n, seed),
            2 => noise(n * dtype.size(), seed).iter().map(|b| b & 3).collect(),
            _ => vec![seed as u8; n * dtype.size()],
        };
        let base = raw.clone();
        let hits = noise(changed * 8, seed ^ 1);
        for h in hits.chunks_exact(8).filter(|_| n > 0) {
            let at = usize::from(u16::from_le_bytes([h[0], h[1]])) % raw.len();
            raw[at] ^= h[2] & h[3] & h[4];
        }
        both(dtype, &raw, with_base.then_some(&base));
    }
}
