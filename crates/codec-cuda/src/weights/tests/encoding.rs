//! Encoding in place: the processor's bytes, and numbers that come back and are multiplied as before.

use super::{There, decoded, lossy, numbers, one, product, queue};
use crate::{
    CudaEngine,
    schemes::planes::tests::segments,
    testing::Noise,
    weights::{Part, Weights, lossy::PART},
};
use mdl_codec::{Bases, CodecError, Dtype, Engine, SEGMENT_BYTES, Scheme};

/// Weights of these numbers.
fn placed(engine: &CudaEngine, dtype: Dtype, raw: &[u8]) -> (Weights, Vec<Vec<u8>>) {
    let parts = encoded(engine, dtype, raw);
    let list: Vec<Part<'_>> = parts.iter().map(|p| Part::Segment(p)).collect();
    let step = SEGMENT_BYTES / dtype.size();
    (engine.weights(dtype, raw.len() / dtype.size(), step, &list).unwrap(), parts)
}

/// The segments that the processor makes.
fn encoded(engine: &CudaEngine, dtype: Dtype, raw: &[u8]) -> Vec<Vec<u8>> {
    raw.chunks(SEGMENT_BYTES).map(|r| engine.cpu.encode(dtype, r, Bases::NONE, None).unwrap().bytes).collect()
}

#[test]
fn new_numbers_are_encoded_as_the_processor_does() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(1);
    let (mut kept, mut passed) = (0, 0);
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        for n in [1, 33, 5000, 8192, 8193, 40_000] {
            let (mut weights, first) = placed(&engine, dtype, &numbers(dtype, n, 0.05, &mut noise));
            assert!(weights.segments(&engine).unwrap().is_none_or(|s| s == first));
            let usual = numbers(dtype, n, 0.02, &mut noise);
            for raw in segments(dtype, n, noise.next()).into_iter().chain([usual.clone()]) {
                let content = There::new(&engine, &raw, (n % 2) * dtype.size());
                weights.encode(&engine, content.span()).unwrap();
                assert!(decoded(&engine, &weights, 0) == raw, "{dtype} {n}");
                match weights.segments(&engine).unwrap() {
                    Some(segments) => {
                        assert!(segments == encoded(&engine, dtype, &raw), "{dtype} {n}");
                        kept += 1;
                    }
                    None => {
                        assert!(n < 40_000 || raw != usual, "{dtype}: weights are coded as planes");
                        passed += 1;
                    }
                }
            }
        }
    }
    assert!(kept > 3 && passed > 0, "{kept} {passed}");
}

#[test]
fn segments_blocks_and_exceptions_are_encoded_in_place_and_multiplied() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(2);
    let (n, cols) = (SEGMENT_BYTES / 2 + 300_000, 1000);
    let n = n / cols * cols;
    let (mut weights, _) = placed(&engine, Dtype::BF16, &numbers(Dtype::BF16, n, 0.05, &mut noise));
    let mut raw = numbers(Dtype::BF16, n, 0.02, &mut noise);
    // Numbers far outside of the window.
    (0..n).step_by(7001).for_each(|i| raw[2 * i..2 * i + 2].copy_from_slice(&0x7e12u16.to_le_bytes()));
    let content = There::new(&engine, &raw, 0);
    let before = engine.driver.traffic().up() + engine.driver.traffic().down();
    weights.encode(&engine, content.span()).unwrap();
    let crossed = engine.driver.traffic().up() + engine.driver.traffic().down() - before;
    assert!(crossed < raw.len() as u64 / 30, "{crossed} bytes crossed the bus");
    let room = weights.resident();
    let segments = weights.segments(&engine).unwrap().unwrap();
    assert!(segments == encoded(&engine, Dtype::BF16, &raw));
    assert!(segments.iter().all(|s| s[0] == Scheme::Planes as u8));
    assert!(decoded(&engine, &weights, 0) == raw);
    let x = numbers(Dtype::BF16, cols, 1.0, &mut noise);
    let (fresh, _) = placed(&engine, Dtype::BF16, &raw);
    let y = product(&engine, &weights, cols, 1, &x).unwrap();
    assert_eq!(y, product(&engine, &fresh, cols, 1, &x).unwrap());
    // The next encoding finds room where this one was.
    weights.encode(&engine, content.span()).unwrap();
    assert_eq!(weights.resident(), room);
    assert!(room * 60 < segments.iter().map(Vec::len).sum::<usize>() * 62, "{room}");
}

#[test]
fn tensors_of_the_device_are_compressed_there() {
    let engine = crate::shim(1 << 28);
    for dtype in [Dtype::BF16, Dtype::F32, Dtype::F64, Dtype::I8] {
        for n in [0, 1, 3000] {
            let raw = segments(dtype, n, 5).pop().unwrap();
            let content = There::new(&engine, &raw, 0);
            let weights = engine.compress(dtype, content.span()).unwrap();
            assert!(decoded(&engine, &weights, 0) == raw, "{dtype} {n}");
        }
    }
    let odd = There::new(&engine, &[0; 5], 0);
    assert!(matches!(engine.compress(Dtype::BF16, odd.span()), Err(CodecError::BadInput(_))));
}

#[test]
fn a_loop_of_steps_gives_the_numbers_of_plain_weights() {
    let engine = crate::shim(1 << 28);
    let mut noise = Noise(3);
    let n = 20_000;
    let mut plain = numbers(Dtype::F32, n, 0.05, &mut noise);
    let (mut weights, _) = placed(&engine, Dtype::F32, &plain);
    for _ in 0..5 {
        let gradient: Vec<f32> = (0..n).map(|_| noise.weight(1e-3)).collect();
        let step = |raw: &mut [u8]| {
            for (w, g) in raw.as_chunks_mut::<4>().0.iter_mut().zip(&gradient) {
                *w = (f32::from_le_bytes(*w) - 0.1 * g).to_le_bytes();
            }
        };
        let out = There::new(&engine, &vec![0; 4 * n], 0);
        weights.decode(queue(), out.span()).unwrap();
        let mut there = out.read(&engine);
        step(&mut there);
        step(&mut plain);
        weights.encode(&engine, There::new(&engine, &there, 0).span()).unwrap();
    }
    assert!(decoded(&engine, &weights, 0) == plain);
}

#[test]
fn what_is_not_encoded_in_place_is_said() {
    let engine = crate::shim(1 << 26);
    let mut noise = Noise(4);
    let raw = numbers(Dtype::BF16, 1000, 0.05, &mut noise);
    let (bytes, _) = lossy(Dtype::BF16, &raw, 3, 64);
    let mut few = engine.weights(Dtype::BF16, 1000, PART, &[Part::Lossy(&bytes)]).unwrap();
    let content = There::new(&engine, &raw, 0);
    assert!(matches!(few.encode(&engine, content.span()), Err(CodecError::BadInput(_))));
    assert!(few.segments(&engine).unwrap().is_none());
    let (mut weights, _) = placed(&engine, Dtype::BF16, &raw);
    let short = There::new(&engine, &raw[2..], 0);
    assert!(matches!(weights.encode(&engine, short.span()), Err(CodecError::BadInput(_))));
    assert!(decoded(&engine, &weights, 0) == raw);
    // Types that lie as they are take new numbers, too.
    let doubles: Vec<u8> = (0..4).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let mut plain = one(&engine, Dtype::F64, 4, &[vec![0], vec![0; 32]].concat()).unwrap();
    plain.encode(&engine, There::new(&engine, &doubles, 0).span()).unwrap();
    assert!(decoded(&engine, &plain, 0) == doubles);
}
