//! Benchmark of a lossy commit of a whole model whose weights, and whose last commit, are on the device: when the
//! weights may change again, and when all is done.

use crate::{
    DeviceError, Result, Session, View,
    engine::view_of,
    measure::{Bench, Figure, News, data, median, runs},
    quantiser::{restore, sketch},
};
use mdl_codec::{
    Device, Dtype, Held, Resident, Span,
    quant::{Codebook, Config, Cuts, Role, Sketch, Survey, rest_of, stays_lossless},
};
use std::{collections::BTreeMap, time::Instant};

/// How far weights move from commit to commit, in parts of their spread.
const MOVE: f64 = 0.02;
/// Alignment of tensors, as of an allocator's.
const ALIGN: usize = 256;

/// A part of a commit.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Which.
    pub name: &'static str,
    /// Median of its time.
    pub ms: f64,
}

/// What a commit takes.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Parameters of the model.
    pub parameters: u64,
    /// Tensors of the model.
    pub tensors: usize,
    /// Length of all encodings.
    pub encoded: u64,
    /// Runs.
    pub runs: usize,
    /// Until the caller's tensors are no longer needed.
    pub released_ms: f64,
    /// Until everything is encoded and on the host.
    pub done_ms: f64,
    /// Hashing the reconstructions, which gives them their names; it is not in `done_ms`.
    pub hash_ms: f64,
    /// The parts, in order.
    pub stages: Vec<Stage>,
    /// The same with events around kernels: where the time goes.
    pub figure: Figure,
}

struct Tensor {
    role: Role,
    lossless: bool,
    len: usize,
    at: usize,
}

/// Names and shapes of a transformer of about so many parameters.
fn names(parameters: usize) -> Vec<(String, Vec<u64>)> {
    let (d, tokens) = if parameters < 100_000_000 { (64, 512) } else { (2048, 50_304) };
    let layers = (parameters.saturating_sub(2 * tokens * d) as f64 / (12 * d * d) as f64).round().max(1.0) as usize;
    let [d, tokens] = [d as u64, tokens as u64];
    let mut out = vec![("model.embed_tokens.weight".to_owned(), vec![tokens, d])];
    for layer in 0..layers {
        let of = |name: &str, shape: &[u64]| (format!("model.layers.{layer}.{name}.weight"), shape.to_vec());
        out.push(of("input_layernorm", &[d]));
        out.extend(["q", "k", "v", "o"].map(|p| of(&format!("self_attn.{p}_proj"), &[d, d])));
        out.push(of("post_attention_layernorm", &[d]));
        out.push(of("mlp.up_proj", &[4 * d, d]));
        out.push(of("mlp.down_proj", &[d, 4 * d]));
    }
    out.push(("model.norm.weight".to_owned(), vec![d]));
    out.push(("lm_head.weight".to_owned(), vec![tokens, d]));
    out
}

fn tensors(parameters: usize) -> (Vec<Tensor>, usize) {
    let mut at = 0;
    let one = |(name, shape): (String, Vec<u64>)| {
        let role = Role::infer(&name, &shape);
        let tensor = Tensor {
            role,
            lossless: stays_lossless(role, &shape),
            len: 4 * shape.iter().product::<u64>() as usize,
            at,
        };
        at += tensor.len.next_multiple_of(ALIGN);
        tensor
    };
    let all = names(parameters).into_iter().map(one).collect();
    (all, at)
}

/// Three versions' worth of memory.
struct Model<'a> {
    session: &'a Session,
    tensors: &'a [Tensor],
}

impl<'a> Model<'a> {
    /// Weights so many commits into training.
    fn fill(&self, to: View<'a>, steps: u32) -> Result<()> {
        self.tensors.iter().zip(1..).try_for_each(|(t, seed)| {
            let place = to.part(t.at..t.at + t.len);
            data::fill(self.session, place, &data::tensor(Dtype::F32, t.len / 4, seed, steps, MOVE))
        })
    }

    /// Reconstructions of the weights, and the time of each stage.
    fn quantise(&self, weights: View<'a>, out: View<'a>, clock: &mut Clock) -> Result<()> {
        let part = |of: View<'a>, t: &Tensor| of.part(t.at..t.at + t.len);
        let (kept, lossy): (Vec<&Tensor>, Vec<&Tensor>) = self.tensors.iter().partition(|t| t.lossless);
        let numbers: Vec<sketch::Numbers<'_>> = lossy.iter().map(|t| (Dtype::F32, part(weights, t))).collect();
        let sketches = sketch::from_values(self.session, &numbers)?;
        clock.lap("sketch");
        let (cuts, books) = decide(&lossy, &sketches)?;
        clock.lap("thresholds and clustering, on the host");
        let jobs: Vec<restore::Job<'_>> = lossy
            .iter()
            .zip(&numbers)
            .map(|(t, &weights)| restore::Job {
                weights,
                gradient: None,
                cuts: &cuts[t.role as usize],
                codebook: &books[group(t.role)],
                out: part(out, t),
            })
            .collect();
        for t in kept {
            self.session.copy(part(weights, t), part(out, t))?;
        }
        if restore::run_all(self.session, &jobs)?.contains(&false) {
            return Err(DeviceError::Failed("the model was not quantised".to_owned()));
        }
        self.session.wait()?;
        clock.lap("quantise");
        Ok(())
    }
}

/// Embeddings have their own codebook.
fn group(role: Role) -> usize {
    usize::from(role != Role::Embedding)
}

/// Thresholds by role, codebooks by group.
fn decide(lossy: &[&Tensor], sketches: &[Sketch]) -> Result<(Vec<Cuts>, [Codebook; 2])> {
    let config = Config::default();
    let mut survey = Survey::default();
    for (t, sketch) in lossy.iter().zip(sketches) {
        survey.add_sketch(t.role, sketch);
    }
    let thresholds = survey.thresholds(&config)?;
    let cuts: Vec<Cuts> = Role::ALL.into_iter().map(|role| thresholds.cuts(role)).collect();
    // Sketches of a role have the same thresholds: what is left of their sum is the sum of what is left of them.
    let mut by_role: BTreeMap<Role, Sketch> = BTreeMap::new();
    for (t, sketch) in lossy.iter().zip(sketches) {
        by_role.entry(t.role).or_default().merge(sketch);
    }
    let mut rest = [Sketch::default(), Sketch::default()];
    for (role, sketch) in &by_role {
        rest[group(*role)].merge(&rest_of(sketch, &cuts[*role as usize]));
    }
    let [a, b] = &rest;
    let bins = [config.embedding_bins, config.bins];
    let (a, b) = rayon::join(|| Codebook::exact(a, bins[0]), || Codebook::exact(b, bins[1]));
    Ok((cuts, [a?, b?]))
}

/// Laps since the start.
struct Clock {
    start: Instant,
    laps: Vec<(&'static str, f64)>,
}

impl Clock {
    fn start() -> Clock {
        Clock { start: Instant::now(), laps: Vec::new() }
    }

    fn now(&self) -> f64 {
        1e3 * self.start.elapsed().as_secs_f64()
    }

    fn lap(&mut self, name: &'static str) {
        let now = self.now();
        self.laps.push((name, now));
    }
}

pub(super) fn all(bench: &mut Bench<'_>) -> Result<()> {
    if !bench.wants(&["commit"]) {
        return Ok(());
    }
    let (tensors, bytes) = tensors(bench.options.parameters);
    let session = bench.session()?;
    let engine = crate::CudaEngine::new(bench.driver(), bench.engine.ordinal, 0, crate::open::PIECE);
    let rooms = [engine.room(bytes)?, engine.room(bytes)?, engine.room(bytes)?];
    let [weights, base, out] = rooms.each_ref().map(|r| view_of(r.span()));
    let model = Model { session: &session, tensors: &tensors };
    model.fill(weights, 0)?;
    model.quantise(weights, base, &mut Clock::start())?;
    model.fill(weights, 1)?;

    let [_, base_span, out_span] = rooms.each_ref().map(Held::span);
    let part = |span: Span, t: &Tensor| {
        let part = span.part(t.at, t.len);
        part.ok_or_else(|| DeviceError::Failed("a tensor outside of the model".to_owned()))
    };
    let residents = tensors
        .iter()
        .map(|t| {
            Ok(Resident {
                dtype: Dtype::F32,
                content: part(out_span, t)?,
                base: Some(part(base_span, t)?),
                grandparent: None,
                lattice: None,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let commit = || {
        let mut clock = Clock::start();
        model.quantise(weights, out, &mut clock)?;
        let encoded = Device::encode(&engine, &residents)?;
        clock.lap("encode against the last commit");
        let total: u64 = encoded.iter().flatten().map(|e| e.bytes.len() as u64).sum();
        Ok::<_, DeviceError>((clock.laps, total))
    };
    let (_, encoded) = commit()?;
    let timed = runs(bench.options.runs, || Ok(commit()?.0))?;
    let ends: Vec<f64> = (0..timed[0].len()).map(|i| median(timed.iter().map(|laps| laps[i].1).collect())).collect();
    let names = timed[0].iter().map(|lap| lap.0);
    let begun = std::iter::once(&0.0).chain(&ends);
    let stages = names.zip(&ends).zip(begun).map(|((name, end), begun)| Stage { name, ms: end - begun });
    let contents: Vec<(Vec<u8>, Span)> = residents.iter().map(|r| (Vec::new(), r.content)).collect();
    let hash = runs(bench.options.runs, || {
        let clock = Clock::start();
        Device::hash(&engine, "measure", &contents)?;
        Ok(clock.now())
    })?;
    let figure = bench.figure("commit", bytes, 4 * bytes, || commit().map(drop))?;
    let done = Commit {
        parameters: tensors.iter().map(|t| t.len as u64 / 4).sum(),
        tensors: tensors.len(),
        encoded,
        runs: timed.len(),
        released_ms: ends.iter().rev().nth(1).copied().unwrap_or(f64::NAN),
        done_ms: ends.last().copied().unwrap_or(f64::NAN),
        hash_ms: median(hash),
        stages: stages.collect(),
        figure,
    };
    (bench.tell)(News::Commit(done));
    Ok(())
}
