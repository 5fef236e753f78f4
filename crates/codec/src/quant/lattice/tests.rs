//! Lattices end to end: whatever is quantised comes back, whatever is broken is refused.

use crate::{Bases, CodecError, CpuEngine, Dtype, Engine, Scheme, entropy::Cursor, quant::lattice::*, simd::Simd};
use proptest::prelude::*;
use std::sync::Arc;

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

fn engines() -> [CpuEngine; 2] {
    [CpuEngine::new(), CpuEngine::portable()]
}

fn bases<'a>(parent: Option<&'a [u8]>, grandparent: Option<&'a [u8]>) -> Bases<'a> {
    Bases { base: parent, grandparent }
}

/// Encodes and decodes on every path; returns the bytes. No elements give no bytes.
fn round_trip(l: &Lattice, start: usize, rec: &[u8], parent: Option<&[u8]>, grandparent: Option<&[u8]>) -> Vec<u8> {
    let hint = Hint::new(Arc::new(l.clone()), start);
    let scheme = match (parent, grandparent) {
        (Some(_), Some(_)) => Scheme::LatticeDelta2,
        (Some(_), None) => Scheme::LatticeDelta,
        (None, _) => Scheme::Lattice,
    };
    let family = bases(parent, grandparent);
    let (size, n) = (l.dtype.size(), rec.len() / l.dtype.size());
    if n == 0 {
        assert!(encode(Simd::detect(), &hint, l.dtype, rec, family).is_err());
        return Vec::new();
    }
    let (scheme_found, coded) = encode(Simd::detect(), &hint, l.dtype, rec, family).unwrap();
    assert!(scheme_found == scheme || scheme_found == Scheme::Lattice);
    let forced = engines().map(|e| e.encode_as(scheme, l.dtype, rec, family, Some(&hint)).unwrap());
    assert_eq!(forced[0], forced[1]);
    assert!(forced[0].bytes == coded || forced[0].scheme == Scheme::Stored);
    // What a segment says of itself is enough to encode it anew.
    let again = Hint::from_encoded(l.dtype, &coded, rec.len()).unwrap().unwrap();
    assert_eq!(encode(Simd::detect(), &again, l.dtype, rec, family).unwrap().1, coded);
    for engine in engines() {
        for range in [0..n, n / 3..n / 2, n..n] {
            let mut out = vec![0xaa; range.len() * size];
            engine.decode_range(l.dtype, &coded, rec.len(), family, range.clone(), &mut out).unwrap();
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
        let mut cells = cells::Cells::new(Simd::scalar());
        for (i, (a, b)) in floats(dtype, &w).iter().zip(floats(dtype, &rec)).enumerate() {
            l.cells(i, 1, &mut cells);
            let digits = match dtype { Dtype::F32 => 22, Dtype::F16 => 11, _ => 8 };
            let rounding = b.abs().max(a.abs()) * 2f32.powi(-digits) + 2f32.powi(-25);
            prop_assert!((a - b).abs() <= cells.d[0] * 0.500_001 + rounding, "{} {} step {}", a, b, cells.d[0]);
        }
        // Plain code, too.
        let mut plain = vec![0; w.len()];
        prop_assert_eq!(l.share(Simd::scalar(), 0, &w, &mut plain), None);
        prop_assert_eq!(&plain, &rec);
        // Pieces give the same numbers; reconstructing again changes nothing.
        let (cut, mut again) = (n.min(from), vec![0; w.len()]);
        l.quantise(cut, &w[cut * size..], &mut again[cut * size..]).unwrap();
        l.quantise(0, &w[..cut * size], &mut again[..cut * size]).unwrap();
        prop_assert_eq!(&again, &rec);
        l.quantise(0, &rec, &mut again).unwrap();
        prop_assert_eq!(&again, &rec);
        let (p, g) = (bytes(dtype, &old), bytes(dtype, &moved(&old, gap, 3)));
        let others = [(None, None), (Some(&p), None), (Some(&p), Some(&g)), (None, Some(&g)), (Some(&rec), Some(&p))];
        for (parent, grandparent) in others {
            let at = |r: Option<&'_ Vec<u8>>| r.map(|r| r[cut * size..].to_vec());
            let (parent, grandparent) = (at(parent), at(grandparent));
            round_trip(&l, cut, &rec[cut * size..], parent.as_deref(), grandparent.as_deref());
        }
    }

    #[test]
    fn any_parent_will_do(bits in prop::collection::vec(any::<u32>(), 1..400), seed in any::<Option<u64>>()) {
        let ends = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX];
        let special = ends.into_iter().chain([1e-45, -0.0, 1048575.5, -1048576.0]);
        let parent: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).chain(special).collect();
        let n = parent.len();
        let grandparent: Vec<f32> = parent.iter().rev().copied().collect();
        let l = Lattice::new(&Params { seed, ..Params::default() }, Dtype::F32, &[n]).unwrap();
        let big: Vec<f32> = bell(n, 8).iter().map(|v| v * 2e5).collect();
        let mut rec = vec![0; 4 * n];
        prop_assert_eq!(l.quantise(0, &bytes(Dtype::F32, &big), &mut rec).unwrap(), Outcome::Quantised);
        round_trip(&l, 0, &rec, Some(&bytes(Dtype::F32, &parent)), Some(&bytes(Dtype::F32, &grandparent)));
        // As a tensor the parent is refused, unless nothing in it is odd: never an error, never NaN.
        let refused = l.quantise(0, &bytes(Dtype::F32, &parent), &mut rec).unwrap();
        prop_assert_eq!(refused, Outcome::Lossless(Reason::NotFinite));
    }
}

fn lattice(step: i16, seed: Option<u64>, dtype: Dtype, shape: &[usize]) -> Lattice {
    let params = Params { step, seed, ..Params::default() };
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
    let hint = Hint::new(Arc::new(l), 0);
    let refused = encode(Simd::detect(), &hint, Dtype::F32, &off, Bases::NONE);
    assert!(matches!(refused, Err(CodecError::BadInput(_))));
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
    let params =
        Params::from_sensitivity(-20, Some(7), &shape, &bell(w.len(), 4).iter().map(|v| v * v).collect::<Vec<_>>());
    let l = Lattice::new(&params, Dtype::F32, &shape).unwrap();
    let (p, g) = (bytes(Dtype::F32, &moved(&w, 0.4, 9)), bytes(Dtype::F32, &moved(&w, 0.6, 10)));
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
    for (n, step, with) in [(2000, 0, true), (700, -80, true), (900, -40, false), (40_000, -20, true)] {
        let w = bell(n, 6);
        let l = lattice(step, Some(3), Dtype::F32, &[n / 20, 20]);
        let rec = quantised(&l, &w);
        let p = bytes(Dtype::F32, &moved(&w, 0.5, 7));
        let parent = with.then_some(&p[..]);
        let coded = round_trip(&l, 0, &rec, parent, None);
        let family = bases(parent, None);
        let decode = |engine: CpuEngine, coded: &[u8], out: &mut [u8]| engine.decode(Dtype::F32, coded, family, out);
        if with {
            let orphan = CpuEngine::new().decode(Dtype::F32, &coded, Bases::NONE, &mut rec.clone());
            assert_eq!(orphan, Err(CodecError::MissingBase));
        }
        let mut out = vec![0; rec.len()];
        // Every place of a short segment; some of the long one, which has 32 lanes.
        let stride = if n < 10_000 { 1 } else { coded.len() / 40 };
        for cut in (0..coded.len()).step_by(stride) {
            assert!(decode(CpuEngine::new(), &coded[..cut], &mut out).is_err(), "cut at {cut}");
        }
        let longer = [&coded[..], &[0]].concat();
        assert!(decode(CpuEngine::new(), &longer, &mut out).is_err());
        let mut broken = coded.clone();
        for bit in (0..coded.len() * 8).step_by(stride) {
            broken[bit / 8] ^= 1 << (bit % 8);
            let results = engines().map(|engine| {
                out.fill(0);
                decode(engine, &broken, &mut out).is_ok().then(|| out.clone())
            });
            assert!(results[0] == results[1], "paths differ at bit {bit}");
            // Bits of the scheme byte give other schemes, whose values are any.
            if let (Some(values), true) = (&results[0], bit > 7) {
                assert!(floats(Dtype::F32, values).iter().all(|v| v.is_finite()));
            }
            let _ = Hint::from_encoded(Dtype::F32, &broken, rec.len());
            broken[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn what_a_segment_says_of_itself_is_checked() {
    let params =
        Params::from_sensitivity(-3, Some(5), &[30, 40], &bell(1200, 3).iter().map(|v| v * v).collect::<Vec<_>>());
    let l = Lattice::new(&params, Dtype::F32, &[30, 40]).unwrap();
    // 170 elements from the middle of row 2 on lie in 5 rows.
    let mut bytes = Vec::new();
    header::put(&l, 100, 170, 2, &mut bytes).unwrap();
    let read = |bytes: &[u8]| {
        let mut cursor = Cursor::new(bytes);
        let found = header::get(&mut cursor, Dtype::F32, 170)?;
        cursor.done().map(|()| found)
    };
    let found = read(&bytes).unwrap();
    assert_eq!((found.lanes, found.lattice.rows.len(), found.lattice.factors.len()), (2, 5, 40));
    let (mut a, mut b) = (cells::Cells::new(Simd::detect()), cells::Cells::new(Simd::scalar()));
    l.cells(100, 170, &mut a);
    found.lattice.cells(100, 170, &mut b);
    assert!(a.d == b.d && a.o == b.o);
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut]).is_err());
    }
    for bit in 0..bytes.len() * 8 {
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = read(&broken) {
            let start = found.lattice.known.start;
            found.lattice.cells(start, 170, &mut a);
            assert!(a.d[..170].iter().all(|d| d.is_normal()));
        }
    }
    // Many columns, few elements: only their factors are kept. A lattice of lattices is refused.
    let wide = Params { cols: vec![0x3f80; 5000], ..params.clone() };
    let wide = Lattice::new(&Params { rows: vec![], ..wide }, Dtype::BF16, &[2, 5000]).unwrap();
    let mut bytes = Vec::new();
    header::put(&wide, 4990, 20, 0, &mut bytes).unwrap();
    let found = header::get(&mut Cursor::new(&bytes), Dtype::BF16, 20).unwrap();
    assert_eq!(found.lattice.factors.len(), 20);
    let nested = [&[2u8, 0, 0, 0, 20, 3][..], &[7, 0, 0]].concat();
    assert!(header::get(&mut Cursor::new(&nested), Dtype::BF16, 20).is_err());
}

#[test]
fn small_moves_cost_little() {
    let (n, shape) = (90_000, [300, 300]);
    let w = bell(n, 1);
    let l = lattice(-16, Some(1), Dtype::F32, &shape);
    let parent = quantised(&l, &w);
    let same = round_trip(&l, 0, &parent, Some(&parent), None);
    assert!(same.len() < 60, "{}", same.len());
    let near = quantised(&l, &moved(&w, 0.01, 2));
    let coded = round_trip(&l, 0, &near, Some(&parent), None);
    let alone = round_trip(&l, 0, &near, None, None);
    // About 2 % of the levels move: 0.15 bits an element.
    assert!(coded.len() < n / 32 && alone.len() > n / 5, "{} {}", coded.len(), alone.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn moves_come_back_and_chains_of_them_at_once(
        shape in shapes(),
        seed in any::<Option<u64>>(),
        octave in -7i16..3,
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::BF16]),
        gaps in prop::collection::vec(prop::sample::select(vec![0.0f32, 0.003, 0.1, 3.0]), 1..4),
        base_is_on in any::<bool>(),
    ) {
        let n = shape.iter().product::<usize>();
        let params = Params { step: 16 * octave, seed, ..Params::default() };
        let l = Arc::new(Lattice::new(&params, dtype, &shape).unwrap());
        let mut exact = bell(n, 1);
        let mut known = bytes(dtype, &exact);
        if base_is_on {
            let w = known.clone();
            prop_assume!(l.quantise(0, &w, &mut known).unwrap() == Outcome::Quantised);
        }
        let hint = Hint::new(l.clone(), 0);
        let root = [&[0][..], &known].concat();
        let mut chain = vec![root];
        for (i, gap) in gaps.into_iter().enumerate() {
            exact = moved(&exact, gap, i as u64 + 2);
            let w = bytes(dtype, &exact);
            let mut rec = vec![0; w.len()];
            prop_assume!(l.quantise(0, &w, &mut rec).unwrap() == Outcome::Quantised && n > 0);
            let made = engines().map(|e| {
                e.encode_as(Scheme::LatticeMoves, dtype, &rec, known.as_slice().into(), Some(&hint)).unwrap()
            });
            prop_assert_eq!(&made[0], &made[1]);
            let scheme = made[0].scheme;
            prop_assert!(scheme == Scheme::LatticeMoves || scheme == Scheme::Stored);
            for e in engines() {
                for range in [0..n, n / 3..n / 2, n..n] {
                    let mut out = vec![0xaa; range.len() * dtype.size()];
                    let base = known.as_slice().into();
                    e.decode_range(dtype, &made[0].bytes, rec.len(), base, range.clone(), &mut out).unwrap();
                    prop_assert!(out == rec[range.start * dtype.size()..range.end * dtype.size()]);
                }
            }
            chain.push(made[0].bytes.clone());
            known = rec;
        }
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        for e in engines() {
            let mut out = vec![0xaa; known.len()];
            e.decode_chain(dtype, &chain, Bases::NONE, &mut out).unwrap();
            prop_assert!(out == known);
            crate::engine::one_by_one(&e, dtype, &chain, Bases::NONE, &mut out).unwrap();
            prop_assert!(out == known);
        }
    }
}

#[test]
fn moves_are_chosen_where_the_base_is_on_the_lattice() {
    let shape = [300, 400];
    let (old, other) = (bell(120_000, 1), 2);
    let new = moved(&old, 0.02, 3);
    for dtype in [Dtype::F32, Dtype::BF16] {
        let on = |seed: u64, v: &[f32]| {
            let l = Lattice::new(&Params { step: -48, seed: Some(seed), ..Params::default() }, dtype, &shape).unwrap();
            let (w, mut rec) = (bytes(dtype, v), bytes(dtype, v));
            assert_eq!(l.quantise(0, &w, &mut rec), Ok(Outcome::Quantised));
            (Hint::new(Arc::new(l), 0), rec)
        };
        let (hint, rec) = on(1, &new);
        let family = |base: &[u8]| {
            let best = encode_best(Simd::detect(), &hint, dtype, &rec, bases(Some(base), Some(&rec))).unwrap();
            assert_eq!(encode_best(Simd::scalar(), &hint, dtype, &rec, bases(Some(base), Some(&rec))).unwrap(), best);
            best
        };
        let base = on(1, &old).1;
        let (scheme, coded) = family(&base);
        let contexts = encode(Simd::detect(), &hint, dtype, &rec, bases(Some(&base), None)).unwrap().1;
        assert_eq!(scheme, if dtype == Dtype::F32 { Scheme::LatticeMoves } else { family(&base).0 });
        assert!(coded.len() * 16 < contexts.len() * 17, "{dtype}: {} and {}", coded.len(), contexts.len());
        assert_eq!(family(&on(other, &old).1).0, Scheme::LatticeDelta2);
        assert_eq!(family(&bytes(dtype, &old)).0, Scheme::LatticeDelta2);
        // The same again is next to nothing.
        assert!(family(&rec).1.len() < 40);
    }
}

/// Levels that would be next to the limit in between: one after the other and at once give the same, or fail alike.
#[test]
fn chains_next_to_the_limit_are_those_one_by_one() {
    let l = Arc::new(Lattice::new(&Params::default(), Dtype::F32, &[2, 500]).unwrap());
    let hint = Hint::new(l.clone(), 0);
    for top in [(1 << 20) - 1, (1 << 20) - 3, (1 << 20) - 40, 1000] {
        let versions: Vec<Vec<u8>> = [0, 30, 2, 33]
            .iter()
            .map(|by| (0..1000).flat_map(|i| ((top - 33 + by - i % 3) as f32).to_le_bytes()).collect())
            .collect();
        let made = |i: usize| {
            let base = versions[i - 1].as_slice().into();
            let e = CpuEngine::new().encode_as(Scheme::LatticeMoves, Dtype::F32, &versions[i], base, Some(&hint));
            e.unwrap()
        };
        let root = [&[0][..], &versions[0]].concat();
        let made: Vec<_> = [1, 2, 3].map(made).into_iter().map(|e| e.bytes).collect();
        let chain: Vec<&[u8]> = std::iter::once(&root).chain(&made).map(Vec::as_slice).collect();
        for e in engines() {
            let mut out = vec![0; 4000];
            e.decode_chain(Dtype::F32, &chain, Bases::NONE, &mut out).unwrap();
            assert!(out == versions[3], "{top}");
        }
        // Twice as far: out of range alike.
        let far = [chain[0], chain[1], chain[1], chain[1]];
        for e in engines() {
            let mut out = [vec![0; 4000], vec![0; 4000]];
            let at_once = e.decode_chain(Dtype::F32, &far, Bases::NONE, &mut out[0]);
            let each = crate::engine::one_by_one(&e, Dtype::F32, &far, Bases::NONE, &mut out[1]);
            assert_eq!(at_once, each, "{top}");
            assert!(at_once.is_err() || out[0] == out[1]);
        }
    }
}
