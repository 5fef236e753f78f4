//! What the lossy bench times. Every stage writes into memory that it has written before, as a long-lived process does.

use crate::model::{DTYPE, Tensor, moved, numbers, segments};
use mdl_codec::{
    Bases, CpuEngine, Encoded, Engine,
    quant::{
        Codebook, Config, Cuts, Sketch, Survey, Values,
        lattice::{Hint, Lattice, Outcome, Params},
        rest_of, restore,
    },
};
use std::{sync::Arc, time::Instant};

/// Seconds of processor time by name; of a stage that ran twice in a round, the less. Wall time would favour short
/// stages on a busy machine: they fit between two interruptions.
#[derive(Default)]
pub struct Clock(Vec<(&'static str, f64)>);

/// This thread's processor time, or the time of day where the system does not tell.
fn now(start: Instant) -> f64 {
    // The count is brought up to date when the thread is scheduled.
    std::thread::yield_now();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |n| n / 1e9)
}

impl Clock {
    fn time<R>(&mut self, name: &'static str, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let before = now(start);
        let r = work();
        let took = now(start) - before;
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, least)) => *least = took.min(*least),
            None => self.0.push((name, took)),
        }
        r
    }

    pub fn json(&self) -> String {
        let one = |(n, s): &(&str, f64)| format!("\"{n}\":{s:.6}");
        self.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

pub fn copy(model: &[Tensor], to: &mut [Vec<u8>], clock: &mut Clock) {
    clock.time("memcpy", || model.iter().zip(to).for_each(|(t, to)| to.copy_from_slice(&t.raw)));
}

/// Encodes tensor by tensor, segment by segment.
fn encode(tensors: &[Vec<u8>], bases: Option<&[Vec<u8>]>, lattices: Option<&[Arc<Lattice>]>) -> Vec<Vec<Encoded>> {
    let engine = CpuEngine::new();
    let one = |(i, raw): (usize, &Vec<u8>)| {
        let segment = |r: std::ops::Range<usize>| {
            let hint = lattices.map(|l| Hint::new(l[i].clone(), r.start / 4));
            let bases = at(bases, i, &r);
            engine.encode(DTYPE, &raw[r], bases, hint.as_ref()).expect("encodes")
        };
        segments(raw.len()).map(segment).collect()
    };
    tensors.iter().enumerate().map(one).collect()
}

fn at<'a>(bases: Option<&'a [Vec<u8>]>, i: usize, r: &std::ops::Range<usize>) -> Bases<'a> {
    Bases { base: bases.map(|b| &b[i][r.clone()]), grandparent: None }
}

fn decode(coded: &[Vec<Encoded>], bases: Option<&[Vec<u8>]>, out: &mut [Vec<u8>]) {
    let engine = CpuEngine::new();
    for (i, (coded, out)) in coded.iter().zip(out).enumerate() {
        for (e, r) in coded.iter().zip(segments(out.len())) {
            let bases = at(bases, i, &r);
            engine.decode(DTYPE, &e.bytes, bases, &mut out[r]).expect("decodes");
        }
    }
}

fn size(coded: &[Vec<Encoded>]) -> usize {
    coded.iter().flatten().map(|e| e.bytes.len()).sum()
}

pub fn room(model: &[Tensor]) -> Vec<Vec<u8>> {
    model.iter().map(|t| vec![1; t.raw.len()]).collect()
}

pub struct Zstd<'a> {
    model: &'a [Tensor],
    frames: Vec<Vec<u8>>,
    out: Vec<Vec<u8>>,
    coder: zstd::bulk::Compressor<'static>,
    decoder: zstd::bulk::Decompressor<'static>,
    size: usize,
}

impl<'a> Zstd<'a> {
    pub fn new(model: &'a [Tensor]) -> Self {
        let bound = |t: &Tensor| vec![1; t.raw.len() + t.raw.len() / 64 + 4096];
        Zstd {
            model,
            frames: model.iter().map(bound).collect(),
            out: room(model),
            coder: zstd::bulk::Compressor::new(1).expect("level 1"),
            decoder: zstd::bulk::Decompressor::new().expect("a decoder"),
            size: 0,
        }
    }

    pub fn run(&mut self, clock: &mut Clock) {
        let (model, frames) = (self.model, &mut self.frames);
        let coder = &mut self.coder;
        let lens: Vec<usize> = clock.time("zstd_encode", || {
            let pairs = model.iter().zip(frames.iter_mut());
            pairs.map(|(t, f)| coder.compress_to_buffer(&t.raw, f.as_mut_slice()).expect("compresses")).collect()
        });
        self.size = lens.iter().sum();
        let (decoder, out) = (&mut self.decoder, &mut self.out);
        clock.time("zstd_decode", || {
            for ((f, n), o) in self.frames.iter().zip(&lens).zip(out.iter_mut()) {
                decoder.decompress_to_buffer(&f[..*n], o.as_mut_slice()).expect("decompresses");
            }
        });
    }

    pub fn sizes(&self) -> String {
        format!("\"zstd\":{}", self.size)
    }
}

/// The first pass over a model, and what it says about every tensor.
fn codebooks(model: &[Tensor], bins: u16, clock: &mut Clock) -> Vec<(Cuts, Codebook)> {
    let config = Config { bins, embedding_bins: bins, ..Config::default() };
    let (sketches, thresholds) = clock.time("survey", || {
        let of = |t: &Tensor| Sketch::from_values(Values::new(DTYPE, &t.raw).expect("f32"));
        let sketches: Vec<Sketch> = model.iter().map(of).collect();
        let mut survey = Survey::default();
        for (t, s) in model.iter().zip(&sketches) {
            survey.add_sketch(t.role, s);
        }
        (sketches, survey.thresholds(&config).expect("a configuration"))
    });
    clock.time("cluster", || {
        let one = |(t, s): (&Tensor, Sketch)| {
            let cuts = thresholds.cuts(t.role);
            let book = Codebook::exact(&rest_of(&s, &cuts), config.bins_of(t.role));
            (cuts, book.expect("a codebook"))
        };
        model.iter().zip(sketches).map(one).collect()
    })
}

/// Clusters the whole model as one tensor; how many keys that is.
pub fn cluster_all(model: &[Tensor], clock: &mut Clock) -> usize {
    let mut all = Sketch::default();
    for t in model {
        all.add(Values::new(DTYPE, &t.raw).expect("f32"));
    }
    clock.time("cluster_all", || Codebook::exact(&all, 32).expect("a codebook"));
    all.cells().len()
}

/// The second pass.
fn through_bins(model: &[Tensor], bins: u16, rec: &mut [Vec<u8>], clock: &mut Clock) {
    let books = codebooks(model, bins, clock);
    clock.time("quantise", || {
        for ((t, (cuts, book)), rec) in model.iter().zip(&books).zip(rec) {
            let v = Values::new(DTYPE, &t.raw).expect("f32");
            assert_eq!(restore(v, None, cuts, book, rec), Ok(true));
        }
    });
}

pub struct Bins<'a> {
    model: &'a [Tensor],
    bins: u16,
    parent: Vec<Vec<u8>>,
    rec: Vec<Vec<u8>>,
    out: Vec<Vec<u8>>,
    alone: usize,
    delta: usize,
}

impl<'a> Bins<'a> {
    pub fn new(model: &'a [Tensor], parent: &[Tensor], bins: u16) -> Self {
        let mut before = room(model);
        through_bins(parent, bins, &mut before, &mut Clock::default());
        Bins { model, bins, parent: before, rec: room(model), out: room(model), alone: 0, delta: 0 }
    }

    pub fn run(&mut self, clock: &mut Clock, check: bool) {
        through_bins(self.model, self.bins, &mut self.rec, clock);
        let rec = &self.rec;
        let coded = clock.time("bins_encode", || encode(rec, None, None));
        clock.time("bins_decode", || decode(&coded, None, &mut self.out));
        assert!(!check || self.out == *rec, "decoded bytes differ");
        let delta = clock.time("bins_delta_encode", || encode(rec, Some(&self.parent), None));
        clock.time("bins_delta_decode", || decode(&delta, Some(&self.parent), &mut self.out));
        assert!(!check || self.out == *rec, "decoded bytes differ");
        (self.alone, self.delta) = (size(&coded), size(&delta));
    }

    pub fn sizes(&self) -> String {
        format!("\"bins\":{},\"bins_delta\":{}", self.alone, self.delta)
    }
}

pub struct Lattices<'a> {
    model: &'a [Tensor],
    lattices: Vec<Arc<Lattice>>,
    parent: Vec<Vec<u8>>,
    rec: Vec<Vec<u8>>,
    out: Vec<Vec<u8>>,
    alone: usize,
    delta: usize,
}

fn on_lattice(lattice: &Lattice, raw: &[u8], rec: &mut [u8]) {
    assert_eq!(lattice.quantise(0, raw, rec), Ok(Outcome::Quantised));
}

impl<'a> Lattices<'a> {
    /// Steps of an eighth of the root mean square (about 5 bits a number), shaped as if the moves were the gradients.
    pub fn new(model: &'a [Tensor], parent: &[Tensor]) -> Self {
        let lattice = |seed: u64, (t, p): (&Tensor, &Tensor)| {
            let moves = numbers(&t.raw).zip(numbers(&p.raw)).map(|(a, b)| (a - b) * (a - b));
            let step = (16.0 * (t.rms() / 8.0).log2()).round() as i16;
            let params = Params::from_sensitivity(step, Some(seed), &t.shape, &moves.collect::<Vec<_>>());
            Arc::new(Lattice::new(&params, DTYPE, &t.shape).expect("a lattice"))
        };
        let lattices: Vec<Arc<Lattice>> = model.iter().zip(parent).map(|p| lattice(7, p)).collect();
        let before = |(l, p): (&Arc<Lattice>, &Tensor)| {
            let mut rec = vec![0; p.raw.len()];
            on_lattice(l, &p.raw, &mut rec);
            rec
        };
        Lattices {
            model,
            parent: lattices.iter().zip(parent).map(before).collect(),
            lattices,
            rec: room(model),
            out: room(model),
            alone: 0,
            delta: 0,
        }
    }

    pub fn run(&mut self, clock: &mut Clock, check: bool) {
        clock.time("lattice_quantise", || {
            let parts = self.lattices.iter().zip(self.model).zip(&mut self.rec);
            parts.for_each(|((l, t), rec)| on_lattice(l, &t.raw, rec));
        });
        let mut sizes = [0; 2];
        let names = [("lattice_encode", "lattice_decode"), ("lattice_delta_encode", "lattice_delta_decode")];
        for (with, (put, get)) in names.into_iter().enumerate() {
            let parent = (with > 0).then_some(self.parent.as_slice());
            let coded = clock.time(put, || encode(&self.rec, parent, Some(&self.lattices)));
            clock.time(get, || decode(&coded, parent, &mut self.out));
            assert!(!check || self.out == self.rec, "decoded bytes differ");
            sizes[with] = size(&coded);
        }
        [self.alone, self.delta] = sizes;
    }

    pub fn sizes(&self) -> String {
        format!("\"lattice\":{},\"lattice_delta\":{}", self.alone, self.delta)
    }
}

/// A snapshot and the deltas that lead on from it.
pub struct Chain {
    coded: Vec<Vec<Vec<Encoded>>>,
    last: Vec<Vec<u8>>,
    rooms: [Vec<Vec<u8>>; 2],
}

impl Chain {
    pub fn new(model: &[Tensor], bins: u16, step: f64, length: usize) -> Self {
        let mut clock = Clock::default();
        let (mut last, mut next) = (room(model), room(model));
        through_bins(model, bins, &mut last, &mut clock);
        let mut coded = vec![encode(&last, None, None)];
        let mut now: Vec<Tensor> = model.iter().map(|t| moved(t, step, 100)).collect();
        for i in 1..=length as u64 {
            through_bins(&now, bins, &mut next, &mut clock);
            coded.push(encode(&next, Some(&last), None));
            std::mem::swap(&mut last, &mut next);
            now = now.iter().map(|t| moved(t, step, 100 + i)).collect();
        }
        Chain { coded, last, rooms: [room(model), room(model)] }
    }

    pub fn run(&mut self, clock: &mut Clock, check: bool) {
        let Chain { coded, last, rooms } = self;
        let [a, b] = rooms;
        clock.time("snapshot_decode", || decode(&coded[0], None, a));
        clock.time("chain_decode", || {
            decode(&coded[0], None, a);
            for delta in &coded[1..] {
                decode(delta, Some(a), b);
                std::mem::swap(a, b);
            }
        });
        assert!(!check || a == last, "decoded bytes differ");
    }

    pub fn sizes(&self) -> String {
        let deltas: usize = self.coded[1..].iter().map(|c| size(c)).sum();
        format!(
            "\"snapshot\":{},\"chain_deltas\":{deltas},\"chain_length\":{}",
            size(&self.coded[0]),
            self.coded.len() - 1
        )
    }
}
