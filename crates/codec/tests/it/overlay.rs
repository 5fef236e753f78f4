//! Overlays through the engine: rows that are not on the lattice come back exactly, cost what they are, and throw
//! nothing else off it.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::xorshift::Xorshift;
use mdl_codec::{
    Bases, CodecError, CpuEngine, Dtype, Encoded, Engine, Scheme,
    quant::{
        lattice::{Hint, Lattice, Outcome, Params},
        times,
    },
};
use proptest::prelude::*;
use std::{ops::Range, sync::Arc};

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::BF16, Dtype::F16];
/// What scaled rows are the base's times.
const FACTOR: f32 = 0.999_98;
const SCALED: [Scheme; 2] = [Scheme::OverlayScaled, Scheme::OverlayScaled2];
const OVERLAYS: [Scheme; 3] = [Scheme::Overlay, Scheme::OverlayDelta, Scheme::OverlayDelta2];

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

/// What a row of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Row {
    OnLattice,
    /// The base's, where the base is not on the lattice.
    Copied,
    Literal,
    /// The base's times a factor, in f32; else literal.
    Scaled,
    /// Literal, with numbers that have no level in it and in its base.
    Odd,
}

/// A tensor and its bases.
struct Tensor {
    dtype: Dtype,
    lattice: Arc<Lattice>,
    raw: Vec<u8>,
    base: Vec<u8>,
    grandparent: Vec<u8>,
}

/// A tensor whose rows are as said; `shaped` ones have factors of rows and columns.
fn tensor(dtype: Dtype, cols: usize, rows: &[Row], seed: Option<u64>, shaped: bool) -> Tensor {
    let (shape, n, size) = ([rows.len(), cols], rows.len() * cols, dtype.size());
    let sensitivity: Vec<f32> = if shaped { bell(n, 5).iter().map(|v| v * v).collect() } else { Vec::new() };
    let params = Params::from_sensitivity(-48, seed, &shape, &sensitivity);
    let lattice = Arc::new(Lattice::new(&params, dtype, &shape).unwrap());
    let w = bell(n, 1);
    let moved = |by: f32, seed| -> Vec<f32> { w.iter().zip(bell(n, seed)).map(|(a, b)| a + by * b).collect() };
    let exact = [moved(0.05, 2), moved(0.02, 3), w.clone()].map(|v| bytes(dtype, &v));
    let [mut raw, mut base, grandparent] = exact.clone().map(|exact| {
        let mut rec = vec![0; exact.len()];
        assert_eq!(lattice.quantise(0, &exact, &mut rec), Ok(Outcome::Quantised));
        rec
    });
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| **row != Row::OnLattice) {
        let at = i * cols * size..(i + 1) * cols * size;
        base[at.clone()].copy_from_slice(&exact[1][at.clone()]);
        let from = if *row == Row::Copied { &exact[1] } else { &exact[0] };
        raw[at.clone()].copy_from_slice(&from[at.clone()]);
        if *row == Row::Scaled && dtype == Dtype::F32 {
            times(dtype, &exact[1][at.clone()], FACTOR, &mut raw[at.clone()]);
        }
        if *row == Row::Odd {
            base[at.clone()].fill(0xff);
            raw[at.start..at.start + size].fill(0xff);
            raw[at.end - size..at.end].copy_from_slice(&bytes(dtype, &[f32::INFINITY])[..size]);
        }
    }
    Tensor { dtype, lattice, raw, base, grandparent }
}

impl Tensor {
    /// The bytes of some elements.
    fn part<'a>(&self, of: &'a [u8], elements: &Range<usize>) -> &'a [u8] {
        &of[elements.start * self.dtype.size()..elements.end * self.dtype.size()]
    }

    fn bases(&self, elements: &Range<usize>, count: u8) -> Bases<'_> {
        Bases {
            base: (count > 0).then(|| self.part(&self.base, elements)),
            grandparent: (count > 1).then(|| self.part(&self.grandparent, elements)),
        }
    }

    fn hint(&self, start: usize) -> Hint {
        Hint::new(self.lattice.clone(), start)
    }

    /// Encodes a segment as the engine chooses and as an overlay, checks all of it, and gives both.
    fn encode(&self, elements: Range<usize>, count: u8) -> (Encoded, Option<Encoded>) {
        let (raw, bases, hint) =
            (self.part(&self.raw, &elements), self.bases(&elements, count), self.hint(elements.start));
        let chosen = CpuEngine::new().encode(self.dtype, raw, bases, Some(&hint)).unwrap();
        assert_eq!(CpuEngine::portable().encode(self.dtype, raw, bases, Some(&hint)).unwrap(), chosen);
        self.check(raw, bases, &chosen);
        let scheme = OVERLAYS[usize::from(count)];
        let forced = CpuEngine::new().encode_as(scheme, self.dtype, raw, bases, Some(&hint)).ok();
        if let Some(forced) = &forced {
            let plain = CpuEngine::portable().encode_as(scheme, self.dtype, raw, bases, Some(&hint));
            assert_eq!(plain.as_ref(), Ok(forced));
            self.check(raw, bases, forced);
        }
        (chosen, forced)
    }

    /// Decodes whole and in parts, with no more bases than the scheme needs.
    fn check(&self, raw: &[u8], given: Bases<'_>, e: &Encoded) {
        let (size, n) = (self.dtype.size(), raw.len() / self.dtype.size());
        assert!(e.bytes.len() <= raw.len() + 1);
        let needs = e.scheme.bases();
        let bases =
            Bases { base: given.base.filter(|_| needs > 0), grandparent: given.grandparent.filter(|_| needs > 1) };
        for engine in [CpuEngine::new(), CpuEngine::portable()] {
            if let (0..2, Some(base)) = (needs, given.base) {
                let root = [&[0], base].concat();
                let mut out = vec![0xaa; raw.len()];
                engine.decode_chain(self.dtype, &[&root, &e.bytes], Bases::NONE, &mut out).unwrap();
                assert!(out == raw, "{} {:?}, over its base", self.dtype, e.scheme);
            }
            for range in [0..n, 0..0, n..n, 0..n.min(1), n / 3..n / 2, n / 2..n, n / 5..n - n / 7] {
                let mut out = vec![0xaa; range.len() * size];
                engine.decode_range(self.dtype, &e.bytes, raw.len(), bases, range.clone(), &mut out).unwrap();
                assert!(out == raw[range.start * size..range.end * size], "{:?} {range:?} of {n}", e.scheme);
            }
        }
        if needs > 0 {
            let orphan = CpuEngine::new().decode(self.dtype, &e.bytes, Bases::NONE, &mut raw.to_vec());
            assert_eq!(orphan, Err(CodecError::MissingBase));
        }
    }
}

fn pattern(n: usize, every: &[Row]) -> Vec<Row> {
    (0..n).map(|i| every[i % every.len()]).collect()
}

#[test]
fn rows_of_every_kind_come_back() {
    use Row::*;
    for dtype in FLOATS {
        for (seed, shaped) in [(None, false), (Some(3), true)] {
            let rows = pattern(60, &[OnLattice, OnLattice, Copied, Copied, OnLattice, Literal, Odd, OnLattice]);
            let t = tensor(dtype, 130, &rows, seed, shaped);
            let lossless = |bases| CpuEngine::new().encode(dtype, &t.raw, bases, None).unwrap();
            for count in 0..3 {
                let (chosen, forced) = t.encode(0..60 * 130, count);
                // Half of the rows are on the lattice: that wins.
                let plain = lossless(t.bases(&(0..60 * 130), count));
                assert!(OVERLAYS.contains(&chosen.scheme), "{dtype} {count} {:?}", chosen.scheme);
                assert!(chosen.bytes.len() < plain.bytes.len());
                // Without the grandparent it may be a little longer: naming that one costs something, too.
                assert!(chosen.bytes.len() <= forced.unwrap().bytes.len() + 64);
                // In the middle of a row, to the middle of another; inside of a row that is on the lattice or not.
                for elements in [77..5003, 130..200, 260..380, 651..780, 640..655, 7799..7800] {
                    t.encode(elements, count);
                }
            }
        }
    }
}

#[test]
fn a_segment_all_of_one_kind_is_no_overlay() {
    for (rows, cols) in [(1, 1), (1, 40), (40, 1), (3, 5)] {
        for row in [Row::OnLattice, Row::Copied, Row::Literal, Row::Odd] {
            let t = tensor(Dtype::F32, cols, &vec![row; rows], Some(1), false);
            for count in 0..3 {
                let (chosen, forced) = t.encode(0..rows * cols, count);
                assert!(forced.is_none() && !OVERLAYS.contains(&chosen.scheme), "{rows} {cols} {row:?}");
            }
        }
    }
}

#[test]
fn copied_rows_cost_next_to_nothing() {
    // Half of the rows, in no order, are the base's; the others moved.
    let (rows, cols) = (4096, 384);
    let mut noise = Xorshift::seeded(8);
    let kinds: Vec<Row> =
        (0..rows).map(|_| if noise.next() >> 40 & 1 == 0 { Row::OnLattice } else { Row::Copied }).collect();
    let t = tensor(Dtype::F32, cols, &kinds, Some(5), false);
    let row = cols * 4;
    let kept = |of: &[u8]| -> Vec<u8> {
        kinds.iter().zip(of.chunks(row)).filter(|(k, _)| **k == Row::OnLattice).flat_map(|(_, r)| r.to_vec()).collect()
    };
    // The rows on the lattice as a tensor of their own, on a lattice of the same step.
    let params = Params { step: -48, seed: Some(5), ..Params::default() };
    let [mut raw, mut base, mut grandparent] = [&t.raw, &t.base, &t.grandparent].map(|v| kept(v));
    let alone = Arc::new(Lattice::new(&params, Dtype::F32, &[raw.len() / row, cols]).unwrap());
    for part in [&mut raw, &mut base, &mut grandparent] {
        let exact = part.clone();
        assert_eq!(alone.quantise(0, &exact, part), Ok(Outcome::Quantised));
    }
    for count in 0..3 {
        let (chosen, _) = t.encode(0..rows * cols, count);
        let bases =
            Bases { base: (count > 0).then_some(&base[..]), grandparent: (count > 1).then_some(&grandparent[..]) };
        let rest = CpuEngine::new().encode(Dtype::F32, &raw, bases, Some(&Hint::new(alone.clone(), 0))).unwrap();
        let plain = CpuEngine::new().encode(Dtype::F32, &t.raw, t.bases(&(0..rows * cols), count), None).unwrap();
        println!(
            "{}: {} bytes, its rows on the lattice alone {} ({}), lossless {} ({})",
            chosen.scheme.name(),
            chosen.bytes.len(),
            rest.bytes.len(),
            rest.scheme.name(),
            plain.bytes.len(),
            plain.scheme.name()
        );
        if count > 0 {
            assert_eq!(chosen.scheme, OVERLAYS[usize::from(count)]);
            assert!(chosen.bytes.len() < rest.bytes.len() + rest.bytes.len() / 16, "more than 6 % for copies");
        } else {
            assert_eq!(chosen.scheme, Scheme::Overlay);
            assert!(chosen.bytes.len() < plain.bytes.len() * 3 / 4);
        }
    }
}

#[test]
fn scaled_rows_cost_next_to_nothing_and_a_segment_may_have_no_others() {
    let (rows, cols) = (600, 384);
    for kinds in [vec![Row::Scaled; rows], pattern(rows, &[Row::Scaled, Row::Scaled, Row::Copied, Row::OnLattice])] {
        let t = tensor(Dtype::F32, cols, &kinds, Some(5), false);
        for count in 1..3u8 {
            let (chosen, _) = t.encode(0..rows * cols, count);
            // The grandparent may not pay for itself.
            assert!(SCALED[..usize::from(count)].contains(&chosen.scheme), "{count} {:?}", chosen.scheme);
            let on_lattice = kinds.iter().filter(|k| **k == Row::OnLattice).count() * cols;
            assert!(chosen.bytes.len() < 4000 + on_lattice * 5 / 8, "{} bytes", chosen.bytes.len());
        }
        let (alone, _) = t.encode(0..rows * cols, 0);
        assert!(!SCALED.contains(&alone.scheme));
    }
}

#[test]
fn a_stored_overlay_gives_its_lattice_back() {
    let rows = pattern(50, &[Row::OnLattice, Row::OnLattice, Row::Literal, Row::Copied]);
    let t = tensor(Dtype::BF16, 90, &rows, Some(9), true);
    let elements = 1000..4000;
    let (stored, _) = t.encode(elements.clone(), 1);
    assert_eq!(stored.scheme, Scheme::OverlayDelta);
    let raw = t.part(&t.raw, &elements);
    let hint = Hint::from_encoded(t.dtype, &stored.bytes, raw.len()).unwrap().unwrap();
    for count in 0..3 {
        let bases = t.bases(&elements, count);
        let again = CpuEngine::new().encode(t.dtype, raw, bases, Some(&hint)).unwrap();
        let first = CpuEngine::new().encode(t.dtype, raw, bases, Some(&t.hint(1000))).unwrap();
        assert_eq!(again, first);
    }
    // Against itself it is nothing.
    let same = CpuEngine::new().encode(t.dtype, raw, raw.into(), Some(&hint)).unwrap();
    assert!(same.bytes.len() < 200);
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let rows = pattern(700, &[Row::OnLattice, Row::Copied, Row::OnLattice, Row::Literal]);
    let t = tensor(Dtype::F32, 900, &rows, Some(9), true);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| t.encode(450..629_000, 2))
    };
    assert!(run(1) == run(5));
}

fn varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// An overlay by hand: `runs` are gaps and words.
fn made(scheme: Scheme, inner: &[u8], runs: &[(u64, u64)], literal: &[u8]) -> Vec<u8> {
    let mut out = vec![scheme as u8];
    varint(&mut out, inner.len() as u64);
    out.extend_from_slice(inner);
    varint(&mut out, runs.len() as u64);
    for &(gap, word) in runs {
        varint(&mut out, gap);
        varint(&mut out, word);
    }
    out.extend_from_slice(literal);
    out
}

#[test]
fn overlays_that_no_encoder_writes_are_refused_or_decode() {
    let t = tensor(Dtype::F32, 10, &[Row::OnLattice; 30], Some(2), false);
    let bases = t.bases(&(0..300), 2);
    let inner = |scheme| CpuEngine::new().encode_as(scheme, t.dtype, &t.raw, bases, Some(&t.hint(0))).unwrap().bytes;
    let [alone, delta, third] = [Scheme::Lattice, Scheme::LatticeDelta, Scheme::LatticeDelta2].map(inner);
    let decode = |bytes: &[u8]| {
        let mut out = vec![0; t.raw.len()];
        let done = CpuEngine::new().decode(t.dtype, bytes, bases, &mut out);
        assert_eq!(CpuEngine::portable().decode(t.dtype, bytes, bases, &mut out.clone()), done);
        done.map(|()| out)
    };
    let stored = |n: usize| [vec![0u8], vec![7; 4 * n]].concat();
    let literal = |runs: &[(u64, u64)], n| decode(&made(Scheme::Overlay, &alone, runs, &stored(n)));
    // Sound ones first: neighbours need not be merged.
    let mut wanted = t.raw.clone();
    wanted[4 * 5..4 * 9].fill(7);
    assert_eq!(literal(&[(5, 8)], 4), Ok(wanted.clone()));
    assert_eq!(literal(&[(5, 2), (0, 6)], 4), Ok(wanted));
    let mut wanted = t.raw.clone();
    wanted[4 * 290..].copy_from_slice(&t.base[4 * 290..]);
    assert_eq!(decode(&made(Scheme::OverlayDelta, &alone, &[(290, 21)], &[])), Ok(wanted.clone()));
    assert_eq!(decode(&made(Scheme::OverlayDelta2, &delta, &[(290, 21)], &[])), Ok(wanted));
    // Runs that are empty, leave the segment, or add up to more than numbers can; none; other counts of elements.
    for runs in [&[(5, 0)][..], &[(5, 1)], &[(300, 2)], &[(299, 4)], &[(1, u64::MAX >> 30), (1, 2)], &[(1 << 34, 2)]] {
        assert!(matches!(literal(runs, 1), Err(CodecError::Corrupt(_))), "{runs:?}");
        assert!(literal(&[&[(0, 2)], runs].concat(), 1).is_err(), "{runs:?}");
    }
    assert!(literal(&[], 0).is_err() && decode(&made(Scheme::Overlay, &alone, &[], &[])).is_err());
    assert!(literal(&[(5, 8)], 3).is_err() && literal(&[(5, 8)], 5).is_err() && literal(&[(5, 8)], 0).is_err());
    // Bytes after copied runs; a count of runs that is not there.
    assert!(decode(&made(Scheme::OverlayDelta, &alone, &[(290, 21)], &[0])).is_err());
    let mut many = made(Scheme::OverlayDelta, &alone, &[], &[]);
    many.pop();
    varint(&mut many, 1 << 33);
    assert!(decode(&many).is_err());
    // A factor goes before the count of runs; no run comes from nowhere, and no factor is infinite.
    let factored = |factor: f32, word| {
        let mut bytes = vec![Scheme::OverlayScaled as u8];
        varint(&mut bytes, alone.len() as u64);
        bytes.extend_from_slice(&alone);
        bytes.extend_from_slice(&factor.to_le_bytes());
        [1, 290, word].into_iter().for_each(|v| varint(&mut bytes, v));
        decode(&bytes)
    };
    let mut wanted = t.raw.clone();
    times(Dtype::F32, &t.base[4 * 290..], 0.5, &mut wanted[4 * 290..]);
    assert_eq!(factored(0.5, 42), Ok(wanted));
    assert_eq!(factored(f32::NAN, 41), Err(CodecError::Corrupt("a factor that is not finite")));
    assert!(factored(0.5, 43).is_err() && factored(0.5, 2).is_err() && factored(0.5, 46).is_err());
    // A base that the scheme does not have.
    let lacks = |scheme, inner: &[u8], run, rest: &[u8]| {
        matches!(decode(&made(scheme, inner, &[run], rest)), Err(CodecError::Corrupt(_)))
    };
    assert!(lacks(Scheme::Overlay, &alone, (290, 21), &[]));
    assert!(lacks(Scheme::Overlay, &delta, (290, 20), &stored(10)));
    assert!(lacks(Scheme::OverlayDelta, &third, (290, 20), &stored(10)));
    let (raw, base) = (&t.raw[4 * 200..], &t.base[4 * 200..]);
    let against = CpuEngine::new().encode_as(Scheme::Delta, t.dtype, raw, base.into(), None).unwrap();
    assert_eq!(against.scheme, Scheme::Delta);
    assert!(lacks(Scheme::Overlay, &alone, (200, 200), &against.bytes));
    assert_eq!(decode(&made(Scheme::OverlayDelta, &alone, &[(200, 200)], &against.bytes)), Ok(t.raw.clone()));
    // Overlays in overlays, and what is no lattice under one; a lattice of literal elements, and an overlay of them.
    let whole = made(Scheme::Overlay, &alone, &[(5, 8)], &stored(4));
    let plain = CpuEngine::new().encode(t.dtype, &t.raw, Bases::NONE, None).unwrap().bytes;
    for bad in [&whole, &plain, &stored(300), &vec![]] {
        assert!(lacks(Scheme::OverlayDelta2, bad, (290, 21), &[]));
        let bytes = made(Scheme::OverlayDelta2, bad, &[(290, 21)], &[]);
        assert!(Hint::from_encoded(t.dtype, &bytes, t.raw.len()).is_err());
    }
    for bad in [&whole, &alone, &delta, &third] {
        assert!(lacks(Scheme::OverlayDelta2, &alone, (0, 600), bad));
    }
    // Other dtypes have no lattice.
    assert!(CpuEngine::new().decode(Dtype::I32, &whole, bases, &mut t.raw.clone()).is_err());
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    use Row::*;
    let row =
        prop_oneof![3 => Just(OnLattice), 1 => Just(Copied), 1 => Just(Literal), 1 => Just(Odd), 1 => Just(Scaled)];
    prop::collection::vec(row, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_mixture_comes_back(
        rows in rows(),
        cols in 1usize..70,
        seed in any::<Option<u64>>(),
        shaped: bool,
        dtype in prop::sample::select(FLOATS.to_vec()),
        count in 0u8..3,
        cut in 0usize..200,
        left in 0usize..200,
    ) {
        let t = tensor(dtype, cols, &rows, seed, shaped);
        let n = rows.len() * cols;
        let start = cut % n;
        t.encode(start..n - left % (n - start), count);
    }
}
