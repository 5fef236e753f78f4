//! Conformance suite of engines: the CPU's plain code, the kernels on the shim, and a GPU where there is one
//! (`MDL_REQUIRE_CUDA=1`: there has to be). The reference is `CpuEngine::new()`, byte for byte.
//!
//! `MDL_CONFORMANCE=gpu` leaves all but the GPU out, `MDL_CONFORMANCE_SIZES=small` whatever is long: for a run under a
//! sanitizer. `MDL_FUZZ_SECONDS` is how long `fuzz` goes on, `MDL_FUZZ_SEED` repeats one.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail where they cannot go on")]

use mdl_codec::{
    CodecError, CpuEngine, Dtype, Encoded, Engine, Relatives, Scheme,
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Hint, Lattice, Outcome, Params, Reason},
        restore,
    },
};
use mdl_codec_cuda::{CudaEngine, gpu, shim};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// Every engine that this machine has. One on a device must not leave work to the processor, which would prove nothing.
fn engines() -> Vec<Tested> {
    let mut all = match asked("MDL_CONFORMANCE", "gpu") {
        true => Vec::new(),
        false => vec![Tested::Plain(CpuEngine::portable()), Tested::Device(shim(1 << 30))],
    };
    match gpu(0) {
        Ok(gpu) => all.push(Tested::Device(gpu)),
        Err(why) => {
            let required = std::env::var_os("MDL_REQUIRE_CUDA").is_some();
            assert!(!required && !all.is_empty(), "{why}");
            eprintln!("SKIPPED on a GPU: {why}");
        }
    }
    all
}

fn asked(variable: &str, value: &str) -> bool {
    std::env::var(variable).is_ok_and(|v| v == value)
}

/// Whether a tensor of `n` elements is short enough for this run.
fn short_enough(n: usize) -> bool {
    n <= 65_000 || !asked("MDL_CONFORMANCE_SIZES", "small")
}

/// An engine under test.
enum Tested {
    Plain(CpuEngine),
    Device(CudaEngine),
}

impl Tested {
    /// The engine. Callers expect sound bytes: see `failures`.
    fn engine(&self) -> &dyn Engine {
        match self {
            Tested::Plain(e) => e,
            Tested::Device(e) => e,
        }
    }

    /// How often a device left work to the processor.
    fn failures(&self) -> u64 {
        match self {
            Tested::Plain(_) => 0,
            Tested::Device(e) => e.failures(),
        }
    }

    /// Asserts that the device did everything that it was asked to.
    fn never_failed(&self) {
        let name = self.engine().name();
        assert_eq!(self.failures(), 0, "{name} left work to the processor");
    }
}

/// Xorshift: the same numbers on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn weight(&mut self) -> f64 {
        (0..4).map(|_| (self.next() >> 40) as f64 / f64::from(1 << 24) - 0.5).sum::<f64>() * 0.05
    }
}

/// A number as an element of a float dtype; of others, its bits in some way.
fn put(dtype: Dtype, x: f64, out: &mut Vec<u8>) {
    let narrow = (x as f32).to_bits();
    match dtype {
        Dtype::F64 => out.extend(x.to_le_bytes()),
        Dtype::F32 => out.extend(narrow.to_le_bytes()),
        Dtype::BF16 => out.extend(((narrow >> 16) as u16).to_le_bytes()),
        Dtype::C64 => out.extend([narrow.to_le_bytes(), (narrow ^ 7).to_le_bytes()].concat()),
        Dtype::C128 => out.extend([x.to_le_bytes(), (-x).to_le_bytes()].concat()),
        // A half of about the right size: its exponent is the float's, moved.
        Dtype::F16 => {
            let sign = (narrow >> 16 & 0x8000) as u16;
            let exponent = ((narrow >> 23 & 255) as i32 - 112).clamp(0, 30) as u16;
            out.extend((sign | exponent << 10 | (narrow >> 13 & 0x3ff) as u16).to_le_bytes());
        }
        other => out.extend(&((x * 4000.0) as i64).to_le_bytes()[..other.size()]),
    }
}

/// What a tensor may look like: itself, its base, its grandparent.
type Family = [Vec<u8>; 3];

fn families(dtype: Dtype, n: usize, seed: u64) -> Vec<(&'static str, Family)> {
    let mut noise = Noise(seed | 1);
    let mut make = |f: &mut dyn FnMut(&mut Noise, usize) -> f64| {
        let mut out = Vec::new();
        (0..n).for_each(|i| put(dtype, f(&mut noise, i), &mut out));
        out
    };
    let weights = make(&mut |r, _| r.weight());
    let step = |from: &[u8], share: u64, r: &mut Noise| {
        let mut to = from.to_vec();
        for e in to.chunks_exact_mut(dtype.size()) {
            if r.next() % 100 < share {
                e[0] = e[0].wrapping_add((r.next() % 5) as u8);
            }
        }
        to
    };
    let levels = make(&mut |r, _| f64::from((r.weight() * 60.0) as i32) * 0.0078125);
    let constant = make(&mut |_, _| 0.125);
    let ramp = make(&mut |_, i| (i / 9) as f64);
    let mut r = Noise(seed ^ 0x5555);
    let bits: Vec<u8> = (0..n * dtype.size()).map(|_| r.next() as u8).collect();
    let (parent, grand) = (step(&weights, 60, &mut r), step(&weights, 90, &mut r));
    let (few, quantised) = (step(&weights, 1, &mut r), step(&levels, 0, &mut r));
    let mut moved = quantised.clone();
    let size = dtype.size();
    for i in 0..n {
        if r.next().is_multiple_of(20) {
            let j = (r.next() % n as u64) as usize;
            let other = quantised[j * size..(j + 1) * size].to_vec();
            moved[i * size..(i + 1) * size].copy_from_slice(&other);
        }
    }
    vec![
        ("weights", [weights.clone(), parent, grand]),
        ("nearly the base", [weights.clone(), few, weights.clone()]),
        ("the base itself", [weights.clone(), weights.clone(), constant.clone()]),
        ("levels", [levels, moved.clone(), moved]),
        ("constant", [constant, weights, ramp.clone()]),
        ("ramp", [ramp.clone(), bits.clone(), ramp]),
        ("any bits", [bits.clone(), bits.iter().rev().copied().collect(), bits]),
    ]
}

const SIZES: [usize; 9] = [0, 1, 31, 32, 33, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1];

/// Encodes with one engine and decodes with it what the reference made; both must be the reference's.
fn same(
    engine: &dyn Engine,
    what: &str,
    dtype: Dtype,
    raw: &[u8],
    relatives: Relatives<'_>,
    hint: Option<&Hint>,
) -> Scheme {
    let reference = CpuEngine::new();
    let right = reference.encode(dtype, raw, relatives, hint).unwrap();
    let made = engine.encode(dtype, raw, relatives, hint).unwrap();
    assert_eq!(made.scheme, right.scheme, "{what} on {}", engine.name());
    assert!(made.bytes == right.bytes, "{what} on {}: {} differs", engine.name(), made.scheme.name());
    decodes(engine, what, dtype, &right, relatives, raw);
    right.scheme
}

fn decodes(engine: &dyn Engine, what: &str, dtype: Dtype, encoded: &Encoded, relatives: Relatives<'_>, raw: &[u8]) {
    let mut out = vec![0x5A; raw.len()];
    engine.decode(dtype, &encoded.bytes, relatives, &mut out).unwrap();
    assert!(out == raw, "{what} on {}: {} decodes to something else", engine.name(), encoded.scheme.name());
}

#[test]
fn every_dtype_and_odd_size_gives_the_reference_bytes() {
    let engines = engines();
    let mut seen = BTreeSet::new();
    for dtype in Dtype::ALL {
        for n in SIZES {
            // One MiB is enough for a slow device, and blocks' edges look alike in all types of a size.
            let widest = matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F8E4M3);
            if n * dtype.size() > (1 << 20) + 64 || (n > 5000 && !widest) || !short_enough(n) {
                continue;
            }
            for (kind, [raw, base, grand]) in families(dtype, n, 77 + n as u64) {
                for relatives in [
                    Relatives::NONE,
                    Relatives::from(base.as_slice()),
                    Relatives { base: Some(&base), grand: Some(&grand) },
                ] {
                    for engine in &engines {
                        let what = format!(
                            "{n} {dtype}, {kind}, {} relatives",
                            relatives.base.iter().len() + relatives.grand.iter().len()
                        );
                        seen.insert(same(engine.engine(), &what, dtype, &raw, relatives, None));
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
    let all: BTreeSet<Scheme> = [
        Scheme::Stored,
        Scheme::Zstd,
        Scheme::Planes,
        Scheme::Delta,
        Scheme::Sparse,
        Scheme::Palette,
        Scheme::PaletteDelta,
        Scheme::PaletteDelta2,
    ]
    .into();
    assert_eq!(seen, all, "every scheme that needs no hint is chosen by something here");
}

#[test]
fn schemes_that_were_not_chosen_decode_too() {
    let reference = CpuEngine::new();
    for engine in engines() {
        for dtype in Dtype::ALL {
            for (kind, [raw, base, grand]) in families(dtype, 5003, 9) {
                let relatives = Relatives { base: Some(&base), grand: Some(&grand) };
                for scheme in [
                    Scheme::Zstd,
                    Scheme::Planes,
                    Scheme::Delta,
                    Scheme::Sparse,
                    Scheme::Palette,
                    Scheme::PaletteDelta,
                    Scheme::PaletteDelta2,
                ] {
                    let encoded = reference.encode_as(scheme, dtype, &raw, relatives, None).unwrap();
                    decodes(engine.engine(), &format!("{dtype}, {kind}"), dtype, &encoded, relatives, &raw);
                }
            }
        }
        engine.never_failed();
    }
}

#[test]
fn lattices_give_the_reference_bytes() {
    let engines = engines();
    let mut seen = BTreeSet::new();
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        for shape in [vec![1], vec![33], vec![7, 33], vec![64, 1000], vec![4100, 64]] {
            let n: usize = shape.iter().product();
            if !short_enough(n) {
                continue;
            }
            let mut noise = Noise(n as u64 + 5);
            let mut raw = Vec::new();
            (0..n).for_each(|_| put(dtype, noise.weight(), &mut raw));
            let factor = |i: usize| [0x3F80u16, 0x4000, 0x3F00][i % 3];
            let of = |step: i16| Params {
                step,
                rows: if shape.len() > 1 { (0..shape[0]).map(factor).collect() } else { Vec::new() },
                cols: if shape.len() > 1 { (0..shape[1]).map(factor).collect() } else { Vec::new() },
                seed: (step % 2 == 0).then_some(99),
            };
            for step in [-60, -97] {
                let lattice = Arc::new(Lattice::new(&of(step), dtype, &shape).unwrap());
                let quantised = |of: &Lattice, raw: &[u8]| {
                    let mut out = vec![0; raw.len()];
                    assert_eq!(of.quantise(0, raw, &mut out), Ok(Outcome::Quantised));
                    out
                };
                let rec = quantised(&lattice, &raw);
                let mut older = Vec::new();
                for e in raw.chunks_exact(dtype.size()) {
                    let mut e = e.to_vec();
                    e[dtype.size() - 2] = e[dtype.size() - 2].wrapping_add((noise.next() % 3) as u8);
                    older.extend(e);
                }
                let base = quantised(&lattice, &older);
                let hint = Hint::new(lattice, 0);
                for relatives in [
                    Relatives::NONE,
                    Relatives::from(base.as_slice()),
                    Relatives { base: Some(&base), grand: Some(&older) },
                ] {
                    for engine in &engines {
                        let what = format!("{shape:?} {dtype}, step {step}");
                        seen.insert(same(engine.engine(), &what, dtype, &rec, relatives, Some(&hint)));
                        // What is not on the lattice is encoded as if nothing had been said.
                        same(engine.engine(), &what, dtype, &raw, relatives, Some(&hint));
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
    for scheme in [Scheme::Lattice, Scheme::LatticeDelta, Scheme::LatticeDelta2] {
        assert!(seen.contains(&scheme), "{}", scheme.name());
    }
}

#[test]
fn a_lossy_commit_of_bins_gives_the_reference_bytes() {
    let cuts = Cuts { prune_magnitude: 0.002, protect_magnitude: 0.09, ..Cuts::NONE };
    let mut noise = Noise(4);
    let mut weights: Vec<f64> =
        (0..if short_enough(200_000) { 200_000 } else { 5000 }).map(|_| noise.weight()).collect();
    let mut versions = Vec::new();
    for _ in 0..3 {
        let mut raw = Vec::new();
        weights.iter_mut().for_each(|w| {
            *w += noise.weight() * 0.02;
            put(Dtype::F32, *w, &mut raw);
        });
        let values = Values::new(Dtype::F32, &raw).unwrap();
        let book = Codebook::exact(&Sketch::of(values), 12).unwrap();
        let mut out = vec![0; raw.len()];
        assert!(restore(values, None, &cuts, &book, &mut out).unwrap());
        versions.push(out);
    }
    let [grand, base, raw] = [&versions[0], &versions[1], &versions[2]];
    for engine in engines() {
        let family = Relatives { base: Some(base), grand: Some(grand) };
        same(engine.engine(), "bins", Dtype::F32, raw, Relatives::NONE, None);
        same(engine.engine(), "bins", Dtype::F32, raw, Relatives::from(base.as_slice()), None);
        assert_eq!(same(engine.engine(), "bins", Dtype::F32, raw, family, None), Scheme::PaletteDelta2);
        engine.never_failed();
    }
}

/// Tensors, bases, lattices and damage at random: MDL_FUZZ_SEED repeats a run that failed.
#[test]
fn fuzz() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
    let seed = number("MDL_FUZZ_SEED").unwrap_or_else(clock) | 1;
    let end = Instant::now() + Duration::from_secs(number("MDL_FUZZ_SECONDS").unwrap_or(2));
    println!("MDL_FUZZ_SEED={seed}");
    let (engines, mut noise, mut rounds) = (engines(), Noise(seed), 0u64);
    while Instant::now() < end {
        let tested = &engines[rounds as usize % engines.len()];
        fuzz_once(tested, &mut noise, &format!("MDL_FUZZ_SEED={seed}, round {rounds}"));
        rounds += 1;
    }
    println!("{rounds} rounds of fuzzing");
    assert!(rounds > 0);
}

fn fuzz_once(tested: &Tested, noise: &mut Noise, what: &str) {
    let mut below = |n: usize| noise.next() as usize % n.max(1);
    let dtype = Dtype::ALL[below(Dtype::ALL.len())];
    let fast = !matches!(tested, Tested::Device(e) if e.name().starts_with("shim"));
    let most = match (fast && short_enough(usize::MAX), below(8)) {
        (true, 0) => (1 << 22) / dtype.size(),
        (_, 1..4) => 5000,
        _ => 300,
    };
    let n = below(most + 1);
    let mut all = families(dtype, n, below(usize::MAX) as u64);
    let (kind, [mut raw, base, grand]) = all.swap_remove(below(all.len()));
    let (_, [stranger, ..]) = all.swap_remove(below(all.len()));
    let relatives = match below(5) {
        0 => Relatives::NONE,
        1 => Relatives::from(base.as_slice()),
        2 => Relatives::from(stranger.as_slice()),
        3 => Relatives { base: Some(&base), grand: Some(&stranger) },
        _ => Relatives { base: Some(&base), grand: Some(&grand) },
    };
    let params = Params {
        step: below(80) as i16 - 130,
        seed: (below(2) == 0).then(|| below(1 << 40) as u64),
        ..Params::default()
    };
    let lattice = Lattice::new(&params, dtype, &[n]).ok().filter(|_| below(3) == 0);
    let hint = lattice.map(|lattice| {
        let mut out = vec![0; raw.len()];
        if lattice.quantise(0, &raw, &mut out) == Ok(Outcome::Quantised) {
            raw = out;
        }
        Hint::new(Arc::new(lattice), 0)
    });
    let what = format!("{what}: {n} {dtype}, {kind}");
    let failures = tested.failures();
    same(tested.engine(), &what, dtype, &raw, relatives, hint.as_ref());
    assert_eq!(tested.failures(), failures, "{what}: left to the processor");

    let reference = CpuEngine::new();
    let mut bytes = reference.encode(dtype, &raw, relatives, hint.as_ref()).unwrap().bytes;
    match below(2) {
        0 => bytes.truncate(below(bytes.len())),
        _ => (0..=below(3)).for_each(|_| {
            let bit = below(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }),
    }
    let (mut right, mut found) = (vec![0; raw.len()], vec![0; raw.len()]);
    let sound = reference.decode(dtype, &bytes, relatives, &mut right).is_ok();
    let taken = tested.engine().decode(dtype, &bytes, relatives, &mut found).is_ok();
    assert_eq!(sound, taken, "{what}, damaged");
    assert!(!sound || right == found, "{what}, damaged");
}

#[test]
fn damaged_bytes_are_refused_or_decode_as_the_reference_does() {
    let reference = CpuEngine::new();
    let (_, [raw, base, grand]) = families(Dtype::BF16, 300, 3).swap_remove(0);
    let relatives = Relatives { base: Some(&base), grand: Some(&grand) };
    for engine in engines() {
        for scheme in [Scheme::Planes, Scheme::Delta, Scheme::Sparse, Scheme::Zstd, Scheme::Stored] {
            let whole = reference.encode_as(scheme, Dtype::BF16, &raw, relatives, None).unwrap().bytes;
            let mut bad: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
            bad.extend((0..8 * whole.len()).step_by(7).map(|bit| {
                let mut b = whole.clone();
                b[bit / 8] ^= 1 << (bit % 8);
                b
            }));
            for bytes in bad {
                let (mut a, mut b) = (vec![0; raw.len()], vec![0; raw.len()]);
                let right = reference.decode(Dtype::BF16, &bytes, relatives, &mut a);
                let found = engine.engine().decode(Dtype::BF16, &bytes, relatives, &mut b);
                assert_eq!(right.is_ok(), found.is_ok(), "{} on {}", scheme.name(), engine.engine().name());
                assert!(right.is_err() || a == b, "{} on {}", scheme.name(), engine.engine().name());
            }
        }
    }
}

#[test]
fn a_device_without_memory_leaves_the_work_to_the_processor() {
    if asked("MDL_CONFORMANCE", "gpu") {
        return;
    }
    let (_, [raw, base, _]) = families(Dtype::F32, 100_000, 8).swap_remove(0);
    let relatives = Relatives::from(base.as_slice());
    let right = CpuEngine::new().encode(Dtype::F32, &raw, relatives, None).unwrap();
    for memory in [0, 5_000, 500_000, 900_000] {
        let tight = shim(memory);
        assert_eq!(tight.encode(Dtype::F32, &raw, relatives, None).unwrap(), right, "{memory}");
        let mut out = vec![0; raw.len()];
        Engine::decode(&tight, Dtype::F32, &right.bytes, relatives, &mut out).unwrap();
        assert!(out == raw, "{memory}");
    }
}

const FLOATS: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];

/// Sums as bits: a NaN is one, too.
fn bits(d: Deviation) -> [u64; 3] {
    [d.max_abs, d.deviation, d.weight].map(f64::to_bits)
}

/// Numbers, and perhaps their gradient.
type Given<'a> = (Values<'a>, Option<Values<'a>>);

/// Everything that bins ask of an engine, by two of them.
fn bins_alike(engine: &dyn Engine, what: &str, (w, g): Given<'_>, cuts: &Cuts, book: &Codebook) {
    let reference = CpuEngine::new();
    let what = format!("{what} on {}", engine.name());
    assert_eq!(engine.sketch(w), Ok(Sketch::of(w)), "{what}");
    if let Some(g) = g {
        assert_eq!(engine.survey(w, g), reference.survey(w, g), "{what}");
    }
    let rest = mdl_codec::quant::rest(w, g, cuts);
    assert_eq!(engine.rest(w, g, cuts), rest, "{what}");
    let (mut right, mut found) = (vec![0; w.bytes().len()], vec![0x5A; w.bytes().len()]);
    let said = restore(w, g, cuts, book, &mut right);
    assert_eq!(engine.restore(w, g, cuts, book, &mut found), said, "{what}");
    assert!(said != Ok(true) || right == found, "{what}: another reconstruction");
    let mut measured = vec![0x5A; right.len()];
    let apart = engine.restore_measured(w, g, cuts, book, &mut measured);
    if let Ok(Some(apart)) = &apart {
        assert!(right == measured, "{what}: another reconstruction when measured");
        let wanted = Deviation::between(w.dtype(), w.bytes(), &right).unwrap();
        assert_eq!(bits(*apart), bits(wanted), "{what}");
    }
    assert_eq!(apart.map(|d| d.is_some()), said, "{what}");
}

/// Cuts of every kind: none, both classes, and such that need no bin.
fn some_cuts() -> [Cuts; 3] {
    let all = Cuts { prune_magnitude: f32::INFINITY, ..Cuts::NONE };
    let some =
        Cuts { prune_magnitude: 0.002, prune_sensitivity: 1e-5, protect_magnitude: 0.09, protect_sensitivity: 2e-3 };
    [Cuts::NONE, some, all]
}

#[test]
fn bins_are_the_references() {
    let engines = engines();
    let books = [Codebook::new(&[]), Codebook::new(&[-0.06, -0.011, 0.0, 0.02, 0.3])].map(|b| b.unwrap());
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        // The last ones take more than a piece of a device.
        for n in [0, 1, 31, 1000, 4097, 70_001, 2_100_000 / dtype.size() + 1] {
            if !short_enough(n) {
                continue;
            }
            let slopes = FLOATS[(i + n) % 4];
            let gradients = families(slopes, n, 5);
            for (k, (kind, [raw, ..])) in families(dtype, n, 3).iter().enumerate() {
                // Long ones once with numbers and once with whatever bits there are.
                if n > 5000 && !["weights", "any bits"].contains(kind) {
                    continue;
                }
                let w = Values::new(dtype, raw).unwrap();
                let [plain, wild] = [0, 6].map(|j| Values::new(slopes, &gradients[j].1[0]).unwrap());
                for (j, g) in [None, Some(plain), Some(wild)].into_iter().enumerate() {
                    let which = (j + k + n) % 3;
                    let cuts = &some_cuts()[which];
                    // Where everything is pruned a bin is of no use.
                    let book = &books[usize::from(which < 2 || j == 2)];
                    for engine in &engines {
                        let what =
                            format!("{n} {dtype}, {kind}, gradient {j} of {slopes}, {cuts:?}, {} bins", book.len());
                        bins_alike(engine.engine(), &what, (w, g), cuts, book);
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
}

#[test]
fn lattices_quantise_as_the_reference_does() {
    let engines = engines();
    let mut seen = BTreeSet::new();
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        for shape in [vec![0], vec![1], vec![33, 7], vec![64, 1001], vec![1100, 1001]] {
            let n: usize = shape.iter().product();
            let factor = |i: usize| [0x3F80u16, 0x4000, 0x3F00][i % 3];
            for (step, factors) in [(-60, true), (-97, false), (-400, false), (12, true)] {
                let rare = n > 100_000 && step != -60 && (dtype, step) != (Dtype::F32, -97);
                if rare || !short_enough(n) {
                    continue;
                }
                let factors = factors && shape.len() > 1;
                let params = Params {
                    step,
                    rows: (0..shape[0]).filter(|_| factors).map(factor).collect(),
                    cols: (0..n / shape[0].max(1)).filter(|_| factors).map(factor).collect(),
                    seed: (step % 2 == 0).then_some(99),
                };
                let lattice = Lattice::new(&params, dtype, &shape).unwrap();
                for (kind, [raw, ..]) in families(dtype, n, 21) {
                    if n > 5000 && !["weights", "any bits", "ramp"].contains(&kind) {
                        continue;
                    }
                    for start in [0, n / 3] {
                        let w = &raw[start * dtype.size()..];
                        let mut right = vec![0; w.len()];
                        let outcome = lattice.quantise(start, w, &mut right).unwrap();
                        seen.insert(match outcome {
                            Outcome::Quantised => None,
                            Outcome::Lossless(why) => Some(why),
                        });
                        for engine in engines.iter().map(Tested::engine) {
                            let what = format!("{shape:?} {dtype}, {kind}, step {step} on {}", engine.name());
                            let (mut found, mut measured) = (vec![0; w.len()], vec![0; w.len()]);
                            assert_eq!(engine.quantise(&lattice, start, w, &mut found), Ok(outcome), "{what}");
                            let apart = engine.quantise_measured(&lattice, start, w, &mut measured).unwrap();
                            assert_eq!(apart.is_some(), outcome == Outcome::Quantised, "{what}");
                            if let Some(apart) = apart {
                                assert!(found == right && measured == right, "{what}");
                                let wanted = Deviation::between(dtype, w, &right).unwrap();
                                assert_eq!(bits(apart), bits(wanted), "{what}");
                            }
                        }
                    }
                }
            }
        }
    }
    engines.iter().for_each(Tested::never_failed);
    for why in [None, Some(Reason::TooLarge), Some(Reason::NotFinite)] {
        assert!(seen.contains(&why), "{why:?}");
    }
}

#[test]
fn deviations_are_the_references() {
    for tested in engines() {
        let engine = tested.engine();
        for dtype in FLOATS {
            for n in [0, 1, 4097, 65_537, 2_100_000 / dtype.size() + 1] {
                if !short_enough(n) {
                    continue;
                }
                for (kind, [raw, rec, _]) in families(dtype, n, 13) {
                    if n > 5000 && !["weights", "any bits"].contains(&kind) {
                        continue;
                    }
                    let wanted = Deviation::between(dtype, &raw, &rec).unwrap();
                    let found = engine.deviation(dtype, &raw, &rec).unwrap();
                    assert_eq!(bits(found), bits(wanted), "{n} {dtype}, {kind} on {}", engine.name());
                }
            }
        }
        tested.never_failed();
    }
}

#[test]
fn what_the_reference_refuses_to_quantise_every_engine_refuses() {
    let raw = vec![0x3C; 4096];
    let [w, short] = [&raw[..], &raw[..4092]].map(|b| Values::new(Dtype::F32, b).unwrap());
    let (book, none) = (Codebook::new(&[0.01]).unwrap(), Codebook::new(&[]).unwrap());
    let lattice = Lattice::new(&Params::default(), Dtype::F32, &[1024]).unwrap();
    for engine in engines() {
        let e = engine.engine();
        let refused = |said: Result<(), CodecError>| assert!(matches!(said, Err(CodecError::BadInput(_))), "{said:?}");
        let mut out = vec![0; 4096];
        refused(e.survey(w, short).map(drop));
        refused(e.rest(w, Some(short), &Cuts::NONE).map(drop));
        for (g, book, len) in [(Some(short), &book, 4096), (None, &book, 4092), (None, &none, 4096)] {
            refused(e.restore(w, g, &Cuts::NONE, book, &mut out[..len]).map(drop));
            refused(e.restore_measured(w, g, &Cuts::NONE, book, &mut out[..len]).map(drop));
        }
        for (start, len, room) in [(1, 4096, 4096), (0, 4096, 4092), (0, 4095, 4095)] {
            refused(e.quantise(&lattice, start, &raw[..len], &mut out[..room]).map(drop));
            refused(e.quantise_measured(&lattice, start, &raw[..len], &mut out[..room]).map(drop));
        }
        refused(e.deviation(Dtype::F32, &raw, &raw[..4092]).map(drop));
        refused(e.deviation(Dtype::F32, &raw[..4095], &raw[..4095]).map(drop));
        refused(e.deviation(Dtype::I32, &raw, &raw).map(drop));
    }
}

#[test]
fn a_device_quantises_by_itself_where_it_has_the_memory() {
    if asked("MDL_CONFORMANCE", "gpu") {
        return;
    }
    let (_, [raw, slopes, _]) = families(Dtype::F32, 300_000, 8).swap_remove(0);
    let [w, g] = [&raw, &slopes].map(|b| Values::new(Dtype::F32, b).unwrap());
    let book = Codebook::exact(&Sketch::of(w), 12).unwrap();
    let params = Params { step: -60, ..Params::default() };
    let lattice = Lattice::new(&params, Dtype::F32, &[300_000]).unwrap();
    for memory in [0, 500_000, 5_000_000, 1 << 30] {
        let device = shim(memory);
        for cuts in some_cuts() {
            bins_alike(&device, "weights", (w, None), &cuts, &book);
            bins_alike(&device, "weights", (w, Some(g)), &cuts, &book);
        }
        let (mut right, mut found) = (vec![0; raw.len()], vec![0; raw.len()]);
        assert_eq!(lattice.quantise(0, &raw, &mut right), Ok(Outcome::Quantised));
        let up = mdl_codec::Device::traffic(&device).0;
        let apart = device.quantise_measured(&lattice, 0, &raw, &mut found).unwrap();
        let up = mdl_codec::Device::traffic(&device).0 - up;
        let wanted = Deviation::between(Dtype::F32, &raw, &right).unwrap();
        assert_eq!(device.deviation(Dtype::F32, &raw, &right), Ok(wanted));
        assert!(apart == Some(wanted) && found == right);
        if memory == 1 << 30 {
            assert_eq!(device.failures(), 0, "the processor was not needed");
            assert!(up < raw.len() as u64 + 100_000, "one copy is enough: {up}");
        } else if memory < 1 << 20 {
            assert!(device.failures() > 0);
        }
    }
}
