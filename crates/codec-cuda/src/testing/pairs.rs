//! Test data: segments with their bases, for the schemes that code differences.

use crate::{
    Decode, Encode, Result, Session,
    testing::{Noise, SIZES, session},
};
use mdl_codec::{Bases, CpuEngine, Dtype, Scheme};

/// What a segment is to its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Weights after a step: near their base.
    Step,
    /// Weights of which a few were changed.
    Few,
    /// The base.
    Same,
    /// One number everywhere, another one in the base.
    Constant,
    /// Any bits against any bits.
    Unlike,
    /// NaN, infinities, zeros of both signs, subnormals and the ends of the integers, against each other.
    Edges,
}

const KINDS: [Kind; 6] = [Kind::Step, Kind::Few, Kind::Same, Kind::Constant, Kind::Unlike, Kind::Edges];

/// The bits of a weight as the type has them; integers count it in thousandths.
fn bits(dtype: Dtype, w: f32) -> u128 {
    let wide = w.to_bits();
    match dtype {
        Dtype::F64 => f64::from(w).to_bits().into(),
        Dtype::F32 => wide.into(),
        Dtype::BF16 => u128::from(wide >> 16),
        // Near enough: an exponent that varies, under a sign.
        Dtype::F16 => u128::from(wide >> 31 << 15 | (wide << 1 >> 14).wrapping_sub(112 << 10) & 0x7fff),
        Dtype::F8E4M3 | Dtype::F8E5M2 => u128::from(wide >> 31 << 7 | wide >> 20 & 0x7f),
        Dtype::C64 => u128::from(wide) << 32 | u128::from((-w).to_bits()),
        Dtype::C128 => u128::from(f64::from(w).to_bits()) << 64 | u128::from(f64::from(-w).to_bits()),
        _ => ((w * 1000.0) as i64) as u128,
    }
}

fn edge(dtype: Dtype, i: u64) -> u128 {
    let size = dtype.size().min(8) as u32;
    let (top, all) = (1u64 << (8 * size - 1), u64::MAX >> (64 - 8 * size));
    let exponent = match dtype {
        Dtype::F64 => 0x7ff << 52,
        Dtype::F32 => 0xff << 23,
        Dtype::F16 => 0x1f << 10,
        Dtype::BF16 => 0xff << 7,
        _ => 0x78,
    };
    let list =
        [0, 1, top, top | 1, all, top - 1, exponent, exponent | top, exponent | 1, exponent - 1, all - 1, top >> 1];
    let one = list[i as usize % list.len()];
    u128::from(one) | u128::from(list[(i / 12) as usize % list.len()]) << 64
}

/// A segment of `n` elements and its base.
pub(crate) fn pair(dtype: Dtype, kind: Kind, n: usize) -> (Vec<u8>, Vec<u8>) {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15 ^ n as u64 ^ (kind as u64) << 40);
    let (mut raw, mut base) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let w = noise.weight(0.1);
        let any = noise.next();
        let (new, old) = match kind {
            Kind::Step => (bits(dtype, w + noise.weight(0.002)), bits(dtype, w)),
            Kind::Few if any.is_multiple_of(50) => (bits(dtype, w + noise.weight(0.02)), bits(dtype, w)),
            Kind::Few | Kind::Same => (bits(dtype, w), bits(dtype, w)),
            Kind::Constant => (bits(dtype, 0.75), bits(dtype, -0.5)),
            Kind::Unlike => (u128::from(any) << 64 | u128::from(noise.next()), u128::from(noise.next()) << 7),
            Kind::Edges => (edge(dtype, any % 144), edge(dtype, (any >> 32) % 144)),
        };
        raw.extend_from_slice(&new.to_le_bytes()[..dtype.size()]);
        base.extend_from_slice(&old.to_le_bytes()[..dtype.size()]);
    }
    (raw, base)
}

/// A dtype of every way a kernel goes.
const DTYPES: [Dtype; 6] = [Dtype::BF16, Dtype::F32, Dtype::F64, Dtype::F8E4M3, Dtype::U8, Dtype::C64];

/// The processor's bytes of a scheme, if they are no longer than the segment: `encode_as` keeps others to itself.
pub(crate) fn expected(scheme: Scheme, dtype: Dtype, raw: &[u8], base: &[u8]) -> Option<Vec<u8>> {
    let done = CpuEngine::new().encode_as(scheme, dtype, raw, Bases::from(Some(base)), None).unwrap();
    (done.scheme == scheme).then_some(done.bytes)
}

/// Segments into bytes.
type Encoder = fn(&Session, &[Encode<'_>]) -> Result<Vec<Vec<u8>>>;

/// What a module's `encode` and `decode` are, to these tests.
pub(crate) struct Room {
    pub scheme: Scheme,
    pub encode: Encoder,
    pub decode: fn(&Session, &[Decode<'_>]) -> Result<()>,
}

impl Room {
    /// `check` for every dtype and kind of segment.
    pub(crate) fn check_kinds(&self) {
        let session = session();
        let lengths = [1, 2, 3, 33, 127, 300, 1000, 2047, 2048, 2049, 4099, 5000, 6144, 700, 999, 1024, 31, 32];
        for kind in KINDS {
            self.check_pairs(&session, Dtype::ALL.into_iter().zip(lengths).map(|(dtype, n)| (dtype, kind, n)));
        }
    }

    /// `check` for every size, odd ones of one kind and even ones of the other.
    pub(crate) fn check_sizes(&self, odd: Kind, even: Kind) {
        let session = session();
        for dtype in DTYPES {
            let sizes = SIZES.into_iter();
            let sizes = sizes.filter(|n| n * dtype.size() <= 1 << 19 || dtype == Dtype::F32 && *n > 1 << 18);
            self.check_pairs(&session, sizes.map(|n| (dtype, if n % 2 == 1 { odd } else { even }, n)));
        }
    }

    fn check_pairs(&self, session: &Session, of: impl Iterator<Item = (Dtype, Kind, usize)>) {
        let pairs = of.map(|(dtype, kind, n)| (dtype, pair(dtype, kind, n)));
        let batch: Vec<_> = pairs.map(|(dtype, (raw, base))| (dtype, raw, base)).collect();
        self.check(session, &batch);
    }

    /// Encodes a batch, compares with the processor's bytes, and decodes it again.
    fn check(&self, session: &Session, batch: &[(Dtype, Vec<u8>, Vec<u8>)]) {
        // Once where vectors may be read, once a number further on, where most may not.
        for shift in [0, 1] {
            let at = |dtype: Dtype, bytes: &[u8]| [&vec![7; shift * dtype.size()], bytes].concat();
            let skip = |dtype: Dtype, len: usize| shift * dtype.size()..shift * dtype.size() + len;
            let mut buffers = Vec::new();
            for (dtype, raw, base) in batch {
                let raw = session.upload(&at(*dtype, raw)).unwrap();
                buffers.push([raw, session.upload(&at(*dtype, base)).unwrap()]);
            }
            let jobs: Vec<Encode<'_>> = batch
                .iter()
                .zip(&buffers)
                .map(|((dtype, raw, _), [r, b])| Encode {
                    dtype: *dtype,
                    raw: r.view().part(skip(*dtype, raw.len())),
                    base: Some(b.view().part(skip(*dtype, raw.len()))),
                    grandparent: None,
                })
                .collect();
            let done = (self.encode)(session, &jobs).unwrap();
            for ((dtype, raw, base), bytes) in batch.iter().zip(&done) {
                let label = format!("{dtype} {} {shift}", raw.len());
                match expected(self.scheme, *dtype, raw, base) {
                    Some(bytes_there) => assert!(*bytes == bytes_there, "{label}"),
                    None => assert!(bytes.len() > raw.len(), "{label}"),
                }
                // Also where the processor would store the segment, its decoder has to read it.
                let mut out = vec![0; raw.len()];
                assert_eq!(self.on_processor(*dtype, bytes, base, &mut out), Ok(()), "{label}");
                assert!(out == *raw, "{label}");
            }
            let outs: Vec<_> =
                batch.iter().map(|(d, raw, _)| session.buffer(skip(*d, raw.len()).end).unwrap()).collect();
            let jobs: Vec<Decode<'_>> = (0..batch.len())
                .map(|i| Decode {
                    dtype: batch[i].0,
                    scheme: self.scheme,
                    body: &done[i][1..],
                    base: jobs[i].base,
                    grandparent: None,
                    out: outs[i].view().part(skip(batch[i].0, batch[i].1.len())),
                })
                .collect();
            (self.decode)(session, &jobs).unwrap();
            for (job, (dtype, raw, _)) in jobs.iter().zip(batch) {
                assert!(session.download(job.out).unwrap() == *raw, "{dtype} {} {shift}", raw.len());
            }
        }
    }

    fn on_processor(
        &self,
        dtype: Dtype,
        bytes: &[u8],
        base: &[u8],
        out: &mut [u8],
    ) -> std::result::Result<(), mdl_codec::CodecError> {
        mdl_codec::Engine::decode(&CpuEngine::new(), dtype, bytes, Bases::from(Some(base)), out)
    }

    /// Decodes damaged bytes here and there: refused by both, or the same. Says which.
    pub(crate) fn same_verdict(&self, session: &Session, dtype: Dtype, bytes: &[u8], base: &[u8]) -> bool {
        let mut out = vec![0; base.len()];
        let there = self.on_processor(dtype, bytes, base, &mut out);
        let (b, o) = (session.upload(base).unwrap(), session.buffer(base.len()).unwrap());
        let job = Decode {
            dtype,
            scheme: self.scheme,
            body: &bytes[1..],
            base: Some(b.view()),
            grandparent: None,
            out: o.view(),
        };
        let here = (self.decode)(session, &[job]);
        assert_eq!(here.is_ok(), there.is_ok(), "{here:?} {there:?}");
        if there.is_ok() {
            assert!(session.download(o.view()).unwrap() == out);
        }
        there.is_ok()
    }

    /// Every truncation and flips of bits of a segment's encoding.
    pub(crate) fn damage(&self, session: &Session, dtype: Dtype, bytes: &[u8], base: &[u8]) {
        for len in 1..bytes.len() {
            self.same_verdict(session, dtype, &bytes[..len], base);
        }
        // Every bit of the headers, some of the rest.
        let (mut bit, mut read) = (8, 0);
        while bit < 8 * bytes.len() {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            read += usize::from(self.same_verdict(session, dtype, &bad, base));
            bit += if bit < 800 { 1 } else { 11 };
        }
        // Raw bits may be anything.
        assert!(read > 0);
        let longer = [bytes, &[0]].concat();
        self.same_verdict(session, dtype, &longer, base);
    }
}
