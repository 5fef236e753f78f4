//! Conformance suite of engines: the CPU's plain code, the kernels on the shim, and a GPU where there is one
//! (`MDL_REQUIRE_CUDA=1`: there has to be). The reference is `CpuEngine::new()`, byte for byte.
//!
//! `MDL_CONFORMANCE=gpu` leaves all but the GPU out, `MDL_CONFORMANCE_SIZES=small` whatever is long: for a run under a
//! sanitizer, and for a quick look. `MDL_FUZZ_SECONDS` is how long `fuzz` goes on, `MDL_FUZZ_SEED` repeats one.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail where they cannot go on")]

mod encoding;
mod quantising;
mod weights;

use crate::xorshift::Xorshift;
use mdl_codec::{
    Bases, CpuEngine, Dtype, Encoded, Engine, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params},
};
use mdl_codec_cuda::{CudaEngine, gpu, shim};
use std::{
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

fn weight(noise: &mut Xorshift) -> f64 {
    (0..4).map(|_| (noise.next() >> 40) as f64 / f64::from(1 << 24) - 0.5).sum::<f64>() * 0.05
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
    let mut noise = Xorshift(seed | 1);
    let mut make = |f: &mut dyn FnMut(&mut Xorshift, usize) -> f64| {
        let mut out = Vec::new();
        (0..n).for_each(|i| put(dtype, f(&mut noise, i), &mut out));
        out
    };
    let weights = make(&mut |r, _| weight(r));
    let step = |from: &[u8], share: u64, r: &mut Xorshift| {
        let mut to = from.to_vec();
        for e in to.chunks_exact_mut(dtype.size()) {
            if r.next() % 100 < share {
                e[0] = e[0].wrapping_add((r.next() % 5) as u8);
            }
        }
        to
    };
    let levels = make(&mut |r, _| f64::from((weight(r) * 60.0) as i32) * 0.0078125);
    let constant = make(&mut |_, _| 0.125);
    let ramp = make(&mut |_, i| (i / 9) as f64);
    let mut r = Xorshift(seed ^ 0x5555);
    let bits: Vec<u8> = (0..n * dtype.size()).map(|_| r.next() as u8).collect();
    let (parent, grandparent) = (step(&weights, 60, &mut r), step(&weights, 90, &mut r));
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
        ("weights", [weights.clone(), parent, grandparent]),
        ("nearly the base", [weights.clone(), few, weights.clone()]),
        ("the base itself", [weights.clone(), weights.clone(), constant.clone()]),
        ("levels", [levels, moved.clone(), moved]),
        ("constant", [constant, weights, ramp.clone()]),
        ("ramp", [ramp.clone(), bits.clone(), ramp]),
        ("any bits", [bits.clone(), bits.iter().rev().copied().collect(), bits]),
    ]
}

/// A tensor without bases, with a base, and with a grandparent too.
fn generations<'a>(base: &'a [u8], grandparent: &'a [u8]) -> [Bases<'a>; 3] {
    [Bases::NONE, Bases::from(base), Bases { base: Some(base), grandparent: Some(grandparent) }]
}

/// Encodes with one engine and decodes with it what the reference made; both must be the reference's.
fn same(engine: &dyn Engine, what: &str, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Scheme {
    let reference = CpuEngine::new();
    let right = reference.encode(dtype, raw, bases, hint).unwrap();
    let made = engine.encode(dtype, raw, bases, hint).unwrap();
    assert_eq!(made.scheme, right.scheme, "{what} on {}", engine.name());
    assert!(made.bytes == right.bytes, "{what} on {}: {} differs", engine.name(), made.scheme.name());
    decodes(engine, what, dtype, &right, bases, raw);
    right.scheme
}

fn decodes(engine: &dyn Engine, what: &str, dtype: Dtype, encoded: &Encoded, bases: Bases<'_>, raw: &[u8]) {
    let mut out = vec![0x5A; raw.len()];
    engine.decode(dtype, &encoded.bytes, bases, &mut out).unwrap();
    assert!(out == raw, "{what} on {}: {} decodes to something else", engine.name(), encoded.scheme.name());
}

/// Tensors, bases, lattices and damage at random: MDL_FUZZ_SEED repeats a run that failed.
#[test]
fn fuzz() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
    let seed = number("MDL_FUZZ_SEED").unwrap_or_else(clock) | 1;
    let end = Instant::now() + Duration::from_secs(number("MDL_FUZZ_SECONDS").unwrap_or(2));
    println!("MDL_FUZZ_SEED={seed}");
    let (engines, mut noise, mut rounds) = (engines(), Xorshift(seed), 0u64);
    while Instant::now() < end {
        let tested = &engines[rounds as usize % engines.len()];
        fuzz_once(tested, &mut noise, &format!("MDL_FUZZ_SEED={seed}, round {rounds}"));
        rounds += 1;
    }
    println!("{rounds} rounds of fuzzing");
    assert!(rounds > 0);
}

fn fuzz_once(tested: &Tested, noise: &mut Xorshift, what: &str) {
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
    let (kind, [mut raw, base, grandparent]) = all.swap_remove(below(all.len()));
    let (_, [stranger, ..]) = all.swap_remove(below(all.len()));
    let bases = match below(5) {
        0 => Bases::NONE,
        1 => Bases::from(base.as_slice()),
        2 => Bases::from(stranger.as_slice()),
        3 => Bases { base: Some(&base), grandparent: Some(&stranger) },
        _ => Bases { base: Some(&base), grandparent: Some(&grandparent) },
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
    same(tested.engine(), &what, dtype, &raw, bases, hint.as_ref());
    assert_eq!(tested.failures(), failures, "{what}: left to the processor");

    let reference = CpuEngine::new();
    let mut bytes = reference.encode(dtype, &raw, bases, hint.as_ref()).unwrap().bytes;
    match below(2) {
        0 => bytes.truncate(below(bytes.len())),
        _ => (0..=below(3)).for_each(|_| {
            let bit = below(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }),
    }
    let (mut right, mut found) = (vec![0; raw.len()], vec![0; raw.len()]);
    let sound = reference.decode(dtype, &bytes, bases, &mut right).is_ok();
    let taken = tested.engine().decode(dtype, &bytes, bases, &mut found).is_ok();
    assert_eq!(sound, taken, "{what}, damaged");
    assert!(!sound || right == found, "{what}, damaged");
}
