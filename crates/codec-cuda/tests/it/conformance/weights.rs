//! Weights that stay compressed: decoded, multiplied in the stated order and encoded in place, on every device.

use crate::{
    conformance::{Tested, engines, families, short_enough},
    xorshift::Xorshift,
};
use mdl_codec::{
    Bases, CpuEngine, Device, Dtype, EncodedTensor, Engine, Held, SEGMENT_BYTES,
    quant::{
        Values,
        numbers::{from_bf16, put_all},
    },
};
use mdl_codec_cuda::{CudaEngine, Part, Product, Queue, Weights};

/// The devices among the engines.
fn devices() -> Vec<CudaEngine> {
    let device = |tested| match tested {
        Tested::Device(engine) => Some(engine),
        Tested::Plain(_) => None,
    };
    engines().into_iter().filter_map(device).collect()
}

fn queue() -> Queue {
    // SAFETY: the default stream, which is always there; tests wait for it before memory goes.
    unsafe { Queue::new(0) }
}

/// Bytes in the device's memory.
fn there(engine: &CudaEngine, bytes: &[u8]) -> Box<dyn Held> {
    let stored: Vec<Vec<u8>> = bytes.chunks(SEGMENT_BYTES).map(|b| [&[0], b].concat()).collect();
    let (dtype, len, segments) = (Dtype::U8, bytes.len(), stored.as_slice());
    Device::decode(engine, EncodedTensor { dtype, len, segments, base: None, grandparent: None }).unwrap()
}

fn read(engine: &CudaEngine, held: &dyn Held) -> Vec<u8> {
    engine.wait(queue()).unwrap();
    let mut out = vec![0; held.span().len()];
    Device::read(engine, held.span(), &mut out).unwrap();
    out
}

fn decoded(engine: &CudaEngine, weights: &Weights) -> Vec<u8> {
    let out = there(engine, &vec![0xee; weights.len()]);
    weights.decode(queue(), out.span()).unwrap();
    read(engine, out.as_ref())
}

fn placed(engine: &CudaEngine, dtype: Dtype, raw: &[u8]) -> Weights {
    let cpu = CpuEngine::new();
    let encode = |raw| cpu.encode(dtype, raw, Bases::NONE, None).unwrap().bytes;
    let parts: Vec<Vec<u8>> = raw.chunks(SEGMENT_BYTES).map(encode).collect();
    let list: Vec<Part<'_>> = parts.iter().map(|p| Part::Segment(p)).collect();
    engine.weights(dtype, raw.len() / dtype.size(), SEGMENT_BYTES / dtype.size(), &list).unwrap()
}

#[test]
fn compressed_weights_decode_and_take_new_numbers() {
    for engine in devices() {
        for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F64, Dtype::I32] {
            for n in [1, 33, 8193, 70_001].into_iter().filter(|n| short_enough(*n)) {
                let all = families(dtype, n, n as u64 + 1);
                let mut weights = placed(&engine, dtype, &all[0].1[0]);
                assert!(decoded(&engine, &weights) == all[0].1[0], "{dtype} {n}");
                for (kind, [raw, ..]) in &all {
                    let content = there(&engine, raw);
                    weights.encode(&engine, content.span()).unwrap();
                    assert!(decoded(&engine, &weights) == *raw, "{dtype} {n} {kind}");
                    let reference = |raw| CpuEngine::new().encode(dtype, raw, Bases::NONE, None).unwrap().bytes;
                    let segments = weights.segments(&engine).unwrap();
                    let same = |s: Vec<Vec<u8>>| s.iter().map(Vec::as_slice).eq([reference(raw).as_slice()]);
                    assert!(segments.is_none_or(same), "{dtype} {n} {kind}");
                }
            }
        }
        assert_eq!(engine.failures(), 0);
    }
}

/// A product in the order that `matvec.cu` states, of weights of one block.
fn expected(w: &[f32], x: &[f32], cols: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for x in x.chunks(cols) {
        for (r, row) in w.chunks(cols).enumerate() {
            let (mut pieces, mut lanes) = (Vec::new(), [0f32; 32]);
            let close = |lanes: &mut [f32; 32], pieces: &mut Vec<f32>| {
                for d in [16, 8, 4, 2, 1] {
                    *lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ d]);
                }
                pieces.push(lanes[0]);
                *lanes = [0.0; 32];
            };
            for (c, (&w, &x)) in row.iter().zip(x).enumerate() {
                let place = r * cols + c;
                if place.is_multiple_of(8192) && c > 0 {
                    close(&mut lanes, &mut pieces);
                }
                lanes[place % 32] = w.mul_add(x, lanes[place % 32]);
            }
            close(&mut lanes, &mut pieces);
            out.push(pieces.into_iter().reduce(|a, b| a + b).unwrap());
        }
    }
    out
}

#[test]
fn compressed_weights_are_multiplied_in_the_stated_order() {
    for engine in devices() {
        let mut noise = Xorshift(7);
        for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            for (rows, cols) in [(3, 5), (130, 96), (7, 333), (2, 9000)] {
                let mut make = |n: usize| {
                    let values: Vec<f32> =
                        (0..n).map(|_| from_bf16((noise.next() % 512 + 0x3d00) as u16) - 0.05).collect();
                    let mut raw = vec![0; n * dtype.size()];
                    put_all(dtype, &values, &mut raw);
                    let mut wide = Vec::new();
                    Values::new(dtype, &raw).unwrap().widen(&mut wide);
                    (raw, wide)
                };
                let (raw, w) = make(rows * cols);
                let weights = placed(&engine, dtype, &raw);
                for batch in [1, 3, 8, 13, 32] {
                    let (x, wide) = make(batch * cols);
                    let (x, y) = (there(&engine, &x), there(&engine, &vec![0xee; batch * rows * dtype.size()]));
                    let scratch = there(&engine, &vec![0xee; weights.scratch(cols, batch).unwrap()]);
                    let product = Product { cols, batch, x: x.span(), y: y.span(), scratch: scratch.span() };
                    weights.multiply(queue(), &product).unwrap();
                    let mut want = vec![0; y.span().len()];
                    put_all(dtype, &expected(&w, &wide, cols), &mut want);
                    assert!(read(&engine, y.as_ref()) == want, "{dtype} {rows} x {cols}, {batch} on {}", engine.name());
                }
            }
        }
    }
}
