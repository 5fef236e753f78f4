//! Measures the lossy engine beside zstd -1 on the f32 tensors of a safetensors file that may be quantised; one thread.
//!
//! `bench_lossy FILE [--repeat N] [--bins B] [--move M] [--chain C] [--only NAME]` prints one JSON line a
//! round: seconds of processor time of every stage, all in one round so that they see the same neighbours. Stages:
//! zstd; bins (survey, cluster, quantise, encode, decode, and against a parent); lattice (quantise, encode, decode, and
//! against a parent); a chain of C deltas whose weights move by M times the tensor's root mean square a step; `--only`
//! takes one of zstd, bins, lattice, chain. A last line has sizes. Decoded bytes are compared in the first round.

#[path = "lossy/model.rs"]
mod model;
#[path = "lossy/stages.rs"]
mod stages;
mod tensors;

use model::{Tensor, load, moved};
use stages::{Bins, Clock, Lattices, Zstd, copy};

struct Options {
    file: String,
    repeat: usize,
    bins: u16,
    step: f64,
    chain: usize,
    only: Option<String>,
}

fn options() -> Option<Options> {
    let mut o = Options { file: String::new(), repeat: 5, bins: 32, step: 0.02, chain: 16, only: None };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--repeat" => o.repeat = args.next()?.parse().ok()?,
            "--bins" => o.bins = args.next()?.parse().ok()?,
            "--move" => o.step = args.next()?.parse().ok()?,
            "--chain" => o.chain = args.next()?.parse().ok()?,
            "--only" => o.only = args.next(),
            _ => o.file = a,
        }
    }
    (!o.file.is_empty()).then_some(o)
}

fn main() {
    let Some(o) = options() else {
        return eprintln!("usage: bench_lossy FILE [--repeat N] [--bins B] [--move M] [--chain C] [--only NAME]");
    };
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().expect("a fresh pool");
    let model = load(&o.file);
    let bytes: usize = model.iter().map(|t| t.raw.len()).sum();
    let parent: Vec<Tensor> = model.iter().map(|t| moved(t, o.step, 1)).collect();

    let mut to = stages::room(&model);
    let mut zstd = Zstd::new(&model);
    let mut bins = Bins::new(&model, &parent, o.bins);
    let mut lattices = Lattices::new(&model, &parent);
    let mut chain = stages::Chain::new(&model, o.bins, o.step, o.chain);
    let mut keys = 0;
    for round in 0..o.repeat {
        let mut clock = Clock::default();
        let wanted = |name: &str| o.only.as_deref().is_none_or(|only| only == name);
        copy(&model, &mut to, &mut clock);
        if wanted("zstd") {
            zstd.run(&mut clock);
        }
        if wanted("bins") {
            bins.run(&mut clock, round == 0);
            keys = stages::cluster_all(&model, &mut clock);
        }
        if wanted("zstd") {
            zstd.run(&mut clock);
        }
        if wanted("lattice") {
            lattices.run(&mut clock, round == 0);
        }
        if wanted("chain") {
            chain.run(&mut clock, round == 0);
        }
        println!("{{\"round\":{round},\"bytes\":{bytes},{}}}", clock.json());
    }
    println!(
        "{{\"tensors\":{},\"bytes\":{bytes},\"keys\":{keys},\"sizes\":{{{},{},{},{}}}}}",
        model.len(),
        zstd.sizes(),
        bins.sizes(),
        lattices.sizes(),
        chain.sizes()
    );
}
