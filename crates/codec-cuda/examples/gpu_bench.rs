//! Times the engine on a GPU and prints a line of JSON for everything it finds; `tests/gpu/check.py` makes a page of
//! them.
//!
//! `gpu_bench [--device N | --shim] [--mib M] [--parameters P] [--runs R] [--only NAME]`: tensors of M MiB (1024), a
//! model of P parameters (1,000,000,000), medians of R runs (20). `--shim` runs the kernels on the processor, on tiny
//! tensors: for trying out the program, not for its figures.

use mdl_codec_cuda::measure::{Commit, Figure, News, Options, run};
use serde_json::{Value, json};
use std::{io::Write, process::ExitCode};

/// The lattice's matrices have rows of 16 KiB.
const LEAST: usize = 16 << 10;

fn options() -> Option<Options> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let shim = args.iter().position(|a| a == "--shim").map(|i| args.remove(i)).is_some();
    let mut o = Options {
        device: (!shim).then_some(0),
        bytes: if shim { 16 * LEAST } else { 1 << 30 },
        parameters: if shim { 120_000 } else { 1_000_000_000 },
        runs: if shim { 1 } else { 20 },
        only: None,
    };
    for pair in args.chunks(2) {
        let [name, value] = pair else { return None };
        match name.as_str() {
            "--device" => o.device = Some(value.parse().ok()?),
            "--mib" => o.bytes = value.parse::<usize>().ok()? << 20,
            "--parameters" => o.parameters = value.parse().ok()?,
            "--runs" => o.runs = value.parse().ok()?,
            "--only" => o.only = Some(value.clone()),
            _ => return None,
        }
    }
    (o.bytes >= LEAST && o.runs > 0).then_some(o)
}

fn figure(f: &Figure) -> Value {
    let kernels: Vec<Value> =
        f.kernels.iter().map(|(name, ms, launches)| json!({"name": name, "ms": ms, "launches": launches})).collect();
    let rate = |bytes: u64, ms: f64| bytes as f64 / ms / 1e6;
    json!({
        "name": f.name,
        "bytes": f.bytes,
        "moved": f.moved,
        "runs": f.runs,
        "kernel_ms": f.kernel_ms,
        "kernel_gbps": rate(f.bytes, f.kernel_ms),
        "wall_ms": f.wall_ms,
        "wall_gbps": rate(f.bytes, f.wall_ms),
        "copy_gbps": f.copy_gbps,
        "fraction": rate(f.moved, f.kernel_ms) / f.copy_gbps,
        "encoded": f.encoded,
        "ratio": f.encoded.map(|e| f.bytes as f64 / e as f64),
        "kernels": kernels,
    })
}

fn commit(c: &Commit) -> Value {
    let stages: Vec<Value> = c.stages.iter().map(|s| json!({"name": s.name, "ms": s.ms})).collect();
    json!({
        "parameters": c.parameters,
        "tensors": c.tensors,
        "bytes": 4 * c.parameters,
        "encoded": c.encoded,
        "ratio": (4 * c.parameters) as f64 / c.encoded as f64,
        "runs": c.runs,
        "released_ms": c.released_ms,
        "done_ms": c.done_ms,
        "hash_ms": c.hash_ms,
        "stages": stages,
        "kernels": figure(&c.figure)["kernels"],
        "copy_gbps": c.figure.copy_gbps,
    })
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: gpu_bench [--device N | --shim] [--mib M] [--parameters P] [--runs R] [--only NAME]");
        return ExitCode::from(2);
    };
    let mut out = std::io::stdout();
    let mut tell = |news| {
        let line = match &news {
            News::Device(name, facts) => {
                let facts: serde_json::Map<String, Value> =
                    facts.iter().map(|&(k, v)| (k.to_owned(), v.into())).collect();
                json!({"device": name, "facts": facts, "mib": options.bytes >> 20, "runs": options.runs})
            }
            News::Figure(f) => json!({"figure": figure(f)}),
            News::Commit(c) => json!({"commit": commit(c)}),
        };
        // The reader may have gone.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    match run(&options, &mut tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gpu_bench: {e}");
            ExitCode::FAILURE
        }
    }
}
