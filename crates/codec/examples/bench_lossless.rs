//! Measures the lossless engine on a safetensors file, alone or against a parent file of the same layout.
//!
//! `bench_lossless FILE [PARENT] [--cast bf16] [--one-thread] [--repeat N] [--cut BYTES]` prints one JSON line per
//! dtype and one for everything: ratio (every tensor in its own segments, 100 bytes of container a tensor counted),
//! MB/s of decoded bytes for encode, decode and memcpy (best of N, segments side by side on all cores), and the number
//! of segments by scheme. `--cut` makes tensors of so many bytes out of every one.

use mdl_codec::{CpuEngine, Dtype, Engine, SEGMENT_BYTES};
use rayon::prelude::*;
use std::collections::BTreeMap;

mod tensors;
use tensors::{Tensor, best, read};

const CONTAINER_BYTES: usize = 100;

/// f32 to bf16, to nearest, ties to even.
fn cast(raw: &[u8]) -> Vec<u8> {
    let round = |e: &[u8]| {
        let v = u32::from_le_bytes([e[0], e[1], e[2], e[3]]);
        if v & 0x7fff_ffff > 0x7f80_0000 {
            (v >> 16) as u16 | 0x40
        } else {
            ((v + 0x7fff + (v >> 16 & 1)) >> 16) as u16
        }
    };
    raw.chunks_exact(4).flat_map(|e| round(e).to_le_bytes()).collect()
}

fn load(path: &str, bf16: bool) -> BTreeMap<String, (Dtype, Vec<u8>)> {
    let take = |t: Tensor| match (t.dtype, bf16) {
        (Dtype::F32, true) => (Dtype::BF16, cast(&t.raw)),
        (d, _) => (d, t.raw),
    };
    read(path).into_iter().map(|(name, t)| (name, take(t))).collect()
}

/// A segment and its base.
type Job<'a> = (Dtype, &'a [u8], Option<&'a [u8]>);

fn measure(label: &str, jobs: &[Job<'_>], tensors: usize, repeat: usize) {
    let engine = CpuEngine::new();
    let total: usize = jobs.iter().map(|j| j.1.len()).sum();
    let mut encoded = Vec::new();
    let encode = best(repeat, || {
        encoded = jobs
            .par_iter()
            .map(|(d, raw, base)| engine.encode(*d, raw, (*base).into(), None).expect("encodes"))
            .collect::<Vec<_>>();
    });
    let mut out: Vec<Vec<u8>> = jobs.iter().map(|j| vec![1; j.1.len()]).collect();
    let decode = best(repeat, || {
        jobs.par_iter().zip(encoded.par_iter().zip(&mut out)).for_each(|((d, _, base), (e, out))| {
            engine.decode(*d, &e.bytes, (*base).into(), out).expect("decodes");
        });
    });
    assert!(jobs.iter().zip(&out).all(|(j, o)| j.1 == o), "decoded bytes differ");
    let copy = best(repeat, || jobs.par_iter().zip(&mut out).for_each(|(j, o)| o.copy_from_slice(j.1)));
    let coded = encoded.iter().map(|e| e.bytes.len()).sum::<usize>() + tensors * CONTAINER_BYTES;
    let mut schemes = BTreeMap::new();
    encoded.iter().for_each(|e| *schemes.entry(e.scheme.name()).or_insert(0usize) += 1);
    let speed = |seconds: f64| total as f64 / 1e6 / seconds;
    println!(
        "{{\"what\":\"{label}\",\"tensors\":{tensors},\"bytes\":{total},\"coded\":{coded},\"ratio\":{:.4},\
         \"encode_mb_s\":{:.0},\"decode_mb_s\":{:.0},\"memcpy_mb_s\":{:.0},\"threads\":{},\"segments\":{schemes:?}}}",
        total as f64 / coded as f64,
        speed(encode),
        speed(decode),
        speed(copy),
        rayon::current_num_threads(),
    );
}

fn main() {
    let (mut files, mut bf16, mut repeat, mut cut) = (Vec::new(), false, 5, SEGMENT_BYTES);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--cast" => bf16 = args.next().as_deref() == Some("bf16"),
            "--one-thread" => rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("a fresh pool"),
            "--repeat" => repeat = args.next().and_then(|v| v.parse().ok()).expect("a number"),
            "--cut" => cut = args.next().and_then(|v| v.parse().ok()).expect("a number"),
            _ => files.push(a),
        }
    }
    let Some(path) = files.first() else {
        return eprintln!(
            "usage: bench_lossless FILE [PARENT] [--cast bf16] [--one-thread] [--repeat N] [--cut BYTES]"
        );
    };
    let own = load(path, bf16);
    let parent = files.get(1).map(|p| load(p, bf16)).unwrap_or_default();
    let mut by: BTreeMap<String, (Vec<Job<'_>>, usize)> = BTreeMap::new();
    for (name, (dtype, raw)) in &own {
        let base = parent.get(name).filter(|(d, b)| d == dtype && b.len() == raw.len()).map(|(_, b)| b.as_slice());
        for label in [dtype.name(), "all"] {
            let (jobs, tensors) = by.entry(label.to_string()).or_default();
            *tensors += 1;
            for at in (0..raw.len()).step_by(cut) {
                let end = raw.len().min(at + cut);
                jobs.push((*dtype, &raw[at..end], base.map(|b| &b[at..end])));
            }
        }
    }
    for (label, (jobs, tensors)) in by {
        measure(&label, &jobs, tensors, repeat);
    }
}
