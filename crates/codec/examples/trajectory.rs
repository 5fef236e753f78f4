//! Compares coders on the same quantised checkpoints of a trajectory of safetensors files of one layout, all f32.
//!
//! `trajectory FILE.. [--bins B] [--embedding B] [--prune F] [--protect F] [--book fresh|kept|warm]` quantises every
//! file as Inshrinkerator does (exact clustering; `kept` and `warm` take the codebook of the file before, `warm` after
//! Lloyd's iteration) and codes each from the third on against the quantised one before it, and the one before that.
//! One JSON line: bits a parameter of the tensors that are quantised, everything counted. `ctx` is the engine with both
//! bases, `ctx1` with the parent, `ctx0` alone; `pe`, `he`, `rle` the paper's, with 2 bytes for each value of a
//! codebook and each protected number. `h1` and `h2` are the empirical entropies of the levels given the parent's, and
//! given both, tensor by tensor; `side` are codebooks and protected numbers as they were counted for the paper's.

use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine,
    quant::{
        Codebook, Config, Quantised, Role, Survey, Values, paper,
        paper::{Levels, Variant},
        quantise, reconstruct, rest, stays_lossless,
    },
};
use std::collections::BTreeMap;

mod tensors;
use tensors::{Tensors, entropy, load};

#[derive(Clone, Copy, PartialEq)]
enum Book {
    Fresh,
    Kept,
    Warm,
}

/// A quantised tensor.
struct Coded {
    codebook: Codebook,
    quantised: Quantised,
    bytes: Vec<u8>,
}

type Checkpoint = BTreeMap<String, Coded>;

fn quantised(file: &Tensors, config: &Config, book: Book, before: Option<&Checkpoint>) -> Checkpoint {
    let mut survey = Survey::default();
    let mut all = Vec::new();
    for (name, (shape, values)) in file {
        let shape: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
        let role = Role::infer(name, &shape);
        if !stays_lossless(role, &shape) {
            let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            survey.add(role, Values::new(Dtype::F32, &raw).expect("f32"), None).expect("a survey");
            all.push((name, role, raw));
        }
    }
    let thresholds = survey.thresholds(config).expect("thresholds");
    let one = |(name, role, raw): (&String, Role, Vec<u8>)| {
        let values = Values::new(Dtype::F32, &raw).expect("f32");
        let cuts = thresholds.cuts(role);
        let sketch = rest(values, None, &cuts).expect("a sketch");
        let old = before.and_then(|b| b.get(name)).map(|c| &c.codebook);
        let codebook = match (book, old) {
            (Book::Kept, Some(old)) => old.clone(),
            (Book::Warm, Some(old)) => old.warmed(&sketch).expect("a codebook"),
            _ => Codebook::exact(&sketch, config.bins_of(role)).expect("a codebook"),
        };
        let quantised = quantise(values, None, &cuts, &codebook).expect("levels").expect("finite");
        let bytes = reconstruct(Dtype::F32, &quantised, &codebook).expect("values");
        let coded = Coded { codebook, quantised, bytes };
        (name.clone(), coded)
    };
    all.into_iter().map(one).collect()
}

/// Bytes of a tensor in the store: its segments.
fn stored(
    child: &[u8],
    base: Option<&[u8]>,
    grandparent: Option<&[u8]>,
    schemes: &mut BTreeMap<&'static str, usize>,
) -> usize {
    let (engine, mut sum) = (CpuEngine::new(), 0);
    for at in (0..child.len()).step_by(8 << 20) {
        let range = at..child.len().min(at + (8 << 20));
        let family =
            Bases { base: base.map(|b| &b[range.clone()]), grandparent: grandparent.map(|g| &g[range.clone()]) };
        let raw = &child[range.clone()];
        let e = engine.encode(Dtype::F32, raw, family, None).expect("encodes");
        let mut out = vec![0; raw.len()];
        engine.decode(Dtype::F32, &e.bytes, family, &mut out).expect("decodes");
        assert!(out == raw, "decoded bytes differ");
        *schemes.entry(e.scheme.name()).or_default() += 1;
        sum += e.bytes.len();
    }
    sum
}

#[derive(Default)]
struct Sums {
    parameters: usize,
    bytes: BTreeMap<&'static str, usize>,
    h1: f64,
    h2: f64,
    schemes: BTreeMap<&'static str, usize>,
}

impl Sums {
    fn add(&mut self, child: &Coded, base: &Coded, grandparent: &Coded) {
        let levels = |c: &Coded| c.codebook.len() as u16;
        let of = |c: &'_ Coded| c.quantised.levels.clone();
        let (c, p, g) = (of(child), of(base), of(grandparent));
        self.parameters += c.len();
        self.h1 += entropy(p.iter().zip(&c));
        self.h2 += entropy(p.iter().zip(&g).zip(&c));
        let side = 2 * (child.codebook.len() + child.quantised.protected.len());
        let mut note = |name, bytes| *self.bytes.entry(name).or_default() += bytes;
        note("side", side);
        let child_levels = Levels::new(&c, levels(child)).expect("levels");
        let base_levels = Levels::new(&p, levels(base)).expect("levels");
        for v in Variant::ALL {
            let coded = paper::encode(v, child_levels, Some(base_levels)).expect("encodes");
            note(v.name(), coded.len() + side);
        }
        let (b, g, mut none) = (Some(&base.bytes[..]), Some(&grandparent.bytes[..]), BTreeMap::new());
        note("ctx", stored(&child.bytes, b, g, &mut self.schemes));
        note("ctx1", stored(&child.bytes, b, None, &mut none));
        note("ctx0", stored(&child.bytes, None, None, &mut none));
    }
}

fn main() {
    let (mut files, mut config, mut book) = (vec![], Config::default(), Book::Fresh);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let mut number = || args.next().and_then(|v| v.parse::<f64>().ok()).expect("a number");
        match a.as_str() {
            "--bins" => config.bins = number() as u16,
            "--embedding" => config.embedding_bins = number() as u16,
            "--prune" => config.prune = number(),
            "--protect" => config.protect = number(),
            "--book" => {
                book = match args.next().as_deref() {
                    Some("kept") => Book::Kept,
                    Some("warm") => Book::Warm,
                    _ => Book::Fresh,
                }
            }
            _ => files.push(a),
        }
    }
    let mut last: Vec<Checkpoint> = Vec::new();
    let mut sums = Sums::default();
    for file in &files {
        let now = quantised(&load(file), &config, book, last.first());
        if let [base, grandparent] = &last[..] {
            for (name, child) in &now {
                sums.add(child, &base[name], &grandparent[name]);
            }
        }
        last.insert(0, now);
        last.truncate(2);
    }
    let bits = |bytes: f64| 8.0 * bytes / sums.parameters as f64;
    let of = |name: &str| bits(sums.bytes.get(name).copied().unwrap_or(0) as f64);
    let named: Vec<String> =
        ["ctx", "ctx1", "ctx0", "pe", "he", "rle", "side"].map(|name| format!("\"{name}\":{:.4}", of(name))).to_vec();
    println!(
        "{{\"files\":{},\"parameters\":{},{},\"h1\":{:.4},\"h2\":{:.4},\"pe/ctx\":{:.3},\"pe/ctx1\":{:.3},\"schemes\":\"{:?}\"}}",
        files.len(),
        sums.parameters,
        named.join(","),
        bits(sums.h1 / 8.0),
        bits(sums.h2 / 8.0),
        of("pe") / of("ctx"),
        of("pe") / of("ctx1"),
        sums.schemes,
    );
}
