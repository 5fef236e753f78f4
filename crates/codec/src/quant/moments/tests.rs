//! Moments: names, hostile values, what may never happen, bounds and sizes.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::{
    CpuEngine, Dtype, Engine,
    quant::{
        Values,
        lattice::{Hint, Lattice, Params},
        moments::*,
        uniform,
    },
};

/// Adam's moments of a made-up layer: scales by row and column that span 3 octaves each, smoothed squares, signed
/// means.
fn moments(rows: usize, cols: usize) -> (Vec<f32>, Vec<f32>) {
    let normal = |i: u64| (0..12).map(|j| uniform(7, i * 12 + j)).sum::<f64>() - 6.0;
    let scale = |i: usize, s: u64| (3.0 * (uniform(s, i as u64) - 0.5)).exp2();
    (0..rows * cols)
        .map(|i| {
            let s = 1e-4 * scale(i / cols, 1) * scale(i % cols, 2);
            let v = s * s * (0.5 + uniform(5, i as u64));
            ((0.3 * s * normal(i as u64)) as f32, v as f32)
        })
        .unzip()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn run(kind: Moment, bits: Bits, values: &[f32], shape: &[usize]) -> Option<Vec<f32>> {
    let raw = bytes(values);
    quantise(kind, bits, Values::new(Dtype::F32, &raw).unwrap(), shape).unwrap().map(|b| floats(&b))
}

#[test]
fn names_of_torch_and_its_kin() {
    for (name, kind) in [
        ("state.0.exp_avg", Some(Moment::First)),
        ("optimizer.state.12.exp_avg_sq", Some(Moment::Second)),
        ("wte.weight|exp_avg", Some(Moment::First)),
        ("optimizer.exp_avg.h.0.attn.weight", Some(Moment::First)),
        ("opt/state/3/momentum_buffer", Some(Moment::Momentum)),
        ("state.0.max_exp_avg_sq", Some(Moment::Second)),
        ("state.0.step", None),
        ("exp_avg_sq_row", None),
        ("model.exp_average.weight", None),
        ("", None),
    ] {
        assert_eq!(moment_of(name), kind, "{name}");
    }
}

#[test]
fn bounds_hold_signs_stay_and_no_second_moment_vanishes() {
    let (m, v) = moments(64, 200);
    for (bits, most) in [(Bits::Four, 0.4475), (Bits::Eight, 0.0626)] {
        let rm = run(Moment::First, bits, &m, &[64, 200]).unwrap();
        let mut kept = 0;
        for (x, y) in m.iter().zip(&rm) {
            assert!(*y == 0.0 || x.signum() == y.signum());
            kept += usize::from((y - x).abs() <= most * x.abs());
        }
        assert!(kept * 10 > m.len() * 9, "{kept} of {}", m.len());
        let rv = run(Moment::Second, bits, &v, &[64, 200]).unwrap();
        assert!(v.iter().zip(&rv).all(|(x, y)| *y > 0.0 && (y - x).abs() <= most * x || *y > *x));
        assert_eq!(run(Moment::First, bits, &rm, &[64, 200]).unwrap(), rm, "twice is once");
        assert_eq!(run(Moment::Second, bits, &rv, &[64, 200]).unwrap(), rv, "twice is once");
    }
}

#[test]
fn a_four_bit_block_has_sixteen_values_at_most() {
    let (m, v) = moments(32, 256);
    for (kind, values) in [(Moment::Momentum, m), (Moment::Second, v)] {
        for block in run(kind, Bits::Four, &values, &[32, 256]).unwrap().chunks(BLOCK) {
            let mut seen: Vec<u32> = block.iter().map(|x| x.to_bits()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.len() <= 16);
        }
    }
}

#[test]
fn hostile_moments_stay_lossless_or_finite() {
    let n = FEW;
    let with = |at: usize, x: f32| {
        let mut v = vec![1e-3f32; n];
        v[at] = x;
        v
    };
    for bits in [Bits::Four, Bits::Eight] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(run(Moment::First, bits, &with(n - 1, bad), &[n]).is_none());
        }
        assert!(run(Moment::Second, bits, &with(5, -1e-30), &[n]).is_none());
        assert!(run(Moment::First, bits, &vec![1.0; n - 1], &[n - 1]).is_none());
        for odd in [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 0.0] {
            let r = run(Moment::Second, bits, &with(9, odd), &[64, n / 64]).unwrap();
            assert!(r.iter().all(|x| x.is_finite()) && (r[9] > 0.0) == (odd > 0.0), "{odd:e}");
            assert!(r.iter().enumerate().all(|(i, x)| i == 9 || *x > 0.0));
        }
        assert_eq!(run(Moment::First, bits, &vec![0.0; n], &[n]).unwrap(), vec![0.0; n]);
    }
    let raw = bytes(&vec![1.0; n]);
    assert!(quantise(Moment::First, Bits::Four, Values::new(Dtype::F32, &raw).unwrap(), &[n + 1]).is_err());
}

#[test]
fn halves_keep_small_second_moments_alive() {
    let v: Vec<u8> = (0..FEW).flat_map(|i| (1 + (i % 3000) as u16).to_le_bytes()).collect();
    let r = quantise(Moment::Second, Bits::Four, Values::new(Dtype::F16, &v).unwrap(), &[FEW]);
    assert!(r.unwrap().unwrap().as_chunks::<2>().0.iter().all(|b| *b != [0, 0]));
}

#[test]
fn a_trained_row_does_not_drown_its_neighbour() {
    let mut v = vec![1e-4f32; 32 * 160];
    v[160..320].fill(1e-14);
    let r = run(Moment::Second, Bits::Four, &v, &[32, 160]).unwrap();
    assert!(r[160..320].iter().all(|x| *x < 2e-14));
}

#[test]
fn the_engine_finds_the_levels_by_itself() {
    let (m, v) = moments(512, 256);
    let stored = |kind, values: &[f32]| {
        let raw = bytes(&run(kind, Bits::Four, values, &[512, 256]).unwrap());
        let e = CpuEngine::new().encode(Dtype::F32, &raw, None.into(), None).unwrap();
        assert_eq!(e.scheme, crate::Scheme::Palette);
        raw.len() as f64 / e.bytes.len() as f64
    };
    assert!(stored(Moment::First, &m) > 5.5 && stored(Moment::Second, &v) > 7.0);
}

#[test]
fn a_pair_lies_on_lattices_that_store_it() {
    let (m, v) = moments(256, 320);
    let (rm, rv) = (bytes(&m), bytes(&v));
    let values = |b| Values::new(Dtype::F32, b).unwrap();
    let pair = quantise_pair(values(&rm), values(&rv), &[256, 320], STEP, &CpuEngine::new()).unwrap().unwrap();
    let coded = |p: &Params, b: &[u8]| {
        let l = Lattice::new(p, Dtype::F32, &[256, 320]).unwrap();
        let hint = Hint::new(std::sync::Arc::new(l), 0);
        let engine = CpuEngine::new();
        let coded = engine.encode(Dtype::F32, b, None.into(), Some(&hint)).unwrap();
        assert_eq!(coded.scheme, crate::Scheme::Lattice);
        let mut back = vec![0; b.len()];
        engine.decode(Dtype::F32, &coded.bytes, None.into(), &mut back).unwrap();
        assert!(back == b);
        b.len() as f64 / coded.bytes.len() as f64
    };
    assert!(coded(&pair.first_lattice, &pair.first) > 18.0);
    assert!(coded(&pair.second_lattice, &pair.second) > 100.0);
    let (first, second) = (floats(&pair.first), floats(&pair.second));
    for i in 0..m.len() {
        assert!(second[i] > 0.0 && second[i] / v[i] < 2.6 && v[i] / second[i] < 2.6);
        assert!((first[i] - m[i]).abs() <= 0.26 * second[i].sqrt() * 1.02);
    }
}

#[test]
fn a_pair_that_cannot_be_says_so() {
    let shape = [16, 16];
    let good = bytes(&[1e-3f32; 256]);
    let pair = |m: &[f32], v: &[f32]| {
        let (m, v) = (bytes(m), bytes(v));
        let values = |b| Values::new(Dtype::F32, b).unwrap();
        quantise_pair(values(&m), values(&v), &shape, STEP, &CpuEngine::new()).unwrap()
    };
    let odd = |x: f32| [&[x][..], &[1e-3; 255]].concat();
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        assert!(pair(&[1e-3; 256], &odd(bad)).is_none());
    }
    assert!(pair(&odd(f32::NAN), &[1e-3; 256]).is_none());
    assert!(pair(&[0.0; 256], &[0.0; 256]).is_none());
    assert!(pair(&[1e-3; 256], &[1e-44; 256]).is_none());
    let v = Values::new(Dtype::F32, &good).unwrap();
    assert!(quantise_pair(v, v, &[256], STEP, &CpuEngine::new()).unwrap().is_none());
    assert!(quantise_pair(v, v, &[16, 17], STEP, &CpuEngine::new()).is_err());
    assert!(
        quantise_pair(v, v, &shape, 0.0, &CpuEngine::new()).is_err()
            && quantise_pair(v, v, &shape, f64::NAN, &CpuEngine::new()).is_err()
    );
    // One row that was never trained: its v rises, and stays above 0.
    let mut v = [1e-3f32; 256];
    v[..16].fill(0.0);
    let pair = pair(&[0.0; 256], &v).unwrap();
    assert!(floats(&pair.second).iter().all(|x| *x > 0.0));
}
