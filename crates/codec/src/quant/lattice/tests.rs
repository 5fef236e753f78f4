//! The lattice as a whole: whatever is quantised comes back, whatever is broken is refused. Neighbours: the rooms' own tests. It
//! must not assert anything timed.

use super::*;
use crate::simd::Simd;
use crate::{CodecError, Dtype};
use proptest::prelude::*;

/// Bell-shaped numbers of about unit size.
fn bell(n: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut one = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes().iter().map(|&b| f32::from(b) - 127.5).sum::<f32>() / 209.0
    };
    (0..n).map(|_| one()).collect()
}

fn bytes(dtype: Dtype, v: &[f32]) -> Vec<u8> {
    let mut out = vec![0; v.len() * dtype.size()];
    half::narrow(dtype, v, &mut out);
    out
}

fn floats(dtype: Dtype, raw: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; raw.len() / dtype.size()];
    half::widen(dtype, raw, &mut out);
    out
}

fn moved(v: &[f32], by: f32, seed: u64) -> Vec<f32> {
    v.iter().zip(bell(v.len(), seed)).map(|(a, b)| a + by * b).collect()
}

/// Encodes and decodes on every path; returns the bytes.
fn round_trip(l: &Lattice, start: usize, rec: &[u8], parent: Option<&[u8]>, grand: Option<&[u8]>) -> Vec<u8> {
    let coded = l.encode(start, rec, parent, grand).unwrap();
    assert_eq!(coded, l.encode_on(Simd::scalar(), start, rec, parent, grand).unwrap());
    let (size, n) = (l.dtype.size(), rec.len() / l.dtype.size());
    for simd in [Simd::detect(), Simd::scalar()] {
        for range in [0..n, n / 3..n / 2, n..n] {
            let mut out = vec![0xaa; range.len() * size];
            l.decode_on(
                simd,
                (start, rec.len()),
                &coded,
                [parent, grand],
                range.clone(),
                &mut out,
            )
            .unwrap();
            assert!(out == rec[range.start * size..range.end * size], "{range:?} of {n}");
        }
    }
    coded
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![]),
        prop::collection::vec(0usize..3000, 1),
        prop::collection::vec(0usize..70, 2),
        prop::collection::vec(1usize..15, 3),
        prop::collection::vec(1usize..8, 4),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_shape_comes_back(
        shape in shapes(),
        seed in any::<Option<u64>>(),
        octave in -7i16..3,
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::BF16]),
        shaped in any::<bool>(),
        gap in 0.0f32..3.0,
        from in 0usize..40,
    ) {
        let n = shape.iter().product::<usize>();
        let sensitivity: Vec<f32> = if shaped { bell(n, 5).iter().map(|v| v * v).collect() } else { vec![] };
        let params = Params::from_sensitivity(16 * octave, seed, &shape, &sensitivity);
        prop_assert_eq!(&Params::from_bytes(&params.to_bytes().unwrap(), &shape).unwrap(), &params);
        let l = Lattice::new(&params, dtype, &shape).unwrap();
        let old = bell(n, 1);
        let new = moved(&old, gap, 2);
        let (w, size) = (bytes(dtype, &new), dtype.size());
        let mut rec = vec![0; w.len()];
        let outcome = l.quantise(0, &w, &mut rec).unwrap();
        if dtype == Dtype::F32 {
            prop_assert_eq!(outcome, Outcome::Quantised);
        } else if outcome != Outcome::Quantised {
            prop_assert_eq!(outcome, Outcome::Lossless(Reason::OutOfRange));
            return Ok(());
        }
        let mut cells = cells::Cells::new();
        for (i, (a, b)) in floats(dtype, &w).iter().zip(floats(dtype, &rec)).enumerate() {
            l.cells(i, 1, &mut cells);
            let digits = match dtype { Dtype::F32 => 22, Dtype::F16 => 11, _ => 8 };
            let rounding = b.abs().max(a.abs()) * 2f32.powi(-digits) + 2f32.powi(-25);
            prop_assert!((a - b).abs() <= cells.d[0] * 0.500_001 + rounding, "{} {} step {}", a, b, cells.d[0]);
        }
        // Pieces give the same numbers; reconstructing again changes nothing.
        let (cut, mut again) = (n.min(from), vec![0; w.len()]);
        l.quantise(cut, &w[cut * size..], &mut again[cut * size..]).unwrap();
        l.quantise(0, &w[..cut * size], &mut again[..cut * size]).unwrap();
        prop_assert_eq!(&again, &rec);
        l.quantise(0, &rec, &mut again).unwrap();
        prop_assert_eq!(&again, &rec);
        let (p, g) = (bytes(dtype, &old), bytes(dtype, &moved(&old, gap, 3)));
        for (parent, grand) in [(None, None), (Some(&p), None), (Some(&p), Some(&g)), (None, Some(&g)), (Some(&rec), Some(&p))] {
            let at = |r: Option<&'_ Vec<u8>>| r.map(|r| r[cut * size..].to_vec());
            let (parent, grand) = (at(parent), at(grand));
            round_trip(&l, cut, &rec[cut * size..], parent.as_deref(), grand.as_deref());
        }
    }

    #[test]
    fn any_parent_will_do(bits in prop::collection::vec(any::<u32>(), 1..400), seed in any::<Option<u64>>()) {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX, 1e-45, -0.0, 1048575.5, -1048576.0];
        let parent: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).chain(special).collect();
        let n = parent.len();
        let grand: Vec<f32> = parent.iter().rev().copied().collect();
        let l = Lattice::new(&Params { seed, ..Params::default() }, Dtype::F32, &[n]).unwrap();
        let big: Vec<f32> = bell(n, 8).iter().map(|v| v * 2e5).collect();
        let mut rec = vec![0; 4 * n];
        prop_assert_eq!(l.quantise(0, &bytes(Dtype::F32, &big), &mut rec).unwrap(), Outcome::Quantised);
        round_trip(&l, 0, &rec, Some(&bytes(Dtype::F32, &parent)), Some(&bytes(Dtype::F32, &grand)));
        // As a tensor the parent is refused, unless nothing in it is odd: never an error, never NaN.
        let refused = l.quantise(0, &bytes(Dtype::F32, &parent), &mut rec).unwrap();
        prop_assert_eq!(refused, Outcome::Lossless(Reason::NotFinite));
    }
}

fn lattice(step: i16, seed: Option<u64>, dtype: Dtype, shape: &[usize]) -> Lattice {
    let params = Params {
        step,
        seed,
        ..Params::default()
    };
    Lattice::new(&params, dtype, shape).unwrap()
}

fn quantised(l: &Lattice, w: &[f32]) -> Vec<u8> {
    let mut rec = vec![0; w.len() * l.dtype.size()];
    assert_eq!(l.quantise(0, &bytes(l.dtype, w), &mut rec), Ok(Outcome::Quantised));
    rec
}

#[test]
fn what_does_not_fit_stays_lossless() {
    for (dtype, step, values, reason) in [
        (Dtype::F32, 0, [0.0, f32::NAN], Reason::NotFinite),
        (Dtype::F32, 0, [f32::NEG_INFINITY, 1e9], Reason::NotFinite),
        (Dtype::F32, 0, [1.0, 1_048_576.0], Reason::TooLarge),
        (Dtype::F32, -1280, [1.0, f32::MAX], Reason::TooLarge),
        (Dtype::F16, 96, [1.0, 65504.0], Reason::OutOfRange),
    ] {
        let l = lattice(step, None, dtype, &[2]);
        let mut rec = vec![0; 2 * dtype.size()];
        let outcome = l.quantise(0, &bytes(dtype, &values), &mut rec);
        assert_eq!(outcome, Ok(Outcome::Lossless(reason)), "{dtype} {values:?}");
        assert!(floats(dtype, &rec).iter().all(|v| !v.is_nan()) || reason == Reason::NotFinite);
    }
    let l = lattice(0, None, Dtype::F32, &[3]);
    let off = bytes(Dtype::F32, &[1.0, 2.5, -0.0]);
    assert!(matches!(l.encode(0, &off, None, None), Err(CodecError::BadInput(_))));
    assert!(Lattice::new(&Params::default(), Dtype::F64, &[3]).is_err());
}

#[test]
fn seeds_move_offsets_and_errors_average_out() {
    let w = bell(20_000, 1);
    let [a, b, again] = [1, 2, 1].map(|s| quantised(&lattice(0, Some(s), Dtype::F32, &[100, 200]), &w));
    assert_eq!(a, again);
    let (a, b) = (floats(Dtype::F32, &a), floats(Dtype::F32, &b));
    assert!(a.iter().zip(&b).filter(|(a, b)| a == b).count() < 100);
    // With offsets a cell of 1 loses nothing on average: the error does not depend on the weight.
    let bias: f32 = w.iter().zip(&a).filter(|(w, _)| **w > 0.2).map(|(w, a)| a - w).sum();
    assert!(bias.abs() / 8000.0 < 0.02, "{bias}");
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let shape = [700, 900];
    let w = bell(700 * 900, 3);
    let params = Params::from_sensitivity(
        -20,
        Some(7),
        &shape,
        &bell(w.len(), 4).iter().map(|v| v * v).collect::<Vec<_>>(),
    );
    let l = Lattice::new(&params, Dtype::F32, &shape).unwrap();
    let (p, g) = (
        bytes(Dtype::F32, &moved(&w, 0.4, 9)),
        bytes(Dtype::F32, &moved(&w, 0.6, 10)),
    );
    let mut all = Vec::new();
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        all.push(pool.install(|| {
            let rec = quantised(&l, &w);
            let coded = round_trip(&l, 0, &rec, Some(&p), Some(&g));
            (rec, coded)
        }));
    }
    assert!(all[0] == all[1] && all[1] == all[2]);
}

#[test]
fn broken_segments_end_in_errors_or_in_values() {
    for (n, step, with) in [
        (2000, 0, true),
        (700, -80, true),
        (900, -40, false),
        (40_000, -20, true),
    ] {
        let w = bell(n, 6);
        let l = lattice(step, Some(3), Dtype::F32, &[n / 20, 20]);
        let rec = quantised(&l, &w);
        let p = bytes(Dtype::F32, &moved(&w, 0.5, 7));
        let parent = with.then_some(&p[..]);
        let coded = round_trip(&l, 0, &rec, parent, None);
        if with {
            assert_eq!(
                l.decode(0, &coded, None, None, &mut rec.clone()),
                Err(CodecError::MissingBase)
            );
        }
        let mut out = vec![0; rec.len()];
        // Every place of a short segment; some of the long one, which has 32 lanes.
        let stride = if n < 10_000 { 1 } else { coded.len() / 40 };
        for cut in (0..coded.len()).step_by(stride) {
            assert!(
                l.decode(0, &coded[..cut], parent, None, &mut out).is_err(),
                "cut at {cut}"
            );
        }
        let longer = [&coded[..], &[0]].concat();
        assert!(l.decode(0, &longer, parent, None, &mut out).is_err());
        let mut broken = coded.clone();
        for bit in (0..coded.len() * 8).step_by(stride) {
            broken[bit / 8] ^= 1 << (bit % 8);
            let results = [Simd::detect(), Simd::scalar()].map(|simd| {
                out.fill(0);
                let r = l.decode_on(simd, (0, rec.len()), &broken, [parent, None], 0..n, &mut out);
                r.is_ok().then(|| out.clone())
            });
            assert!(results[0] == results[1], "paths differ at bit {bit}");
            if let Some(values) = &results[0] {
                assert!(floats(Dtype::F32, values).iter().all(|v| v.is_finite()));
            }
            broken[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let params = Params::from_sensitivity(
        -3,
        Some(5),
        &[30, 40],
        &bell(1200, 3).iter().map(|v| v * v).collect::<Vec<_>>(),
    );
    let bytes = params.to_bytes().unwrap();
    for cut in 0..bytes.len() {
        assert!(Params::from_bytes(&bytes[..cut], &[30, 40]).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        if let Ok(p) = Params::from_bytes(&broken, &[30, 40]) {
            assert!(Lattice::new(&p, Dtype::F32, &[30, 40]).is_ok());
        }
    }
}

#[test]
fn small_moves_cost_little() {
    let (n, shape) = (90_000, [300, 300]);
    let w = bell(n, 1);
    let l = lattice(-16, Some(1), Dtype::F32, &shape);
    let parent = quantised(&l, &w);
    let same = round_trip(&l, 0, &parent, Some(&parent), None);
    assert!(same.len() < 40, "{}", same.len());
    let near = quantised(&l, &moved(&w, 0.01, 2));
    let coded = round_trip(&l, 0, &near, Some(&parent), None);
    let alone = round_trip(&l, 0, &near, None, None);
    // About 2 % of the levels move: 0.15 bits an element.
    assert!(
        coded.len() < n / 32 && alone.len() > n / 5,
        "{} {}",
        coded.len(),
        alone.len()
    );
}
