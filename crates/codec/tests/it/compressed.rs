//! Tensors in encoded form: what comes out is what went in, whole and in parts, and copies are independent.

use mdl_codec::{
    Bases, CodecError, Coding, CompressedTensor, CpuEngine, Dtype, Engine, SEGMENT_BYTES, alone,
    quant::{
        Values,
        moments::{Bits, Moment},
        neuzip, uniform,
    },
};

/// Numbers around 0, small ones more often.
fn bell(n: usize, seed: u64) -> impl Iterator<Item = f32> {
    (0..n as u64).map(move |i| (0..4).map(|k| uniform(seed, 4 * i + k) - 0.5).sum::<f64>() as f32)
}

fn bf16(n: usize, seed: u64) -> Vec<u8> {
    bell(n, seed).flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

const LOSSY: Coding = Coding::Lossy { keep: 3, block: 512 };

#[test]
fn elements_come_back_whole_and_in_ranges() {
    let engine = CpuEngine::new();
    // More than a segment, and neither whole segments nor whole blocks.
    let n = SEGMENT_BYTES / 2 + 70_001;
    let raw = bf16(n, 1);
    for coding in [Coding::Lossless, LOSSY] {
        let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[n], coding).unwrap();
        tensor.encode(&engine, &raw).unwrap();
        let mut all = vec![1; raw.len()];
        tensor.decode(&engine, &mut all).unwrap();
        if coding == Coding::Lossless {
            assert_eq!(all, raw);
            assert!(tensor.encoded_len() * 10 < raw.len() * 7, "{}", tensor.encoded_len());
        } else {
            assert!(tensor.encoded_len() * 2 < raw.len());
        }
        for range in [0..n, 0..1, 17..300_000, neuzip::CHUNK..2 * neuzip::CHUNK, n - 5..n, 4_194_300..4_194_310, 9..9] {
            let mut part = vec![1; range.len() * 2];
            tensor.decode_range(&engine, range.clone(), &mut part).unwrap();
            assert_eq!(part, all[range.start * 2..range.end * 2], "{range:?}");
        }
        assert!(tensor.decode_range(&engine, 1..n + 1, &mut vec![0; n * 2]).is_err());
        assert!(tensor.decode(&engine, &mut all[2..]).is_err() && tensor.encode(&engine, &raw[2..]).is_err());
    }
}

#[test]
fn a_thread_alone_gives_the_same_bytes_as_a_pool() {
    let engine = CpuEngine::new();
    let n = SEGMENT_BYTES / 2 + 70_001;
    let moment = |kind, bits| Coding::Moment { kind, bits };
    for coding in [Coding::Lossless, LOSSY, moment(Moment::First, Bits::Four), moment(Moment::Momentum, Bits::Eight)] {
        let raw = bf16(n, 3);
        let mut shared = CompressedTensor::zeros(&engine, Dtype::BF16, &[n], coding).unwrap();
        let mut single = alone(|| CompressedTensor::zeros(&engine, Dtype::BF16, &[n], coding)).unwrap();
        shared.encode(&engine, &raw).unwrap();
        alone(|| single.encode(&engine, &raw)).unwrap();
        assert_eq!(shared.segments(), single.segments());
        assert_eq!(shared.encoded_len(), single.encoded_len());
        let (mut a, mut b) = (vec![1; raw.len()], vec![2; raw.len()]);
        shared.decode(&engine, &mut a).unwrap();
        alone(|| shared.decode(&engine, &mut b)).unwrap();
        assert!(a == b, "{coding:?}");
        let mut part = vec![3; 2 * (n - 30)];
        alone(|| shared.decode_range(&engine, 17..n - 13, &mut part)).unwrap();
        assert!(part == a[2 * 17..2 * (n - 13)], "{coding:?}");
        assert!(alone(|| shared.decode(&engine, &mut b[2..])).is_err());
    }
}

#[test]
fn smaller_blocks_of_short_tensors_decode_the_same_and_cost_little() {
    let (plain, fine) = (CpuEngine::new(), CpuEngine::new().fine());
    for n in [1, 1000, 65_536, 70_001, 262_144, 600_000, 1 << 20] {
        let raw = bf16(n, 4);
        for coding in [Coding::Lossless, LOSSY] {
            let mut a = CompressedTensor::zeros(&plain, Dtype::BF16, &[n], coding).unwrap();
            let mut b = CompressedTensor::zeros(&fine, Dtype::BF16, &[n], coding).unwrap();
            a.encode(&plain, &raw).unwrap();
            b.encode(&fine, &raw).unwrap();
            let most = a.encoded_len() + 3 * 140 * n.div_ceil(neuzip::CHUNK);
            assert!(b.encoded_len() <= most, "{n}: {} {}", a.encoded_len(), b.encoded_len());
            if coding == Coding::Lossless {
                assert_eq!(a.segments() == b.segments(), n <= 65_536 || n == 1 << 20, "{n}: cut finer");
            }
            let (mut x, mut y) = (vec![0; raw.len()], vec![1; raw.len()]);
            a.decode(&fine, &mut x).unwrap();
            b.decode(&plain, &mut y).unwrap();
            assert!(x == y, "{n}");
        }
    }
}

#[test]
fn segments_are_those_that_a_repository_stores() {
    let engine = CpuEngine::new();
    let n = SEGMENT_BYTES / 2 + 1000;
    let raw = bf16(n, 2);
    let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[n], Coding::Lossless).unwrap();
    tensor.encode(&engine, &raw).unwrap();
    let stored: Vec<Vec<u8>> = raw
        .chunks(SEGMENT_BYTES)
        .map(|part| engine.encode(Dtype::BF16, part, Bases::NONE, None).unwrap().bytes)
        .collect();
    let own: Vec<Vec<u8>> = tensor.segments().unwrap().iter().map(|s| s.to_vec()).collect();
    assert_eq!(own, stored);
    let taken = CompressedTensor::from_segments(Dtype::BF16, &[n], stored.clone()).unwrap();
    let mut out = vec![0; raw.len()];
    taken.decode(&engine, &mut out).unwrap();
    assert_eq!(out, raw);
    assert!(CompressedTensor::from_segments(Dtype::BF16, &[9], stored).is_err());
    let delta = engine.encode(Dtype::BF16, &raw[..4000], raw[2..4002].into(), None).unwrap();
    if delta.scheme.needs_base() {
        let found = CompressedTensor::from_segments(Dtype::BF16, &[2000], vec![delta.bytes]);
        assert_eq!(found.err(), Some(CodecError::MissingBase));
    }
}

#[test]
fn copies_change_by_themselves() {
    let engine = CpuEngine::new();
    let (raw, other) = (bf16(5000, 3), bf16(5000, 4));
    let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[50, 100], Coding::Lossless).unwrap();
    let mut out = vec![9; raw.len()];
    tensor.decode(&engine, &mut out).unwrap();
    assert!(out.iter().all(|&b| b == 0));
    tensor.encode(&engine, &raw).unwrap();
    let mut copy = tensor.clone();
    copy.encode(&engine, &other).unwrap();
    tensor.decode(&engine, &mut out).unwrap();
    assert_eq!(out, raw);
    copy.decode(&engine, &mut out).unwrap();
    assert_eq!(out, other);
}

#[test]
fn lossy_tensors_hold_infinities_and_quantising_again_changes_little() {
    let engine = CpuEngine::new();
    let mut raw = bf16(neuzip::CHUNK + 2000, 5);
    raw[0..2].copy_from_slice(&0x7F80u16.to_le_bytes());
    let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[raw.len() / 2], LOSSY).unwrap();
    tensor.encode(&engine, &raw).unwrap();
    let mut out = vec![0; raw.len()];
    tensor.decode(&engine, &mut out).unwrap();
    // The chunk with an infinity is exact, the other one is not.
    assert_eq!(out[..2 * neuzip::CHUNK], raw[..2 * neuzip::CHUNK]);
    assert_ne!(out[2 * neuzip::CHUNK..], raw[2 * neuzip::CHUNK..]);
    assert!(tensor.segments().is_none());
}

#[test]
fn moments_are_kept_on_levels() {
    let engine = CpuEngine::new();
    let raw: Vec<u8> = bell(64 * 128, 6).flat_map(|x| (x * x).to_le_bytes()).collect();
    let shape = [64, 128];
    for (bits, most) in [(Bits::Four, 0.6), (Bits::Eight, 1.1)] {
        let coding = Coding::Moment { kind: Moment::Second, bits };
        let mut tensor = CompressedTensor::zeros(&engine, Dtype::F32, &shape, coding).unwrap();
        tensor.encode(&engine, &raw).unwrap();
        let mut out = vec![0; raw.len()];
        tensor.decode(&engine, &mut out).unwrap();
        let values = Values::new(Dtype::F32, &raw).unwrap();
        let expected = mdl_codec::quant::moments::quantise(Moment::Second, bits, values, &shape).unwrap().unwrap();
        assert_eq!(out, expected);
        assert!(tensor.encoded_len() as f64 / 8192.0 <= most, "{}", tensor.encoded_len());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let engine = CpuEngine::new();
    let huge = CompressedTensor::zeros(&engine, Dtype::F64, &[usize::MAX, 2], Coding::Lossless);
    assert!(huge.is_err());
    assert!(CompressedTensor::zeros(&engine, Dtype::I32, &[4], LOSSY).is_err());
    let two = Coding::Lossy { keep: 2, block: 512 };
    assert!(CompressedTensor::zeros(&engine, Dtype::BF16, &[4], two).is_err());
    let empty = CompressedTensor::zeros(&engine, Dtype::BF16, &[0, 4], LOSSY).unwrap();
    assert!(empty.is_empty() && empty.decode(&engine, &mut []).is_ok());
}
