//! Encodings of every engine are the reference's, and so is what damaged ones decode to.

use super::{Tested, asked, decodes, engines, families, generations, put, same, short_enough, weight};
use crate::xorshift::Xorshift;
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    quant::{
        Codebook, Cuts, Sketch, Values,
        lattice::{Hint, Lattice, Outcome, Params},
        restore,
    },
};
use mdl_codec_cuda::shim;
use std::{collections::BTreeSet, sync::Arc};

/// Every scheme that codes, and needs no hint.
const CODED: [Scheme; 7] = [
    Scheme::Zstd,
    Scheme::Planes,
    Scheme::Delta,
    Scheme::Sparse,
    Scheme::Palette,
    Scheme::PaletteDelta,
    Scheme::PaletteDelta2,
];

const SIZES: [usize; 9] = [0, 1, 31, 32, 33, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1];

#[test]
fn every_dtype_and_odd_size_gives_the_reference_bytes() {
    let engines = engines();
    let mut seen = BTreeSet::new();
    for dtype in Dtype::ALL {
        for n in SIZES {
            // One MiB is enough for a slow device, and blocks' edges look alike in all types of a size.
            let widest = matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F8E4M3);
            if n * dtype.size() > (1 << 20) + 64 || (n > 5000 && !widest) || !short_enough(n) {
                continue;
            }
            for (kind, [raw, base, grandparent]) in families(dtype, n, 77 + n as u64) {
                for bases in generations(&base, &grandparent) {
                    for engine in &engines {
                        let what = format!(
                            "{n} {dtype}, {kind}, {} relatives",
                            bases.base.iter().len() + bases.grandparent.iter().len()
                        );
                        seen.insert(same(engine.engine(), &what, dtype, &raw, bases, None));
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
    let all: BTreeSet<Scheme> = CODED.into_iter().chain([Scheme::Stored]).collect();
    assert_eq!(seen, all, "every scheme that needs no hint is chosen by something here");
}

#[test]
fn schemes_that_were_not_chosen_decode_too() {
    let reference = CpuEngine::new();
    for engine in engines() {
        for dtype in Dtype::ALL {
            for (kind, [raw, base, grandparent]) in families(dtype, 5003, 9) {
                let bases = Bases { base: Some(&base), grandparent: Some(&grandparent) };
                for scheme in CODED {
                    let encoded = reference.encode_as(scheme, dtype, &raw, bases, None).unwrap();
                    decodes(engine.engine(), &format!("{dtype}, {kind}"), dtype, &encoded, bases, &raw);
                }
            }
        }
        engine.never_failed();
    }
}

#[test]
fn lattices_give_the_reference_bytes() {
    let engines = engines();
    let mut seen = BTreeSet::new();
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        for shape in [vec![1], vec![33], vec![7, 33], vec![64, 1000], vec![4100, 64]] {
            let n: usize = shape.iter().product();
            if !short_enough(n) {
                continue;
            }
            let mut noise = Xorshift(n as u64 + 5);
            let mut raw = Vec::new();
            (0..n).for_each(|_| put(dtype, weight(&mut noise), &mut raw));
            let factor = |i: usize| [0x3F80u16, 0x4000, 0x3F00][i % 3];
            let of = |step: i16| Params {
                step,
                rows: if shape.len() > 1 { (0..shape[0]).map(factor).collect() } else { Vec::new() },
                cols: if shape.len() > 1 { (0..shape[1]).map(factor).collect() } else { Vec::new() },
                seed: (step % 2 == 0).then_some(99),
            };
            for step in [-60, -97] {
                let lattice = Arc::new(Lattice::new(&of(step), dtype, &shape).unwrap());
                let quantised = |of: &Lattice, raw: &[u8]| {
                    let mut out = vec![0; raw.len()];
                    assert_eq!(of.quantise(0, raw, &mut out), Ok(Outcome::Quantised));
                    out
                };
                let rec = quantised(&lattice, &raw);
                let mut older = Vec::new();
                for e in raw.chunks_exact(dtype.size()) {
                    let mut e = e.to_vec();
                    e[dtype.size() - 2] = e[dtype.size() - 2].wrapping_add((noise.next() % 3) as u8);
                    older.extend(e);
                }
                // Every fifth row is as it was, every fifth one is the base's, which is on no lattice there.
                let (mut mixed, mut base) = (rec.clone(), quantised(&lattice, &older));
                let clean = base.clone();
                let row = shape.last().map_or(1, |cols| cols * dtype.size());
                for (i, at) in (0..raw.len()).step_by(row).enumerate() {
                    let from = if i % 5 == 4 { &older } else { &raw };
                    if i % 5 >= 3 {
                        mixed[at..at + row].copy_from_slice(&from[at..at + row]);
                        base[at..at + row].copy_from_slice(&older[at..at + row]);
                    }
                }
                let hint = Hint::new(lattice, 0);
                for engine in &engines {
                    let bases = Bases::from(&clean[..]);
                    seen.insert(same(engine.engine(), "a base on the lattice", dtype, &rec, bases, Some(&hint)));
                }
                for bases in generations(&base, &older) {
                    for engine in &engines {
                        let what = format!("{shape:?} {dtype}, step {step}");
                        seen.insert(same(engine.engine(), &what, dtype, &rec, bases, Some(&hint)));
                        // What is not on the lattice is encoded as if nothing had been said.
                        same(engine.engine(), &what, dtype, &raw, bases, Some(&hint));
                        // Unless only rows of it are not.
                        seen.insert(same(engine.engine(), &what, dtype, &mixed, bases, Some(&hint)));
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
    let lattices = [Scheme::Lattice, Scheme::LatticeDelta, Scheme::LatticeDelta2, Scheme::LatticeMoves];
    for scheme in lattices.into_iter().chain([Scheme::Overlay, Scheme::OverlayDelta, Scheme::OverlayDelta2]) {
        assert!(seen.contains(&scheme), "{}", scheme.name());
    }
}

#[test]
fn a_lossy_commit_of_bins_gives_the_reference_bytes() {
    let cuts = Cuts { prune_magnitude: 0.002, protect_magnitude: 0.09, ..Cuts::NONE };
    let mut noise = Xorshift(4);
    let mut weights: Vec<f64> =
        (0..if short_enough(200_000) { 200_000 } else { 5000 }).map(|_| weight(&mut noise)).collect();
    let mut versions = Vec::new();
    for _ in 0..3 {
        let mut raw = Vec::new();
        weights.iter_mut().for_each(|w| {
            *w += weight(&mut noise) * 0.02;
            put(Dtype::F32, *w, &mut raw);
        });
        let values = Values::new(Dtype::F32, &raw).unwrap();
        let book = Codebook::exact(&Sketch::from_values(values), 12).unwrap();
        let mut out = vec![0; raw.len()];
        assert!(restore(values, None, &cuts, &book, &mut out).unwrap());
        versions.push(out);
    }
    let [grandparent, base, raw] = [&versions[0], &versions[1], &versions[2]];
    for engine in engines() {
        let chosen =
            generations(base, grandparent).map(|known| same(engine.engine(), "bins", Dtype::F32, raw, known, None));
        assert_eq!(chosen[2], Scheme::PaletteDelta2);
        engine.never_failed();
    }
}

#[test]
fn damaged_bytes_are_refused_or_decode_as_the_reference_does() {
    let reference = CpuEngine::new();
    let (_, [raw, base, grandparent]) = families(Dtype::BF16, 300, 3).swap_remove(0);
    let bases = Bases { base: Some(&base), grandparent: Some(&grandparent) };
    for engine in engines() {
        for scheme in [Scheme::Planes, Scheme::Delta, Scheme::Sparse, Scheme::Zstd, Scheme::Stored] {
            let whole = reference.encode_as(scheme, Dtype::BF16, &raw, bases, None).unwrap().bytes;
            let mut bad: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
            bad.extend((0..8 * whole.len()).step_by(7).map(|bit| {
                let mut b = whole.clone();
                b[bit / 8] ^= 1 << (bit % 8);
                b
            }));
            for bytes in bad {
                let (mut a, mut b) = (vec![0; raw.len()], vec![0; raw.len()]);
                let right = reference.decode(Dtype::BF16, &bytes, bases, &mut a);
                let found = engine.engine().decode(Dtype::BF16, &bytes, bases, &mut b);
                assert_eq!(right.is_ok(), found.is_ok(), "{} on {}", scheme.name(), engine.engine().name());
                assert!(right.is_err() || a == b, "{} on {}", scheme.name(), engine.engine().name());
            }
        }
    }
}

#[test]
fn a_device_without_memory_leaves_the_work_to_the_processor() {
    if asked("MDL_CONFORMANCE", "gpu") {
        return;
    }
    let (_, [raw, base, _]) = families(Dtype::F32, 100_000, 8).swap_remove(0);
    let bases = Bases::from(base.as_slice());
    let right = CpuEngine::new().encode(Dtype::F32, &raw, bases, None).unwrap();
    for memory in [0, 5_000, 500_000, 900_000] {
        let tight = shim(memory);
        assert_eq!(tight.encode(Dtype::F32, &raw, bases, None).unwrap(), right, "{memory}");
        let mut out = vec![0; raw.len()];
        Engine::decode(&tight, Dtype::F32, &right.bytes, bases, &mut out).unwrap();
        assert!(out == raw, "{memory}");
    }
}
