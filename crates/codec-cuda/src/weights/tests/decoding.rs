//! Decoding: every dtype, scheme, plan and block size, and NeuZip's lossy form.

use super::{decoded, lossy, numbers, one};
use crate::{
    schemes::planes::tests::{plans, segments, small_blocks},
    testing::Noise,
    weights::{Part, lossy::PART},
};
use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, SEGMENT_BYTES, Scheme,
    engine_internals::{PlaneDecoder, Reader, Shape, reference},
    quant::neuzip::{BLOCKS, KEPT, reconstruct},
};

/// Numbers of elements at the edges of chunks and of what a warp has at a time.
const SIZES: [usize; 12] = [1, 2, 31, 33, 127, 129, 1000, 4099, 8191, 8192, 8193, 16_500];

#[test]
fn every_type_and_length_decodes_to_the_processors_bytes() {
    let engine = crate::shim(1 << 30);
    for (s, n) in SIZES.into_iter().enumerate() {
        for dtype in Dtype::ALL {
            let all = segments(dtype, n, n as u64);
            let kinds = all.len();
            let keep = |i: &usize| n < 200 || *i == (s + usize::from(dtype.code())) % kinds;
            for (i, raw) in all.into_iter().enumerate().filter(|(i, _)| keep(i)) {
                let encoded = engine.cpu.encode(dtype, &raw, Bases::NONE, None).unwrap();
                let weights = one(&engine, dtype, n, &encoded.bytes).unwrap();
                let skip = (i % 2) * dtype.size();
                assert!(decoded(&engine, &weights, skip) == raw, "{dtype} {n} {i} {:?}", encoded.scheme);
            }
        }
    }
}

#[test]
fn every_plan_decodes_whatever_codes_its_planes() {
    let engine = crate::shim(1 << 30);
    let mut met = [false; 4];
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        for n in [33, 1000, 8300] {
            for (i, raw) in segments(dtype, n, 91).into_iter().enumerate() {
                for plan in plans(dtype, &raw) {
                    let bytes = reference(plan, dtype, &raw).unwrap();
                    let reader = Reader::new(dtype, dtype.size(), &bytes[1..], n).unwrap();
                    met[match &reader.coders[0] {
                        PlaneDecoder::Raw => 0,
                        PlaneDecoder::Const(_) => 1,
                        PlaneDecoder::Rans(_) => 2,
                        PlaneDecoder::Huffman(_) => 3,
                    }] = true;
                    let weights = one(&engine, dtype, n, &bytes).unwrap();
                    assert!(decoded(&engine, &weights, 0) == raw, "{dtype} {n} {i} {plan:?}");
                }
            }
        }
    }
    assert_eq!(met, [true; 4]);
}

#[test]
fn blocks_of_every_size_and_exceptions_anywhere() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(31);
    for (dtype, k) in [(Dtype::F32, 0), (Dtype::F32, 3), (Dtype::BF16, 2), (Dtype::BF16, 0), (Dtype::F16, 4)] {
        let shape = Shape::from_dtype(dtype).unwrap();
        for (log, n) in [(7, 1000), (7, 1026), (8, 1000), (10, 3000), (14, 40_000), (23, 16_001)] {
            let bytes = small_blocks(shape, k, log, n, &mut noise);
            let mut raw = vec![0; n * dtype.size()];
            CpuEngine::new().decode(dtype, &bytes, Bases::NONE, &mut raw).unwrap();
            let weights = one(&engine, dtype, n, &bytes).unwrap();
            assert!(decoded(&engine, &weights, 0) == raw, "{dtype} {k} {log} {n}");
        }
    }
}

#[test]
fn several_segments_and_blocks_take_little_more_than_their_bytes() {
    let engine = crate::shim(1 << 30);
    let n = SEGMENT_BYTES / 2 + 300_001;
    let mut noise = Noise(5);
    let raw: Vec<u8> = (0..n)
        .flat_map(|i| {
            let spread = if i % 9000 == 0 { 1e20 } else { 0.02 };
            ((noise.weight(spread).to_bits() >> 16) as u16).to_le_bytes()
        })
        .collect();
    let encode = |raw: &[u8]| engine.cpu.encode(Dtype::BF16, raw, Bases::NONE, None).unwrap();
    let parts: Vec<_> = raw.chunks(SEGMENT_BYTES).map(encode).collect();
    assert!(parts.iter().all(|p| p.scheme == Scheme::Planes));
    let bytes: usize = parts.iter().map(|p| p.bytes.len()).sum();
    let list: Vec<Part<'_>> = parts.iter().map(|p| Part::Segment(&p.bytes)).collect();
    let weights = engine.weights(Dtype::BF16, n, SEGMENT_BYTES / 2, &list).unwrap();
    assert!(decoded(&engine, &weights, 0) == raw);
    let more = weights.resident() - bytes;
    assert!(more * 60 < bytes, "{more} bytes more than {bytes}");
}

#[test]
fn few_mantissa_bits_decode_to_the_processors_numbers() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(17);
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        for (i, n) in [1, 31, 33, 500, 8192, 20_003].into_iter().enumerate() {
            let raw = &numbers(dtype, n, 0.05, &mut noise);
            for (k, keep) in KEPT.into_iter().enumerate() {
                for block in BLOCKS.into_iter().filter(|b| n < 1000 || b % 5 == (i + k) % 5 || *b == 512) {
                    let (bytes, coded) = lossy(dtype, raw, keep, block);
                    let want = reconstruct(dtype, &coded, keep, block).unwrap();
                    let weights = engine.weights(dtype, n, PART, &[Part::Lossy(&bytes)]).unwrap();
                    assert!(decoded(&engine, &weights, 0) == want, "{dtype} {n} {keep} {block}");
                }
            }
        }
    }
}

#[test]
fn parts_of_both_forms_lie_side_by_side() {
    let engine = crate::shim(1 << 30);
    let n = 2 * PART + 777;
    let raw = &segments(Dtype::BF16, n, 3)[3];
    let (bytes, coded) = lossy(Dtype::BF16, &raw[..2 * PART], 3, 64);
    let exact = engine.cpu.encode(Dtype::BF16, &raw[2 * PART..4 * PART], Bases::NONE, None).unwrap();
    let (last, rest) = lossy(Dtype::BF16, &raw[4 * PART..], 1, 512);
    let parts = [Part::Lossy(&bytes), Part::Segment(&exact.bytes), Part::Lossy(&last)];
    let weights = engine.weights(Dtype::BF16, n, PART, &parts).unwrap();
    let want = [
        reconstruct(Dtype::BF16, &coded, 3, 64).unwrap(),
        raw[2 * PART..4 * PART].to_vec(),
        reconstruct(Dtype::BF16, &rest, 1, 512).unwrap(),
    ];
    assert!(decoded(&engine, &weights, 0) == want.concat());
}
