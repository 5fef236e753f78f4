//! Decoding of weights that live compressed, by their size, in one thread: bf16 of a normal distribution.
//!
//! `cargo run --release -p mdl-codec --example compressed_bench`

use mdl_codec::{Coding, CompressedTensor, CpuEngine, Dtype};
use std::{error::Error, time::Instant};

/// Elements that are decoded in a round.
const ROUND: usize = 1 << 24;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!("{:>9} {:>7} {:>9} {:>6}", "elements", "blocks", "us", "GB/s");
    for log in [15, 17, 18, 19, 20, 22] {
        let n = 1 << log;
        let seconds = pool.install(|| decode(n)).map_err(|e| e.to_string())?;
        let speed = 2.0 * n as f64 / seconds / 1e9;
        println!("{n:>9} {:>7} {:>9.1} {speed:>6.2}", n as f64 / f64::from(1 << 18), 1e6 * seconds);
    }
    Ok(())
}

/// Seconds for a tensor, in the best of seven rounds.
fn decode(n: usize) -> Result<f64, mdl_codec::CodecError> {
    let (engine, raw) = (CpuEngine::new(), normal(n));
    let mut tensor = CompressedTensor::zeros(&engine, Dtype::BF16, &[n], Coding::Lossless)?;
    tensor.encode(&engine, &raw)?;
    let (mut out, mut best) = (vec![0; raw.len()], f64::MAX);
    for _ in 0..7 {
        let began = Instant::now();
        for _ in 0..ROUND / n {
            tensor.decode(&engine, &mut out)?;
        }
        best = best.min(began.elapsed().as_secs_f64() / (ROUND / n) as f64);
    }
    assert_eq!(out, raw, "decoded bytes");
    Ok(best)
}

/// Sums of twelve uniform numbers, scaled as weights are.
fn normal(n: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    let mut value = || 0.02 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0);
    (0..n).flat_map(|_| ((value().to_bits() >> 16) as u16).to_le_bytes()).collect()
}
