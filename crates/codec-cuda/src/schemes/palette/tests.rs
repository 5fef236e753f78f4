//! Palettes on the device against the CPU's: every dtype, size and scheme.

mod damaged;

use crate::{
    Buffer, Decode, Encode, Session,
    schemes::palette::{decode, encode},
    testing::{Noise, SIZES, session},
};
use mdl_codec::{Bases, CpuEngine, Dtype, Scheme, engine_internals};

/// Dtypes that have palettes.
fn dtypes() -> impl Iterator<Item = Dtype> {
    Dtype::ALL.into_iter().filter(|d| d.size() > 1)
}

/// Weights after a walk of so many steps, in `bins` uneven bins; every `protect`-th is left as it is. As elements of
/// the dtype.
fn quantised(dtype: Dtype, n: usize, bins: i32, steps: u64, protect: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(n * dtype.size());
    let (mut first, mut walk) = (Noise(77), (1..=steps).map(|s| Noise(s * 977)).collect::<Vec<_>>());
    let size = dtype.size().min(8);
    for i in 0..n * dtype.size() / size {
        let w = first.weight(1.0) + walk.iter_mut().map(|s| s.weight(0.03)).sum::<f32>();
        let bin = (w.abs().sqrt() * bins as f32).round().min(bins as f32 / 2.0);
        let kept = protect > 0 && i % protect == 3;
        let level = if kept { w } else { (bin / bins as f32).powi(2).copysign(w) };
        let (bits, wide) = (u64::from(level.to_bits()), f64::from(level).to_bits());
        let v = match dtype {
            Dtype::F32 => bits & if kept { !0xff } else { !0xffff },
            Dtype::F64 => wide,
            Dtype::BF16 => bits >> 16,
            Dtype::F16 => (bits >> 16 & 0x8000) | (bits >> 13 & 0x3fff),
            _ => ((level * 3e4) as i64) as u64,
        };
        out.extend_from_slice(&v.to_le_bytes()[..size]);
    }
    out
}

/// A segment and its bases.
#[derive(Clone)]
struct Case {
    dtype: Dtype,
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
    grandparent: Option<Vec<u8>>,
}

impl Case {
    fn bases(&self) -> Bases<'_> {
        Bases { base: self.base.as_deref(), grandparent: self.grandparent.as_deref() }
    }

    /// What the processor makes of it; nothing where that is longer than the segment or no palette.
    fn expected(&self) -> Option<(Scheme, Vec<u8>)> {
        let asked = match (&self.base, &self.grandparent) {
            (None, _) => Scheme::Palette,
            (_, None) => Scheme::PaletteDelta,
            _ => Scheme::PaletteDelta2,
        };
        let e = CpuEngine::new().encode_as(asked, self.dtype, &self.raw, self.bases(), None).unwrap();
        (e.scheme != Scheme::Stored).then_some((e.scheme, e.bytes))
    }
}

/// Bytes on the device, `skip` bytes after an aligned address.
fn put<'s>(session: &'s Session, bytes: &[u8], skip: usize) -> Buffer<'s> {
    session.upload(&[vec![9; skip], bytes.to_vec()].concat()).unwrap()
}

/// Encodes and decodes the cases in one call each; returns the schemes.
fn check(session: &Session, cases: &[Case], skip: usize) -> Vec<Option<Scheme>> {
    let there: Vec<[Option<Buffer<'_>>; 3]> = cases
        .iter()
        .map(|c| {
            [Some(&c.raw), c.base.as_ref(), c.grandparent.as_ref()]
                .map(|b| b.map(|b| put(session, b, skip * c.dtype.size())))
        })
        .collect();
    let view = |c: &Case, b: &Option<Buffer<'_>>| {
        b.as_ref().map(|b| crate::View::at(b.address() + (skip * c.dtype.size()) as u64, c.raw.len()))
    };
    let jobs: Vec<(Encode<'_>, Vec<u8>)> = cases
        .iter()
        .zip(&there)
        .map(|(c, [raw, base, grandparent])| {
            let job = Encode {
                dtype: c.dtype,
                raw: view(c, raw).unwrap(),
                base: view(c, base),
                grandparent: view(c, grandparent),
            };
            (job, engine_internals::sampled(c.dtype, &c.raw))
        })
        .collect();
    let got = encode(session, &jobs).unwrap().into_iter().map(|e| e.map(|e| (e.scheme, e.bytes)));
    let got: Vec<_> = got.collect();
    let mut bodies = Vec::new();
    for ((c, got), (job, _)) in cases.iter().zip(&got).zip(&jobs) {
        let want = c.expected();
        match got {
            Some((_, bytes)) if bytes.len() > c.raw.len() => assert!(want.is_none()),
            _ => assert!(*got == want, "{} x {:?}: {:?}", c.raw.len(), c.dtype, want.map(|w| w.0)),
        }
        if let Some((scheme, bytes)) = got {
            bodies.push((c, *job, *scheme, &bytes[1..], put(session, &vec![7; c.raw.len()], skip * c.dtype.size())));
        }
    }
    let jobs: Vec<Decode<'_>> = bodies
        .iter()
        .map(|(c, job, scheme, body, out)| Decode {
            dtype: c.dtype,
            scheme: *scheme,
            body,
            base: job.base,
            grandparent: job.grandparent,
            out: out.view().part(skip * c.dtype.size()..skip * c.dtype.size() + c.raw.len()),
        })
        .collect();
    decode(session, &jobs).unwrap();
    for (job, (c, ..)) in jobs.iter().zip(&bodies) {
        assert!(session.download(job.out).unwrap() == c.raw, "{} x {:?}", c.raw.len(), c.dtype);
    }
    got.into_iter().map(|g| g.map(|g| g.0)).collect()
}

/// A version, its parent and its grandparent, of these numbers of bases.
fn family(dtype: Dtype, n: usize, bins: i32, protect: usize, bases: u64) -> Case {
    let make = |steps| quantised(dtype, n, bins, steps, protect);
    Case { dtype, raw: make(3), base: (bases > 0).then(|| make(2)), grandparent: (bases > 1).then(|| make(1)) }
}

#[test]
fn the_bytes_are_the_processors_for_every_dtype_and_size() {
    let session = session();
    for n in SIZES {
        for bases in 0..3 {
            let large = n > 5000;
            let wanted =
                |d: &Dtype| !large || matches!((d, bases), (Dtype::F32, 1) | (Dtype::BF16, 2) | (Dtype::F16, 0));
            let cases: Vec<Case> = dtypes()
                .filter(wanted)
                .map(|d| family(d, n, 8 + 16 * bases as i32, [0, 150, 90][bases as usize], bases))
                .collect();
            let found = check(&session, &cases, n % 2);
            if large {
                assert!(found.iter().all(Option::is_some), "{n} {bases}");
            }
        }
    }
}

#[test]
fn a_batch_of_unlike_segments_is_each_as_if_alone() {
    let session = session();
    let mut cases = Vec::new();
    for (k, n) in [5000, 64, 20_000, 4097].into_iter().enumerate() {
        for bases in 0..3 {
            // One bin; few; what fits shared counters in part; more values than raw contexts have steps.
            for bins in [1, 6, 40, 150, 250] {
                cases.push(family(
                    [Dtype::F32, Dtype::BF16, Dtype::F64, Dtype::I16][k],
                    n,
                    bins,
                    [0, 70][k % 2],
                    bases,
                ));
            }
        }
    }
    // No palette: noise, and bytes.
    let mut noise = Noise(3);
    let bytes: Vec<u8> = (0..8000).map(|_| noise.next() as u8).collect();
    for dtype in [Dtype::F32, Dtype::U8] {
        cases.push(Case { dtype, raw: bytes.clone(), base: None, grandparent: None });
    }
    // All equal, alone and to the bases; bases of which nothing follows.
    let same = quantised(Dtype::F32, 3000, 12, 1, 0);
    let constant = vec![0x3f; 12_000];
    for raw in [same.clone(), constant] {
        for base in [raw.clone(), bytes.iter().cycle().take(12_000).copied().collect()] {
            for grandparent in [None, Some(base.clone()), Some(same.clone())] {
                cases.push(Case { dtype: Dtype::F32, raw: raw.clone(), base: Some(base.clone()), grandparent });
            }
        }
    }
    let found = check(&session, &cases, 0);
    for scheme in [Scheme::Palette, Scheme::PaletteDelta, Scheme::PaletteDelta2] {
        assert!(found.contains(&Some(scheme)), "{scheme:?}");
    }
    assert!(found.contains(&None));
    assert_eq!(check(&session, &cases[..30], 1), found[..30]);
}

#[test]
fn bit_patterns_of_every_kind_have_their_places() {
    let session = session();
    let odd: [u32; 14] = [
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffff_ffff,
        0x7fff_ffff,
        0x7f7f_ffff,
        0x0080_0000,
        0x807f_ffff,
        0x3f80_0000,
        0xbf80_0001,
    ];
    let mut cases = Vec::new();
    for dtype in dtypes().filter(|d| d.size() < 16) {
        for kinds in [1, 2, 5, 14] {
            let mut noise = Noise(dtype.size() as u64 * 100 + kinds);
            let mut make = |rare: u64| -> Vec<u8> {
                let one = |_| {
                    let v = odd[(noise.next() >> 20) as usize % kinds as usize];
                    let wide = u64::from(v) << 32 | u64::from(v & 0xff);
                    let v = match dtype.size() {
                        2 => u64::from(v >> 16),
                        4 => v.into(),
                        _ => wide,
                    };
                    let other = noise.next();
                    if rare > 0 && other.is_multiple_of(rare) { noise.next() } else { v }
                };
                let numbers: Vec<u64> = (0..4000).map(one).collect();
                numbers.iter().flat_map(|v| v.to_le_bytes()[..dtype.size()].to_vec()).collect()
            };
            let (raw, base, grandparent) = (make(50), make(3), make(20));
            cases.push(Case { dtype, raw, base: Some(base), grandparent: Some(grandparent) });
        }
    }
    let alone = cases.iter().map(|c| Case { base: None, ..c.clone() });
    let one = cases.iter().map(|c| Case { grandparent: None, ..c.clone() });
    let all: Vec<Case> = cases.iter().cloned().chain(alone).chain(one).collect();
    check(&session, &all, 0);
}
