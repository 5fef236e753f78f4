//! Encoding and decoding of weights and moments that live compressed, by coding and size, in one thread: bf16 of a
//! normal distribution.
//!
//! `cargo run --release -p mdl-codec --example compressed_bench`

use mdl_codec::{
    CodecError, Coding, CompressedTensor, CpuEngine, Dtype,
    quant::moments::{Bits, Moment},
};
use std::{error::Error, time::Instant};

/// Elements that are coded in a round.
const ROUND: usize = 1 << 22;
const CODINGS: [(&str, Coding); 9] = [
    ("lossless", Coding::Lossless),
    ("3 bits", Coding::Lossy { keep: 3, block: 512 }),
    ("3 bits, 32", Coding::Lossy { keep: 3, block: 32 }),
    ("1 bit", Coding::Lossy { keep: 1, block: 512 }),
    ("0 bits", Coding::Lossy { keep: 0, block: 512 }),
    ("m, 8 bits", Coding::Moment { kind: Moment::First, bits: Bits::Eight }),
    ("m, 4 bits", Coding::Moment { kind: Moment::First, bits: Bits::Four }),
    ("v, 8 bits", Coding::Moment { kind: Moment::Second, bits: Bits::Eight }),
    ("v, 4 bits", Coding::Moment { kind: Moment::Second, bits: Bits::Four }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!("{:<10} {:>8} {:>7} {:>12} {:>12}", "coding", "elements", "ratio", "encode, GB/s", "decode, GB/s");
    for (name, coding) in CODINGS {
        for log in [15, 17, 18, 20, 22] {
            let n = 1 << log;
            let [ratio, encode, decode] = pool.install(|| run(coding, n)).map_err(|e| e.to_string())?;
            println!("{name:<10} {n:>8} {ratio:>7.3} {encode:>12.2} {decode:>12.2}");
        }
    }
    Ok(())
}

/// Encoded size to plain size, and gigabytes of plain elements a second of both ways, in the best of five rounds.
fn run(coding: Coding, n: usize) -> Result<[f64; 3], CodecError> {
    let (engine, raw) = (CpuEngine::new().fine(), elements(n, coding));
    let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[n], coding)?;
    let mut out = vec![0; raw.len()];
    let encode = best(n, || tensor.encode(&engine, &raw))?;
    let decode = best(n, || tensor.decode(&engine, &mut out))?;
    if coding == Coding::Lossless {
        assert_eq!(out, raw, "decoded bytes");
    }
    Ok([tensor.encoded_len() as f64 / raw.len() as f64, encode, decode])
}

fn best(n: usize, mut work: impl FnMut() -> Result<(), CodecError>) -> Result<f64, CodecError> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        for _ in 0..ROUND / n {
            work()?;
        }
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(2.0 * ROUND as f64 / best / 1e9)
}

/// Sums of twelve uniform numbers, scaled as weights are; their squares for a second moment.
fn elements(n: usize, coding: Coding) -> Vec<u8> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    let mut value = || 0.02 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0);
    let second = matches!(coding, Coding::Moment { kind: Moment::Second, .. });
    let mut element = || if second { value().powi(2) } else { value() };
    (0..n).flat_map(|_| ((element().to_bits() >> 16) as u16).to_le_bytes()).collect()
}
