//! Broken encodings: every truncation and every flipped bit of a small encoding of every scheme ends in an error or in
//! some bytes, never in a panic.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::xorshift::Xorshift;
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params},
};
use std::sync::Arc;

fn input(dtype: Dtype, n: usize) -> (Vec<u8>, Vec<u8>) {
    let mut x = 7u32;
    let mut raw = Vec::new();
    for i in 0..n {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let v = (f32::from((x >> 16) as u16) - 32768.0) * 1e-6;
        let v = if i % 97 == 0 { 1e-30 } else { v };
        match dtype {
            Dtype::BF16 | Dtype::I16 => raw.extend_from_slice(&v.to_le_bytes()[2..]),
            _ => raw.extend_from_slice(&v.to_le_bytes()),
        }
    }
    if dtype == Dtype::F32 {
        raw[..n.min(512) * 4].chunks_exact_mut(4).for_each(|e| e[0] = 0);
    }
    let mut base = raw.clone();
    base.iter_mut().step_by(61).for_each(|b| *b ^= 5);
    (raw, base)
}

fn attack(dtype: Dtype, bytes: &[u8], raw: &[u8], base: Option<&[u8]>, grandparent: Option<&[u8]>) {
    let family = Bases { base, grandparent };
    let engines = CpuEngine::every();
    let mut out = vec![0; raw.len()];
    for cut in 0..bytes.len() {
        for e in &engines {
            assert!(e.decode(dtype, &bytes[..cut], family, &mut out).is_err(), "cut at {cut}");
        }
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(engines[0].decode(dtype, &longer, family, &mut out).is_err());
    let mut broken = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        broken[bit / 8] ^= 1 << (bit % 8);
        let mut results = Vec::new();
        for e in &engines {
            out.fill(0);
            let r = e.decode(dtype, &broken, family, &mut out);
            results.push(r.map(|()| out.clone()));
        }
        assert_same(&results, bit);
        if let (Some(base), Ok(0..2)) = (base, mdl_codec::scheme_of(&broken).map(Scheme::bases)) {
            // Over its base, and on top of a whole one.
            let root = [&[0], base].concat();
            let r = engines[0].decode_chain(dtype, &[&root, &broken], Bases::NONE, &mut out);
            assert_eq!(r.map(|()| out.clone()), results[0], "over its base, bit {bit}");
            let _ = engines[0].decode_chain(dtype, &[&root, bytes, &broken, bytes], Bases::NONE, &mut out);
        }
        let _ = engines[0].decode_range(dtype, &broken, raw.len(), family, 3..9, &mut out[..6 * dtype.size()]);
        broken[bit / 8] ^= 1 << (bit % 8);
    }
    // Another type or length than the one encoded.
    for other in Dtype::ALL {
        for len in [0, 16, raw.len() / 32 * 16, raw.len() * 2 / 16 * 16] {
            let mut out = vec![0; len];
            let other_family = vec![1; len];
            let family = Bases { base: Some(&other_family), grandparent: Some(&other_family) };
            let _ = engines[0].decode(other, bytes, family, &mut out);
        }
    }
}

/// All paths end in an error, or all in the same bytes.
fn assert_same<E>(results: &[Result<Vec<u8>, E>], at: usize) {
    let bytes: Vec<_> = results.iter().map(|r| r.as_ref().ok()).collect();
    assert!(bytes.iter().all(|b| *b == bytes[0]), "paths differ at {at}");
}

/// Few distinct values made of any, and a stranger now and then.
fn levels(raw: &[u8], dtype: Dtype) -> Vec<u8> {
    let size = dtype.size();
    let mut out = vec![0; raw.len()];
    for (i, (o, e)) in out.chunks_exact_mut(size).zip(raw.chunks_exact(size)).enumerate() {
        o[size - 1] = e[size - 1] & 0x83;
        o[size - 2] = if i % 50 == 7 { e[0] | 1 } else { 0 };
    }
    out
}

#[test]
fn truncations_and_bit_flips_of_every_scheme() {
    for (dtype, n) in [(Dtype::F32, 700), (Dtype::BF16, 300), (Dtype::I16, 200), (Dtype::F32, 33)] {
        let (raw, base) = input(dtype, n);
        for scheme in [Scheme::Zstd, Scheme::Planes, Scheme::Delta, Scheme::Sparse] {
            let e = CpuEngine::new().encode_as(scheme, dtype, &raw, Some(&base[..]).into(), None).unwrap();
            attack(dtype, &e.bytes, &raw, Some(&base), None);
        }
        let (raw, base) = (levels(&raw, dtype), levels(&base, dtype));
        let mut grandparent = raw.clone();
        grandparent.rotate_right(4 * dtype.size());
        let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
        let e = CpuEngine::new().encode_as(Scheme::PaletteDelta2, dtype, &raw, family, None).unwrap();
        assert!(n < 700 || e.scheme == Scheme::PaletteDelta2);
        attack(dtype, &e.bytes, &raw, Some(&base), Some(&grandparent));
        for scheme in [Scheme::Palette, Scheme::PaletteDelta] {
            let e = CpuEngine::new().encode_as(scheme, dtype, &raw, Some(&base[..]).into(), None).unwrap();
            assert!(n < 700 || e.scheme == scheme);
            attack(dtype, &e.bytes, &raw, Some(&base), None);
        }
    }
}

#[test]
fn blocks_decoded_side_by_side_may_be_damaged_one_by_one() {
    // Two whole blocks and a shorter one; three and a half.
    for (dtype, n) in [(Dtype::F32, 600_000), (Dtype::BF16, 900_001), (Dtype::I16, 600_000)] {
        let (raw, base) = input(dtype, n);
        let family = Bases { base: Some(&base), grandparent: None };
        for scheme in [Scheme::Planes, Scheme::Delta] {
            let plain = CpuEngine::portable().encode_as(scheme, dtype, &raw, family, None).unwrap();
            let mut noise = Xorshift(n as u64);
            let mut out = vec![0; raw.len()];
            for engine in CpuEngine::every() {
                assert!(engine.encode_as(scheme, dtype, &raw, family, None).unwrap() == plain, "{dtype} {engine:?}");
                engine.decode(dtype, &plain.bytes, family, &mut out).unwrap();
                assert!(out == raw, "{dtype} {engine:?}");
            }
            for round in 0..24 {
                let mut broken = plain.bytes.clone();
                let at = noise.next() as usize % broken.len();
                match round % 3 {
                    0 => broken.truncate(at),
                    1 => broken[at] ^= 1 << (round % 8),
                    // In the last block's words or bits.
                    _ => broken[plain.bytes.len() - 1 - at % 3000] ^= 0x55,
                }
                let results: Vec<_> = CpuEngine::every()
                    .iter()
                    .map(|engine| engine.decode(dtype, &broken, family, &mut out).map(|()| out.clone()))
                    .collect();
                assert_same(&results, at);
            }
        }
    }
}

#[test]
fn truncations_and_bit_flips_of_lattices() {
    let shape = [12, 25];
    let n = shape[0] * shape[1];
    let bell =
        |seed: u32| (0..n as u32).map(move |i| ((i * 7919 + seed).wrapping_mul(0x9e37_79b9) >> 20) as f32 / 900.0);
    let sensitivity: Vec<f32> = bell(1).collect();
    let params = Params::from_sensitivity(-20, Some(9), &shape, &sensitivity);
    for dtype in [Dtype::F32, Dtype::BF16] {
        let lattice = Lattice::new(&params, dtype, &shape).unwrap();
        let [rec, base] = [1, 3].map(|seed| {
            let raw: Vec<u8> = bell(seed).flat_map(|v| v.to_le_bytes()[4 - dtype.size()..].to_vec()).collect();
            let mut rec = vec![0; raw.len()];
            assert_eq!(lattice.quantise(0, &raw, &mut rec), Ok(Outcome::Quantised));
            rec
        });
        let hint = Hint::new(Arc::new(lattice), 0);
        for scheme in [Scheme::Lattice, Scheme::LatticeDelta, Scheme::LatticeDelta2, Scheme::LatticeMoves] {
            let family = Bases { base: Some(&rec), grandparent: Some(&base) };
            let e = CpuEngine::new().encode_as(scheme, dtype, &rec, family, Some(&hint)).unwrap();
            assert_eq!(e.scheme, scheme);
            attack(dtype, &e.bytes, &rec, Some(&rec[..]), Some(&base));
        }
        let e = CpuEngine::new().encode_as(Scheme::LatticeMoves, dtype, &rec, base.as_slice().into(), Some(&hint));
        let e = e.unwrap();
        assert_eq!(e.scheme, Scheme::LatticeMoves);
        attack(dtype, &e.bytes, &rec, Some(&base), None);
        // Row 2 is exact, row 7 the base's.
        let (mut mixed, mut older) = (rec.clone(), base.clone());
        let row = shape[1] * dtype.size();
        mixed[2 * row..3 * row].iter_mut().for_each(|b| *b ^= 1);
        older[7 * row..8 * row].iter_mut().for_each(|b| *b ^= 1);
        mixed[7 * row..8 * row].copy_from_slice(&older[7 * row..8 * row]);
        for scheme in [Scheme::Overlay, Scheme::OverlayDelta, Scheme::OverlayDelta2] {
            let family = Bases { base: Some(&older), grandparent: Some(&rec) };
            let e = CpuEngine::new().encode_as(scheme, dtype, &mixed, family, Some(&hint)).unwrap();
            assert!(e.scheme == scheme || scheme == Scheme::OverlayDelta2, "{dtype} {:?}", e.scheme);
            attack(dtype, &e.bytes, &mixed, Some(&older[..]), Some(&rec));
        }
    }
}

#[test]
fn noise_is_no_encoding() {
    let mut noise = Xorshift(1);
    let mut out = vec![0; 4096];
    let base = vec![3; 4096];
    for round in 0..3000u64 {
        let bytes: Vec<u8> = (0..round % 300)
            .map(|i| {
                let x = noise.next();
                if i == 0 {
                    (round % 17) as u8
                } else if i == 1 {
                    7 + (x % 17) as u8
                } else {
                    x as u8 & (x >> 8) as u8
                }
            })
            .collect();
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64, Dtype::U8] {
            let family = Bases { base: Some(&base), grandparent: Some(&base) };
            let _ = CpuEngine::new().decode(dtype, &bytes, family, &mut out);
        }
    }
}
