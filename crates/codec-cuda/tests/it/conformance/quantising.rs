//! Quantised numbers of every engine, and how far they are off, are the reference's.

use super::{Tested, asked, engines, families, short_enough};
use mdl_codec::{
    CodecError, CpuEngine, Dtype, Engine,
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Lattice, Outcome, Params, Reason},
        restore,
    },
};
use mdl_codec_cuda::shim;
use std::collections::BTreeSet;

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
    assert_eq!(engine.sketch(w), Ok(Sketch::from_values(w)), "{what}");
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
    let book = Codebook::exact(&Sketch::from_values(w), 12).unwrap();
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
