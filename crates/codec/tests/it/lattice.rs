//! Lattices through the engine: with a hint the smaller of lattice and ordinary scheme is kept, a hint that is wrong
//! changes nothing, and a stored segment gives its hint back.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::xorshift::Xorshift;
use mdl_codec::{
    Bases, CpuEngine, Dtype, Encoded, Engine, SEGMENT_BYTES, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params},
};
use std::sync::Arc;

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::BF16, Dtype::F16];

/// Bell-shaped numbers of about unit size.
fn bell(n: usize, seed: u64) -> Vec<f32> {
    let mut noise = Xorshift::seeded(seed);
    let mut one = || noise.next().to_le_bytes().iter().map(|&b| f32::from(b) - 127.5).sum::<f32>() / 209.0;
    (0..n).map(|_| one()).collect()
}

/// As numbers of a dtype, cut off towards zero.
fn bytes(dtype: Dtype, v: &[f32]) -> Vec<u8> {
    let half = |v: f32| {
        let b = v.to_bits();
        let e = (b >> 23 & 0xff) as i32 - 112;
        let sign = (b >> 16) as u16 & 0x8000;
        if e < 1 { sign } else { sign | (e as u16) << 10 | (b >> 13) as u16 & 0x3ff }
    };
    match dtype {
        Dtype::F32 => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::F16 => v.iter().flat_map(|v| half(*v).to_le_bytes()).collect(),
        _ => v.iter().flat_map(|v| v.to_le_bytes()[2..].to_vec()).collect(),
    }
}

fn lattice(dtype: Dtype, shape: &[usize], seed: u64) -> Arc<Lattice> {
    let n = shape.iter().product();
    let sensitivity: Vec<f32> = bell(n, 5).iter().map(|v| v * v).collect();
    let params = Params::from_sensitivity(-48, Some(seed), shape, &sensitivity);
    Arc::new(Lattice::new(&params, dtype, shape).unwrap())
}

fn quantised(l: &Lattice, dtype: Dtype, v: &[f32]) -> Vec<u8> {
    let raw = bytes(dtype, v);
    let mut rec = vec![0; raw.len()];
    assert_eq!(l.quantise(0, &raw, &mut rec), Ok(Outcome::Quantised));
    rec
}

fn moved(v: &[f32], by: f32, seed: u64) -> Vec<f32> {
    v.iter().zip(bell(v.len(), seed)).map(|(a, b)| a + by * b).collect()
}

/// Encodes on every path and decodes what came out; the bases that the scheme does not need are kept from it.
fn both(dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: &Hint) -> Encoded {
    let e = CpuEngine::new().encode(dtype, raw, bases, Some(hint)).unwrap();
    assert_eq!(CpuEngine::portable().encode(dtype, raw, bases, Some(hint)).unwrap(), e);
    let needed = Bases {
        base: bases.base.filter(|_| e.scheme.bases() > 0),
        grandparent: bases.grandparent.filter(|_| e.scheme.bases() > 1),
    };
    for engine in [CpuEngine::new(), CpuEngine::portable()] {
        let mut out = vec![0xaa; raw.len()];
        engine.decode(dtype, &e.bytes, needed, &mut out).unwrap();
        assert!(out == raw, "{dtype} {:?}", e.scheme);
    }
    if e.scheme.bases() > 0 {
        let mut out = vec![0; raw.len()];
        assert!(CpuEngine::new().decode(dtype, &e.bytes, Bases::NONE, &mut out).is_err());
    }
    e
}

#[test]
fn every_length_and_family() {
    for dtype in FLOATS {
        for n in [0usize, 1, 31, 33, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1] {
            let l = lattice(dtype, &[n.div_ceil(50), n.min(50)], 1);
            let hint = Hint::new(l.clone(), 0);
            let w = bell(n.div_ceil(50) * n.min(50), 1);
            let cut = n * dtype.size();
            let on = |l: &Lattice| {
                let versions = [moved(&w, 0.05, 2), moved(&w, 0.02, 3), w.clone()];
                versions.map(|w| quantised(l, dtype, &w)[..cut].to_vec())
            };
            let [rec, base, grandparent] = on(&l);
            let alone = both(dtype, &rec, Bases::NONE, &hint);
            // Bases on the same lattice, and on one with other offsets.
            let other = on(&lattice(dtype, &[n.div_ceil(50), n.min(50)], 2));
            // In a short segment the grandparent must save what naming it costs.
            let last = if n > 1000 { Scheme::LatticeDelta2 } else { Scheme::LatticeDelta };
            for (bases, schemes) in [
                ([&base, &grandparent], [Scheme::LatticeMoves; 2]),
                ([&other[1], &other[2]], [Scheme::LatticeDelta, last]),
            ] {
                let [base, grandparent] = bases.map(|b| Some(&b[..]));
                let delta = both(dtype, &rec, base.into(), &hint);
                let third = both(dtype, &rec, Bases { base, grandparent }, &hint);
                if n >= 1000 {
                    assert_eq!(alone.scheme, Scheme::Lattice);
                    assert_eq!([&delta, &third].map(|e| e.scheme), schemes, "{dtype} {n}");
                    assert!(delta.bytes.len() < alone.bytes.len());
                }
            }
        }
    }
}

#[test]
fn segments_of_a_long_tensor_stand_alone() {
    let dtype = Dtype::BF16;
    let per = SEGMENT_BYTES / dtype.size();
    let shape = [3, per / 2 + 77];
    let l = lattice(dtype, &shape, 3);
    let rec = quantised(&l, dtype, &bell(shape[0] * shape[1], 9));
    for (i, raw) in rec.chunks(SEGMENT_BYTES).enumerate() {
        let e = both(dtype, raw, Bases::NONE, &Hint::new(l.clone(), i * per));
        assert_eq!(e.scheme, Scheme::Lattice);
        // Encoded against another base, from nothing but the stored segment.
        let hint = Hint::from_encoded(dtype, &e.bytes, raw.len()).unwrap().unwrap();
        let again = both(dtype, raw, raw.into(), &hint);
        assert!(again.bytes.len() < e.bytes.len() / 4);
        assert!(both(dtype, raw, Bases::NONE, &hint) == e);
    }
}

#[test]
fn a_wrong_hint_changes_nothing() {
    let n = 4000;
    let w = bell(n, 1);
    let raw = bytes(Dtype::F32, &w);
    let plain = CpuEngine::new().encode(Dtype::F32, &raw, Bases::NONE, None).unwrap();
    let l = lattice(Dtype::F32, &[40, 100], 1);
    let other = lattice(Dtype::BF16, &[40, 100], 1);
    // Not on it; beyond its end; of another dtype.
    for hint in
        [Hint::new(l.clone(), 0), Hint::new(l.clone(), 1), Hint::new(l.clone(), usize::MAX), Hint::new(other, 0)]
    {
        assert_eq!(both(Dtype::F32, &raw, Bases::NONE, &hint), plain);
    }
    assert!(Hint::from_encoded(Dtype::F32, &plain.bytes, raw.len()).unwrap().is_none());
    // What an ordinary scheme stores in less stays ordinary.
    let rec = quantised(&l, Dtype::F32, &w);
    let hint = Hint::new(l.clone(), 0);
    let same = both(Dtype::F32, &rec, rec.as_slice().into(), &hint);
    assert!(same.bytes.len() < 200, "{}", same.bytes.len());
    let flat = lattice(Dtype::F32, &[40, 100], 1);
    let zero = Arc::new(Lattice::new(&Params::default(), Dtype::F32, &[40, 100]).unwrap());
    let levels = quantised(&zero, Dtype::F32, &w.iter().map(|v| v * 1.5).collect::<Vec<_>>());
    let e = both(Dtype::F32, &levels, Bases::NONE, &Hint::new(flat, 0));
    assert_eq!(e.scheme, Scheme::Palette);
}

#[test]
fn an_unrelated_base_is_not_used() {
    let l = lattice(Dtype::F32, &[200, 200], 1);
    let [rec, stranger] = [1, 2].map(|s| quantised(&l, Dtype::F32, &bell(40_000, s)));
    let e = both(Dtype::F32, &rec, stranger.as_slice().into(), &Hint::new(l, 0));
    assert_eq!(e.scheme, Scheme::Lattice);
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let l = lattice(Dtype::F32, &[900, 800], 1);
    let w = bell(900 * 800, 4);
    let (rec, base) = (quantised(&l, Dtype::F32, &moved(&w, 0.1, 3)), quantised(&l, Dtype::F32, &w));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| both(Dtype::F32, &rec, base.as_slice().into(), &Hint::new(l.clone(), 0)))
    };
    assert!(run(1) == run(2) && run(1) == run(8));
}
