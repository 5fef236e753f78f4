//! Golden vectors: inputs frozen together with their encodings. Encoding must give these bytes and decoding must take
//! them, today and in every later version; tests/reader/segments.py reads the same files.
//!
//! `MDL_GOLDEN_WRITE=1 cargo test -p mdl-codec --test it golden` writes vectors that are missing. A vector that is
//! there is never overwritten: a format change needs a new scheme or tag, not new vectors. zstd frames may differ from
//! one zstd release to the next, so those are only decoded.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    quant::{
        lattice::{Hint, Lattice, Outcome, Params},
        times,
    },
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

struct Vector {
    dtype: Dtype,
    scheme: Scheme,
    label: &'static str,
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
    grandparent: Option<Vec<u8>>,
    hint: Option<Hint>,
}

impl Vector {
    /// Without bases or hint.
    fn alone(dtype: Dtype, scheme: Scheme, label: &'static str, raw: &[u8]) -> Vector {
        Vector { dtype, scheme, label, raw: raw.to_vec(), base: None, grandparent: None, hint: None }
    }

    fn bases(&self) -> Bases<'_> {
        Bases { base: self.base.as_deref(), grandparent: self.grandparent.as_deref() }
    }
}

/// Bell-shaped integers: the sum of twelve small uniform ones; no floating point that a platform might round otherwise.
fn bell(seed: u32, n: usize) -> impl Iterator<Item = i32> {
    let mut x = seed;
    (0..n).map(move |_| {
        (0..12).fold(0, |sum, _| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sum + (x >> 12) as i32 % 4096 - 2048
        })
    })
}

fn floats(dtype: Dtype, seed: u32, n: usize) -> Vec<u8> {
    let narrow = |v: i32, exponent: u32, mantissa: u32| -> u32 {
        if v == 0 {
            return 0;
        }
        let m = v.unsigned_abs();
        let msb = 31 - m.leading_zeros();
        let frac = if msb >= mantissa { m >> (msb - mantissa) } else { m << (mantissa - msb) } & ((1 << mantissa) - 1);
        let e = ((1u32 << (exponent - 1)) + msb).saturating_sub(14).min((1 << exponent) - 2);
        u32::from(v < 0) << (exponent + mantissa) | e << mantissa | frac
    };
    bell(seed, n)
        .zip(bell(seed ^ 77, n))
        .flat_map(|(v, w)| {
            let bits: u64 = match dtype {
                Dtype::F64 => u64::from(narrow(v, 8, 23)) << 32 | u64::from(w as u32),
                Dtype::F32 => u64::from(narrow(v, 8, 23)) ^ u64::from(w as u32 & 0xffff),
                Dtype::BF16 => narrow(v, 8, 7).into(),
                Dtype::F16 => narrow(v, 5, 10).into(),
                Dtype::F8E4M3 => narrow(v, 4, 3).into(),
                Dtype::F8E5M2 => narrow(v, 5, 2).into(),
                _ => (v / 64) as u64,
            };
            bits.to_le_bytes()[..dtype.size()].to_vec()
        })
        .collect()
}

/// What a quantiser to nine levels makes of 3,000 numbers, a few left as they were; near seeds differ in a few places.
fn levels(dtype: Dtype, seed: u32) -> Vec<u8> {
    let (size, exact) = (dtype.size(), floats(dtype, 4, 3000));
    let moves: Vec<i32> = bell(seed, 3000).collect();
    let mut out = exact.clone();
    for (i, (v, e)) in bell(4, 3000).zip(out.chunks_exact_mut(size)).enumerate() {
        let level = ((v + moves[i] / 24).clamp(-4400, 4400) / 1000) as f32 / 128.0;
        match dtype {
            _ if i % 90 == 5 => e[..size - 2].fill(0),
            Dtype::F64 => e.copy_from_slice(&f64::from(level).to_le_bytes()),
            Dtype::F32 => e.copy_from_slice(&level.to_le_bytes()),
            _ => e.copy_from_slice(&level.to_le_bytes()[2..]),
        }
    }
    out
}

/// `raw` with small steps everywhere, or at one element in `every`.
fn moved(raw: &[u8], size: usize, every: usize) -> Vec<u8> {
    let mut out = raw.to_vec();
    for (i, (e, v)) in out.chunks_exact_mut(size).zip(bell(5, raw.len() / size)).enumerate() {
        if i % every == every / 2 {
            e[0] = e[0].wrapping_add((v / 1500) as u8 | u8::from(every > 1));
        }
    }
    out
}

fn vectors() -> Vec<Vector> {
    let mut all = Vec::new();
    for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F8E4M3, Dtype::F8E5M2, Dtype::I32] {
        let size = dtype.size();
        let raw = floats(dtype, 1, 1200);
        let add = |scheme, label, raw: &[u8], base| Vector { base, ..Vector::alone(dtype, scheme, label, raw) };
        all.push(add(Scheme::Planes, "plain", &raw, None));
        all.push(add(Scheme::Planes, "tiny", &raw[..300 * size], None));
        all.push(add(Scheme::Delta, "step", &raw, Some(moved(&raw, size, 1))));
        all.push(add(Scheme::Sparse, "few", &raw, Some(moved(&raw, size, 200))));
        all.push(add(Scheme::Sparse, "same", &raw, Some(raw.clone())));
    }
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64] {
        let raw = levels(dtype, 2);
        let add = |scheme, label, base, grandparent| Vector {
            base,
            grandparent,
            ..Vector::alone(dtype, scheme, label, &raw)
        };
        let (base, grandparent) = (Some(levels(dtype, 3)), Some(levels(dtype, 5)));
        all.push(add(Scheme::Palette, "levels", None, None));
        all.push(add(Scheme::PaletteDelta, "moved", base.clone(), None));
        all.push(add(Scheme::PaletteDelta2, "moved", base, grandparent));
    }
    lattices(&mut all);
    overlays(&mut all);
    let mut clean = floats(Dtype::F32, 9, 1801);
    clean[4 * 600..].chunks_exact_mut(4).for_each(|e| (e[0], e[1]) = (0, e[1] & 0xe0));
    clean[40..44].copy_from_slice(&1e-37f32.to_le_bytes());
    all.push(Vector::alone(Dtype::F32, Scheme::Planes, "clean", &clean));
    let few: Vec<u8> = bell(3, 1000).flat_map(|v| [(v >> 12) as u8, 7]).collect();
    all.push(Vector::alone(Dtype::Opaque, Scheme::Zstd, "bytes", &few));
    all.push(Vector::alone(Dtype::U8, Scheme::Stored, "bytes", &few[..100]));
    all
}

/// Reconstructions on lattices: with factors and offsets, a part of a tensor, neither factors nor offsets, and one
/// whose streams have 32 lanes.
fn lattices(all: &mut Vec<Vector>) {
    for (dtype, label, shape, part, shaped) in [
        (Dtype::F32, "shaped", [60, 50], 0..3000, true),
        (Dtype::BF16, "shaped", [60, 50], 0..3000, true),
        (Dtype::F16, "shaped", [60, 50], 0..3000, true),
        (Dtype::F32, "part", [90, 50], 1025..2400, true),
        (Dtype::BF16, "wide", [2, 20_000], 19_000..22_000, true),
        (Dtype::F32, "even", [3000, 1], 0..3000, false),
        (Dtype::BF16, "long", [40, 700], 0..28_000, true),
    ] {
        let n = shape[0] * shape[1];
        let sensitivity: Vec<f32> = bell(7, n).map(|v| (v / 256 * (v / 256)) as f32).collect();
        let mut params = Params::from_sensitivity(-96, Some(77), &shape, &sensitivity);
        if !shaped {
            params = Params { step: -100, ..Params::default() };
        }
        let lattice = Lattice::new(&params, dtype, &shape).unwrap();
        let [raw, base, grandparent] = [11, 12, 13].map(|seed| {
            let exact = near(dtype, seed, n);
            let mut rec = vec![0; exact.len()];
            assert_eq!(lattice.quantise(0, &exact, &mut rec), Ok(Outcome::Quantised));
            rec[part.start * dtype.size()..part.end * dtype.size()].to_vec()
        });
        let hint = Hint::new(Arc::new(lattice), part.start);
        let add = |scheme, base, grandparent| Vector {
            base,
            grandparent,
            hint: Some(hint.clone()),
            ..Vector::alone(dtype, scheme, label, &raw)
        };
        all.push(add(Scheme::Lattice, None, None));
        if label != "long" {
            all.push(add(Scheme::LatticeDelta, Some(base.clone()), None));
            all.push(add(Scheme::LatticeMoves, Some(base.clone()), None));
            all.push(add(Scheme::LatticeDelta2, Some(base), Some(grandparent)));
        }
    }
}

/// Numbers that are near each other for all seeds from 11 on.
fn near(dtype: Dtype, seed: u32, n: usize) -> Vec<u8> {
    let number = |v: i32, w: i32| (v + w / 12) as f32 / 65536.0;
    let exact = bell(4, n).zip(bell(seed, n)).map(|(v, w)| number(v, w));
    match dtype {
        Dtype::F32 => exact.flat_map(f32::to_le_bytes).collect(),
        Dtype::BF16 => exact.flat_map(|v| v.to_le_bytes()[2..].to_vec()).collect(),
        _ => (11..seed).fold(floats(dtype, 4, n), |raw, _| moved(&raw, 2, 1)),
    }
}

/// Reconstructions of which every seventh row is exact, every eleventh that of the base; "part" begins and ends inside
/// of rows. "copied" has no literal rows.
fn overlays(all: &mut Vec<Vector>) {
    for (dtype, label, part) in [
        (Dtype::F32, "rows", 0..4500),
        (Dtype::BF16, "rows", 0..4500),
        (Dtype::F16, "rows", 0..4500),
        (Dtype::F32, "part", 1025..2421),
        (Dtype::F32, "copied", 0..4500),
    ] {
        let (shape, row) = ([90, 50], 50 * dtype.size());
        let params = Params { step: -96, seed: Some(78), cols: [0x3f80, 0x3f00].repeat(25), ..Params::default() };
        let lattice = Lattice::new(&params, dtype, &shape).unwrap();
        let exact = [11, 12, 13].map(|seed| near(dtype, seed, 4500));
        let mut known = exact.clone().map(|exact| {
            let mut rec = vec![0; exact.len()];
            assert_eq!(lattice.quantise(0, &exact, &mut rec), Ok(Outcome::Quantised));
            rec
        });
        for i in 0..90 {
            let bytes = i * row..(i + 1) * row;
            if i % 7 == 3 && label != "copied" {
                (0..3).for_each(|v| known[v][bytes.clone()].copy_from_slice(&exact[v][bytes.clone()]));
            } else if i % 11 == 4 {
                (0..3).for_each(|v| known[v][bytes.clone()].copy_from_slice(&exact[1][bytes.clone()]));
            }
        }
        let [raw, base, grandparent] = known.map(|v| v[part.start * dtype.size()..part.end * dtype.size()].to_vec());
        let hint = Hint::new(Arc::new(lattice), part.start);
        let add = |scheme, base, grandparent| Vector {
            base,
            grandparent,
            hint: Some(hint.clone()),
            ..Vector::alone(dtype, scheme, label, &raw)
        };
        if label != "copied" {
            all.push(add(Scheme::Overlay, None, None));
            all.push(add(Scheme::OverlayDelta2, Some(base.clone()), Some(grandparent)));
        }
        all.push(add(Scheme::OverlayDelta, Some(base), None));
    }
    // Rows that are the base's times a factor, copied and literal ones between them.
    let lattice =
        Lattice::new(&Params { step: -96, seed: Some(79), ..Params::default() }, Dtype::F32, &[60, 40]).unwrap();
    let exact = [21, 22, 23].map(|seed| near(Dtype::F32, seed, 2400));
    let mut known = exact.clone().map(|exact| {
        let mut rec = vec![0; exact.len()];
        assert_eq!(lattice.quantise(0, &exact, &mut rec), Ok(Outcome::Quantised));
        rec
    });
    for i in 0..60 {
        let bytes = i * 160..(i + 1) * 160;
        match i % 6 {
            1 | 2 => times(Dtype::F32, &exact[1][bytes.clone()], 0.999_98, &mut known[0][bytes.clone()]),
            4 if i % 4 == 0 => known[0][bytes.clone()].copy_from_slice(&exact[1][bytes.clone()]),
            4 => known[0][bytes.clone()].copy_from_slice(&exact[0][bytes.clone()]),
            _ => continue,
        }
        known[1][bytes.clone()].copy_from_slice(&exact[1][bytes]);
    }
    let [raw, base, grandparent] = known;
    let hint = Hint::new(Arc::new(lattice), 0);
    for (scheme, grandparent) in [(Scheme::OverlayScaled, None), (Scheme::OverlayScaled2, Some(grandparent))] {
        let hint = Some(hint.clone());
        all.push(Vector {
            base: Some(base.clone()),
            grandparent,
            hint,
            ..Vector::alone(Dtype::F32, scheme, "scaled", &raw)
        });
    }
}

fn path(v: &Vector, extension: &str) -> PathBuf {
    let name = format!("{}-{}-{}.{extension}", v.dtype.code(), v.scheme.name(), v.label);
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn frozen_bytes_stay_frozen() {
    let engine = CpuEngine::new();
    for v in vectors() {
        let encoded = engine.encode_as(v.scheme, v.dtype, &v.raw, v.bases(), v.hint.as_ref()).unwrap();
        assert_eq!(encoded.scheme, v.scheme, "{:?}", path(&v, "seg"));
        if std::env::var_os("MDL_GOLDEN_WRITE").is_some() && !path(&v, "seg").exists() {
            std::fs::write(path(&v, "seg"), &encoded.bytes).unwrap();
            std::fs::write(path(&v, "raw"), &v.raw).unwrap();
            for (relative, name) in [(&v.base, "base"), (&v.grandparent, "grand")] {
                if let Some(b) = relative {
                    std::fs::write(path(&v, name), b).unwrap();
                }
            }
        }
        let frozen = std::fs::read(path(&v, "seg")).unwrap();
        assert!(std::fs::read(path(&v, "raw")).unwrap() == v.raw, "{:?}: the input changed", path(&v, "raw"));
        assert!(v.scheme == Scheme::Zstd || frozen == encoded.bytes, "{:?}", path(&v, "seg"));
        let mut out = vec![0; v.raw.len()];
        engine.decode(v.dtype, &frozen, v.bases(), &mut out).unwrap();
        assert!(out == v.raw, "{:?}", path(&v, "seg"));
    }
}
