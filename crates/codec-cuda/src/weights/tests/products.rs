//! Products, against one on the host in the stated order of summation.

use super::{There, decoded, lossy, narrow, numbers, one, product, queue};
use crate::{
    CudaEngine,
    schemes::planes::{
        CHUNK,
        tests::{segments, small_blocks},
    },
    testing::Noise,
    weights::{Part, Product, Weights, lossy::PART},
};
use mdl_codec::{
    Bases, CodecError, Dtype, Engine, SEGMENT_BYTES, Span,
    engine_internals::{PlanesPlan, Shape, reference},
    quant::Values,
};

fn widen(dtype: Dtype, raw: &[u8]) -> Vec<f32> {
    let mut out = Vec::new();
    Values::new(dtype, raw).unwrap().widen(&mut out);
    out
}

/// The product in the order that `matvec.cu` states; blocks of `block` numbers.
fn expected(dtype: Dtype, w: &[f32], cols: usize, block: usize, x: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    for x in x.chunks(cols) {
        for (r, row) in w.chunks(cols).enumerate() {
            let (mut total, mut lanes, mut pieces) = (0f32, [0f32; 32], 0);
            let mut close = |lanes: &mut [f32; 32]| {
                for d in [16, 8, 4, 2, 1] {
                    *lanes = std::array::from_fn(|l| lanes[l] + lanes[l ^ d]);
                }
                total = if pieces == 0 { lanes[0] } else { total + lanes[0] };
                pieces += 1;
                *lanes = [0.0; 32];
            };
            for (c, (&w, &x)) in row.iter().zip(x).enumerate() {
                let place = (r * cols + c) % block;
                if place.is_multiple_of(CHUNK) && c > 0 {
                    close(&mut lanes);
                }
                lanes[place % 32] = w.mul_add(x, lanes[place % 32]);
            }
            close(&mut lanes);
            out.extend(narrow(dtype, total));
        }
    }
    out
}

fn check(engine: &CudaEngine, weights: &Weights, cols: usize, batch: usize, block: usize, noise: &mut Noise) {
    let dtype = weights.dtype();
    let x = numbers(dtype, batch * cols, 3.0, noise);
    let w = widen(dtype, &decoded(engine, weights, 0));
    let y = product(engine, weights, cols, batch, &x).unwrap();
    let want = expected(dtype, &w, cols, block, &widen(dtype, &x));
    assert!(y == want, "{dtype} {} x {cols}, {batch}", w.len() / cols);
}

const BATCHES: [usize; 9] = [1, 2, 4, 5, 8, 9, 16, 17, 32];

#[test]
fn odd_shapes_and_batches_sum_in_the_stated_order() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(1);
    let shapes =
        [(1, 1), (3, 5), (70, 1), (7, 31), (9, 32), (4, 33), (41, 100), (64, 320), (2, 9000), (3, 8192), (1, 20_000)];
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        for (i, (rows, cols)) in shapes.into_iter().enumerate() {
            let raw = &numbers(dtype, rows * cols, 0.05, &mut noise);
            let encoded = engine.cpu.encode(dtype, raw, Bases::NONE, None).unwrap();
            let weights = one(&engine, dtype, rows * cols, &encoded.bytes).unwrap();
            for batch in [1, BATCHES[i % 9], BATCHES[(i + 4) % 9]] {
                check(&engine, &weights, cols, batch, 1 << 18, &mut noise);
            }
        }
    }
}

#[test]
fn few_mantissa_bits_and_plain_numbers_are_multiplied_alike() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(2);
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        let (rows, cols) = (61, 333);
        let raw = &numbers(dtype, rows * cols, 0.05, &mut noise);
        for (keep, block) in [(0, 32), (1, 512), (3, 128)] {
            let (bytes, _) = lossy(dtype, raw, keep, block);
            let weights = engine.weights(dtype, rows * cols, PART, &[Part::Lossy(&bytes)]).unwrap();
            check(&engine, &weights, cols, 3, PART, &mut noise);
        }
        let plain = reference(PlanesPlan::BYTES, dtype, raw).unwrap();
        let stored = [vec![0], raw.clone()].concat();
        for bytes in [plain, stored] {
            let weights = one(&engine, dtype, rows * cols, &bytes).unwrap();
            check(&engine, &weights, cols, 2, 1 << 30, &mut noise);
        }
    }
}

#[test]
fn rows_go_on_over_blocks_and_segments() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(3);
    // Blocks of 256 numbers, of which a row has one and a half.
    let bytes = small_blocks(Shape::from_dtype(Dtype::BF16).unwrap(), 2, 8, 384 * 21, &mut noise);
    // Its bits are noise: NaN, infinities and sums of them among the numbers.
    let weights = one(&engine, Dtype::BF16, 384 * 21, &bytes).unwrap();
    let (w, x) = (widen(Dtype::BF16, &decoded(&engine, &weights, 0)), numbers(Dtype::BF16, 384, 3.0, &mut noise));
    let y = widen(Dtype::BF16, &product(&engine, &weights, 384, 1, &x).unwrap());
    let want = widen(Dtype::BF16, &expected(Dtype::BF16, &w, 384, 256, &widen(Dtype::BF16, &x)));
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert!(y.iter().zip(&want).all(same));
    // Two segments, and the row that lies over their border.
    let (cols, n) = (3000, SEGMENT_BYTES / 2 + 2 * 3000 + 1000);
    let n = n / cols * cols;
    let raw: Vec<u8> = numbers(Dtype::BF16, n, 3.0, &mut noise);
    let parts: Vec<_> = raw
        .chunks(SEGMENT_BYTES)
        .map(|r| engine.cpu.encode(Dtype::BF16, r, Bases::NONE, None).unwrap().bytes)
        .collect();
    let parts: Vec<Part<'_>> = parts.iter().map(|p| Part::Segment(p)).collect();
    let weights = engine.weights(Dtype::BF16, n, SEGMENT_BYTES / 2, &parts).unwrap();
    check(&engine, &weights, cols, 1, 1 << 18, &mut noise);
}

#[test]
fn products_are_the_same_every_time_and_near_the_true_ones() {
    let engine = crate::shim(1 << 30);
    let mut noise = Noise(4);
    let (rows, cols) = (37, 1000);
    let raw = &segments(Dtype::F32, rows * cols, 8)[3];
    let encoded = engine.cpu.encode(Dtype::F32, raw, Bases::NONE, None).unwrap();
    let weights = one(&engine, Dtype::F32, rows * cols, &encoded.bytes).unwrap();
    let x = numbers(Dtype::F32, cols, 3.0, &mut noise);
    let y = product(&engine, &weights, cols, 1, &x).unwrap();
    assert_eq!(y, product(&engine, &weights, cols, 1, &x).unwrap());
    let (w, x, y) = (widen(Dtype::F32, raw), widen(Dtype::F32, &x), widen(Dtype::F32, &y));
    for (row, y) in w.chunks(cols).zip(&y) {
        let terms = || row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x));
        let (sum, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
        assert!((sum - f64::from(*y)).abs() <= 1e-6 * size, "{sum} {y}");
    }
    // Each vector of a batch has the product that it has alone.
    let many = numbers(Dtype::F32, 17 * cols, 3.0, &mut noise);
    let all = product(&engine, &weights, cols, 17, &many).unwrap();
    for (x, y) in many.chunks(4 * cols).zip(all.chunks(4 * rows)) {
        assert_eq!(y, product(&engine, &weights, cols, 1, x).unwrap());
    }
}

#[test]
fn wrong_use_is_refused() {
    let engine = crate::shim(1 << 24);
    let raw = vec![0; 2 * 96];
    let encoded = engine.cpu.encode(Dtype::BF16, &raw, Bases::NONE, None).unwrap().bytes;
    let weights = one(&engine, Dtype::BF16, 96, &encoded).unwrap();
    let bad = |r: mdl_codec::Result<()>| assert!(matches!(r, Err(CodecError::BadInput(_))), "{r:?}");
    for (cols, batch) in [(0, 1), (7, 1), (97, 1), (32, 0), (32, 33)] {
        bad(weights.scratch(cols, batch).map(|_| ()));
    }
    let there = There::new(&engine, &[0; 4096], 0);
    let room = there.span();
    let part = |start, len| room.part(start, len).unwrap();
    let good = Product { cols: 32, batch: 1, x: part(0, 64), y: part(64, 6), scratch: part(128, 1024) };
    weights.multiply(queue(), &good).unwrap();
    bad(weights.multiply(queue(), &Product { x: part(0, 62), ..good }));
    bad(weights.multiply(queue(), &Product { y: part(0, 8), ..good }));
    bad(weights.multiply(queue(), &Product { scratch: part(128, 12), ..good }));
    bad(weights.decode(queue(), part(0, 190)));
    // SAFETY: no work gets there.
    let other = unsafe { Span::new(3, room.address(), 192) };
    for refused in [
        weights.multiply(queue(), &Product { x: part(1, 64), ..good }),
        weights.decode(queue(), part(1, 192)),
        weights.decode(queue(), other),
    ] {
        assert!(matches!(refused, Err(CodecError::Device(_))), "{refused:?}");
    }
    let doubles = one(&engine, Dtype::F64, 4, &[vec![0], vec![0; 32]].concat()).unwrap();
    assert!(matches!(doubles.scratch(2, 1), Err(CodecError::Device(_))));
    for (n, step, parts) in [(96, 0, 1), (96, 50, 1), (96, 96, 2), (0, 1, 1)] {
        bad(engine.weights(Dtype::BF16, n, step, &vec![Part::Segment(&encoded); parts]).map(|_| ()));
    }
    bad(engine.weights(Dtype::BF16, 96, 96, &[Part::Lossy(&encoded)]).map(|_| ()));
    let none = engine.weights(Dtype::BF16, 0, 1, &[]).unwrap();
    assert!(none.is_empty() && decoded(&engine, &none, 0).is_empty());
    let small = crate::shim(1 << 12);
    assert!(matches!(one(&small, Dtype::F64, 4000, &[vec![0], vec![0; 32_000]].concat()), Err(CodecError::Device(_))));
}
