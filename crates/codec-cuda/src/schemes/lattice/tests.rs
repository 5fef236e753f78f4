//! Lattices on the device against the CPU, byte by byte.

use crate::{
    Buffer, Decode, Encode, Session,
    schemes::lattice::{decode, encode, quantise},
    testing::{Noise, SIZES, session},
};
use mdl_codec::{
    Bases, CpuEngine, Dtype, Encoded, Engine, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params, Reason},
};
use std::sync::Arc;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::BF16, Dtype::F16];

fn narrow(dtype: Dtype, v: f32) -> Vec<u8> {
    match dtype {
        Dtype::F32 => v.to_le_bytes().to_vec(),
        Dtype::BF16 => v.to_le_bytes()[2..].to_vec(),
        // Not to nearest, nor below the normal range: some f16 near by.
        _ => {
            let b = v.to_bits();
            let exponent = (b >> 23 & 255) as i32 - 112;
            let magnitude = if exponent <= 0 { 0 } else { ((exponent as u32) << 10 | b >> 13 & 1023).min(0x7bff) };
            ((b >> 16 & 0x8000 | magnitude) as u16).to_le_bytes().to_vec()
        }
    }
}

fn bytes(dtype: Dtype, v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|v| narrow(dtype, *v)).collect()
}

fn weights(n: usize, seed: u64, spread: f32) -> Vec<f32> {
    let mut noise = Noise(seed);
    (0..n).map(|_| noise.weight(spread)).collect()
}

/// A few numbers that are everywhere odd.
fn odd(dtype: Dtype, raw: &mut [u8], seed: u64) {
    let mut noise = Noise(seed);
    let all = [0x7f80_0001u32, 0x7f80_0000, 0xff80_0000, 1, 0x8000_0000, 0x7f7f_ffff, 0xffc0_1234, 0x0040_0000];
    for (i, e) in raw.chunks_exact_mut(dtype.size()).enumerate() {
        if i % 37 == 5 {
            let bits = all[noise.next() as usize % all.len()].to_le_bytes();
            match dtype {
                Dtype::F16 => e.copy_from_slice(&(noise.next() as u16 | 0x7c00).to_le_bytes()),
                _ => e.copy_from_slice(&bits[4 - e.len()..]),
            }
        }
    }
}

/// One segment, from `start` on in its tensor, with everything the CPU says of it.
struct Case {
    dtype: Dtype,
    hint: Hint,
    rec: Vec<u8>,
    base: Option<Vec<u8>>,
    grandparent: Option<Vec<u8>>,
}

impl Case {
    fn bases(&self) -> Bases<'_> {
        Bases { base: self.base.as_deref(), grandparent: self.grandparent.as_deref() }
    }

    fn cpu(&self) -> Option<Encoded> {
        let scheme = match (&self.base, &self.grandparent) {
            (Some(_), Some(_)) => Scheme::LatticeDelta2,
            (Some(_), None) => Scheme::LatticeDelta,
            _ => Scheme::Lattice,
        };
        CpuEngine::new().encode_as(scheme, self.dtype, &self.rec, self.bases(), Some(&self.hint)).ok()
    }
}

fn lattice(dtype: Dtype, step: i16, seed: Option<u64>, shape: &[usize], shaped: bool) -> Lattice {
    let n: usize = shape.iter().product();
    let sensitivity: Vec<f32> = if shaped { weights(n, 5, 2.0).iter().map(|v| v * v).collect() } else { vec![] };
    Lattice::new(&Params::from_sensitivity(step, seed, shape, &sensitivity), dtype, shape).unwrap()
}

/// What the CPU makes of these weights; the outcome must be good.
fn quantised(l: &Lattice, start: usize, w: &[u8]) -> Vec<u8> {
    let mut rec = vec![0; w.len()];
    assert_eq!(l.quantise(start, w, &mut rec), Ok(Outcome::Quantised));
    rec
}

struct Shape<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    start: usize,
    n: usize,
    step: i16,
    seed: Option<u64>,
    /// How far apart child, parent and grandparent are.
    gap: f32,
    bases: usize,
    odd: bool,
}

fn case(s: &Shape<'_>) -> Case {
    let l = lattice(s.dtype, s.step, s.seed, s.shape, s.shape.len() > 1 && s.step % 2 == 0);
    let old = weights(s.n, 77 + s.n as u64, 1.0);
    let moved = |seed| -> Vec<f32> { old.iter().zip(weights(s.n, seed, s.gap)).map(|(a, b)| a + b).collect() };
    let rec = quantised(&l, s.start, &bytes(s.dtype, &moved(1)));
    let relative = |i: usize, seed| {
        (s.bases > i).then(|| {
            let mut raw = bytes(s.dtype, &if s.gap == 0.0 { old.clone() } else { moved(seed) });
            if s.odd {
                odd(s.dtype, &mut raw, seed);
            }
            raw
        })
    };
    let (base, grandparent) = (relative(0, 2), relative(1, 3));
    // A parent that is the child.
    let base = if s.gap == 0.0 && !s.odd { base.map(|_| rec.clone()) } else { base };
    Case { dtype: s.dtype, hint: Hint::new(Arc::new(l), s.start), rec, base, grandparent }
}

/// Puts bytes where they are aligned to the dtype and to nothing more if `shift`.
fn upload<'s>(session: &'s Session, raw: &[u8], shift: usize) -> Buffer<'s> {
    session.upload(&[&vec![0x55; shift], raw].concat()).unwrap()
}

/// Encodes and decodes all in one call each, and compares.
fn check(cases: &[Case], shift: bool) {
    let session = session();
    let shift_of = |c: &Case| if shift { c.dtype.size() } else { 0 };
    let there: Vec<[Option<Buffer<'_>>; 4]> = cases
        .iter()
        .map(|c| {
            let up = |r: Option<&Vec<u8>>| r.map(|r| upload(&session, r, shift_of(c)));
            [up(Some(&c.rec)), up(c.base.as_ref()), up(c.grandparent.as_ref()), up(Some(&vec![0xaa; c.rec.len()]))]
        })
        .collect();
    let view = |i: usize, which: usize| {
        let buffer = there[i][which].as_ref()?;
        Some(buffer.view().part(shift_of(&cases[i])..buffer.view().len()))
    };
    let jobs: Vec<(Encode<'_>, &Hint)> = cases
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let job = Encode { dtype: c.dtype, raw: view(i, 0).unwrap(), base: view(i, 1), grandparent: view(i, 2) };
            (job, &c.hint)
        })
        .collect();
    let coded = encode(&session, &jobs).unwrap();
    let mut right = Vec::new();
    for (i, (c, coded)) in cases.iter().zip(coded).enumerate() {
        let (cpu, what) = (c.cpu(), format!("case {i}: {} of {} bytes", c.dtype, c.rec.len()));
        match (&cpu, coded) {
            (None, None) => {}
            (Some(e), Some(Encoded { bytes, .. })) if e.scheme == Scheme::Stored => {
                assert!(bytes.len() > c.rec.len(), "{what}")
            }
            (Some(e), Some(Encoded { scheme, bytes })) => {
                assert_eq!(scheme, e.scheme, "{what}");
                let first = bytes.iter().zip(&e.bytes).position(|(a, b)| a != b);
                assert!(bytes == e.bytes, "{what}: {} and {} bytes, unlike at {first:?}", bytes.len(), e.bytes.len());
            }
            _ => panic!("{what}: the CPU gives {:?}", cpu.map(|e| e.scheme)),
        }
        right.push(cpu.filter(|e| e.scheme != Scheme::Stored));
    }
    let jobs: Vec<Decode<'_>> = cases
        .iter()
        .zip(&right)
        .enumerate()
        .filter_map(|(i, (c, e))| {
            let e = e.as_ref()?;
            let (base, grandparent) = (view(i, 1), view(i, 2));
            Some(Decode { dtype: c.dtype, scheme: e.scheme, body: &e.bytes[1..], base, grandparent, out: view(i, 3)? })
        })
        .collect();
    decode(&session, &jobs).unwrap();
    for (i, (c, e)) in cases.iter().zip(&right).enumerate() {
        if e.is_some() {
            assert!(
                session.download(view(i, 3).unwrap()).unwrap() == c.rec,
                "case {i}: {} of {}",
                c.dtype,
                c.rec.len()
            );
        }
    }
}

#[test]
fn every_size_and_dtype_is_coded_as_the_cpu_does() {
    for dtype in DTYPES {
        let mut cases = Vec::new();
        for n in SIZES {
            let many = n > 1 << 17;
            for (bases, gap, step, shape) in [(0, 0.1, -40, [n]), (1, 0.1, -25, [n]), (2, 0.05, -20, [n])] {
                if many && bases != n % 3 {
                    continue;
                }
                let seed = (n % 2 == 0).then_some(n as u64);
                cases.push(case(&Shape { dtype, shape: &shape, start: 0, n, step, seed, gap, bases, odd: n % 5 == 0 }));
            }
        }
        check(&cases, false);
    }
}

#[test]
fn matrices_with_factors_and_columns_of_all_kinds_are_coded_as_the_cpu_does() {
    for (k, dtype) in DTYPES.into_iter().enumerate() {
        let mut cases = Vec::new();
        // Columns that are averaged one at a time or four, fewer than a group has, more than are kept; parts that begin
        // anywhere.
        for (i, (shape, start, n)) in [
            ([3000, 7], 0, 21_000),
            ([900, 33], 1000, 20_001),
            ([200, 100], 37, 10_000),
            ([40, 768], 0, 40 * 768),
            ([2, 20_000], 19_000, 3000),
            ([3000, 1], 5, 2990),
            ([33, 1000], 999, 31_001),
            ([70, 63], 1, 4000),
            ([70, 64], 63, 4000),
        ]
        .into_iter()
        .enumerate()
        {
            for bases in 0..3 {
                let seed = (i % 3 > 0).then_some(7 + i as u64);
                let (step, gap) = (-10 * (i as i16 % 4 + bases as i16) - i as i16 % 2, [0.02, 0.3, 0.0][(i + k) % 3]);
                cases.push(case(&Shape { dtype, shape: &shape, start, n, step, seed, gap, bases, odd: i % 4 == 3 }));
            }
        }
        check(&cases, k != 1);
    }
}

#[test]
fn wide_levels_and_parents_far_away_are_coded_as_the_cpu_does() {
    let mut cases = Vec::new();
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for (bases, gap, step) in [(0, 1.0, -80), (1, 60.0, -100), (2, 30.0, -64), (1, 0.001, -100), (1, 0.0, 8)] {
            // Beyond 11 bits no half has every level.
            let (step, gap) = if dtype == Dtype::F32 { (2 * step, gap) } else { (step / 2, gap / 4.0) };
            let shape = [5, 1001 + i];
            cases.push(case(&Shape {
                dtype,
                shape: &shape,
                start: 3,
                n: 4500,
                step,
                seed: Some(3),
                gap,
                bases,
                odd: true,
            }));
        }
        // All equal, equal to the parent, and off the lattice.
        let l = lattice(dtype, -30, None, &[100, 50], true);
        let rec = quantised(&l, 0, &bytes(dtype, &[0.25; 5000]));
        let hint = Hint::new(Arc::new(l), 0);
        let one = |rec: &[u8], base: Option<&[u8]>| {
            let (rec, base) = (rec.to_vec(), base.map(<[u8]>::to_vec));
            Case { dtype, hint: hint.clone(), rec, base, grandparent: None }
        };
        let mut off = rec.clone();
        off[4321 * dtype.size()] ^= 1;
        cases.extend([one(&rec, None), one(&rec, Some(&rec)), one(&off, None), one(&off, Some(&rec))]);
        let mut nan = rec.clone();
        odd(dtype, &mut nan, 9);
        cases.push(one(&nan, Some(&rec)));
        cases.push(one(&rec, Some(&nan)));
    }
    let alone = |c: &Case| c.base.is_some() && c.cpu().is_some_and(|e| e.scheme == Scheme::Lattice);
    assert!(cases.iter().any(alone));
    check(&cases, false);
}

#[test]
fn blocks_and_batches_are_coded_as_the_cpu_does() {
    let mut cases = Vec::new();
    for (dtype, shape, start, n, gap) in [
        (Dtype::BF16, [600, 700], 350, (1 << 18) + 5000, 0.02f32),
        (Dtype::F32, [3, 90_000], 1, 269_000, 0.4),
        (Dtype::F16, [9000, 32], 0, 288_000, 0.001),
    ] {
        cases.push(case(&Shape {
            dtype,
            shape: &shape,
            start,
            n,
            step: -24,
            seed: Some(1),
            gap,
            bases: 2,
            odd: false,
        }));
    }
    check(&cases, false);
}

#[test]
fn many_short_segments_share_launches() {
    let cases: Vec<Case> = (0..540)
        .map(|i| {
            let (dtype, n, step) = (DTYPES[i % 3], 1 + i % 70, -(i as i16 % 40));
            case(&Shape {
                dtype,
                shape: &[n],
                start: 0,
                n,
                step,
                seed: Some(i as u64),
                gap: 0.1,
                bases: i % 3,
                odd: false,
            })
        })
        .collect();
    check(&cases, false);
}

#[test]
fn tensors_are_quantised_as_the_cpu_does() {
    let session = session();
    for dtype in DTYPES {
        for (i, n) in SIZES.into_iter().enumerate() {
            for (shape, start, n, spread, odd_ones) in [
                (vec![n], 0, n, 1.0, false),
                (vec![n.div_ceil(7), 7], n / 3, n - n / 3, 2.0, i % 2 == 0),
                (vec![n], 0, n, 3e5, false),
            ] {
                let l = lattice(dtype, 2 * i as i16 - 60, (i % 3 > 0).then_some(11), &shape, n < 5000);
                let mut w = bytes(dtype, &weights(n, 3, spread));
                if odd_ones {
                    odd(dtype, &mut w, 4);
                }
                let mut rec = vec![0; w.len()];
                let outcome = l.quantise(start, &w, &mut rec).unwrap();
                for shift in [0, dtype.size()] {
                    let (from, to) = (upload(&session, &w, shift), upload(&session, &vec![0; w.len()], shift));
                    let cut = |b: &Buffer<'_>| crate::View::at(b.address() + shift as u64, w.len());
                    assert_eq!(quantise(&session, &l, start, cut(&from), cut(&to)), Ok(outcome), "{dtype} {shape:?}");
                    if outcome == Outcome::Quantised {
                        assert!(session.download(cut(&to)).unwrap() == rec, "{dtype} {shape:?} from {start}");
                    }
                }
            }
        }
    }
    for (dtype, step, values, reason) in [
        (Dtype::F32, 0, [0.0, f32::NAN], Reason::NotFinite),
        (Dtype::F32, 0, [f32::NEG_INFINITY, 1e9], Reason::NotFinite),
        (Dtype::F32, 0, [1.0, 1_048_576.0], Reason::TooLarge),
        (Dtype::F32, -1280, [1.0, f32::MAX], Reason::TooLarge),
        (Dtype::F16, 96, [1.0, 65504.0], Reason::OutOfRange),
    ] {
        let w = session.upload(&bytes(dtype, &values)).unwrap();
        let rec = session.buffer(w.view().len()).unwrap();
        let l = lattice(dtype, step, None, &[2], false);
        assert_eq!(quantise(&session, &l, 0, w.view(), rec.view()), Ok(Outcome::Lossless(reason)));
    }
    let l = lattice(Dtype::F32, 0, None, &[2], false);
    let w = session.upload(&[0; 12]).unwrap();
    assert!(quantise(&session, &l, 0, w.view(), w.view()).is_err());
}

#[test]
fn broken_segments_end_as_they_do_on_the_cpu() {
    let session = session();
    for (shape, step, bases, gap) in [
        ([20, 30], -50, 1, 0.4f32),
        ([9, 30], -90, 0, 0.0),
        ([40, 16], -30, 2, 0.1),
        // On 32 lanes; some of its bits only.
        ([160, 100], -100, 0, 0.0),
    ] {
        let n = shape[0] * shape[1];
        let dtype = if bases == 1 { Dtype::BF16 } else { Dtype::F32 };
        let c = case(&Shape { dtype, shape: &shape, start: 0, n, step, seed: Some(1), gap, bases, odd: false });
        let right = c.cpu().unwrap();
        let up = |r: Option<&Vec<u8>>| r.map(|r| session.upload(r).unwrap());
        let (base, grandparent) = (up(c.base.as_ref()), up(c.grandparent.as_ref()));
        let out = session.buffer(c.rec.len()).unwrap();
        let both = |bytes: &[u8]| {
            let mut cpu = vec![0; c.rec.len()];
            let cpu = CpuEngine::new().decode(c.dtype, bytes, c.bases(), &mut cpu).map(|()| cpu);
            let job = Decode {
                dtype: c.dtype,
                scheme: right.scheme,
                body: &bytes[1..],
                base: base.as_ref().map(Buffer::view),
                grandparent: grandparent.as_ref().map(Buffer::view),
                out: out.view(),
            };
            let device = decode(&session, &[job]).map(|()| session.download(out.view()).unwrap());
            match (cpu, device) {
                (Ok(a), Ok(b)) => assert!(a == b),
                (a, b) => assert!(a.is_err() && b.is_err(), "{a:?} {b:?}"),
            }
        };
        both(&right.bytes);
        let long = right.bytes.len() > 5000;
        for cut in (1..right.bytes.len()).step_by(if long { 1999 } else { 1 }) {
            both(&right.bytes[..cut]);
        }
        let mut broken = right.bytes.clone();
        for bit in (8..broken.len() * 8).step_by(if long { 4999 } else { 5 }) {
            broken[bit / 8] ^= 1 << (bit % 8);
            both(&broken);
            broken[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
