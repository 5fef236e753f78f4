//! Partition, levels and reconstruction as properties, and hostile tensors.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use mdl_codec::{
    Dtype,
    quant::{
        Codebook, Config, Cuts, Metric, Quantised, Role, Sketch, Survey, Values, Verdict, quantise, reconstruct, rest,
        rest_of, restore,
    },
};
use proptest::{collection::vec, prelude::*};

const FLOATS: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn values(bytes: &[u8]) -> Values<'_> {
    Values::new(Dtype::F32, bytes).unwrap()
}

/// Numbers of weights' sizes, a pure function of the index.
fn weights(n: usize) -> Vec<f32> {
    let mix = |i: usize| (i as u32).wrapping_mul(2_654_435_761) ^ (i as u32 >> 7).wrapping_mul(40_503);
    let unit = |x: u32| f64::from(x) / 4_294_967_296.0 - 0.5;
    (0..n).map(|i| (unit(mix(i)) + unit(mix(i + n)) + unit(mix(i + 2 * n))) as f32 * 0.05).collect()
}

/// Everything from numbers to levels, as a caller does it for one tensor.
fn run(w: Values<'_>, g: Option<Values<'_>>, config: &Config, role: Role) -> Option<(Quantised, Codebook, Cuts)> {
    let mut survey = Survey::default();
    if survey.add(role, w, g).unwrap() == Verdict::Lossless {
        return None;
    }
    let cuts = survey.thresholds(config).unwrap().cuts(role);
    let codebook = Codebook::exact(&rest(w, g, &cuts).unwrap(), config.bins_of(role)).unwrap();
    let quantised = quantise(w, g, &cuts, &codebook).unwrap().unwrap();
    Some((quantised, codebook, cuts))
}

fn config() -> impl Strategy<Value = Config> {
    let fraction = || prop_oneof![Just(0.0), 0.0..=1.0];
    (1u16..=256, 1u16..=256, fraction(), fraction(), any::<bool>()).prop_map(
        |(bins, embedding_bins, prune, protect, s)| {
            let metric = if s { Metric::Sensitivity } else { Metric::Magnitude };
            Config { bins, embedding_bins, prune, protect, metric }
        },
    )
}

/// Bytes of any finite floats, of the size of weights, or few different ones.
fn tensor() -> impl Strategy<Value = (Dtype, Vec<u8>)> {
    let bits = prop_oneof![any::<u64>(), 0x3F80_0000_0000_0000u64..0x3FC0_0000_0000_0000, 0u64..3];
    (0usize..4, vec(bits, 0..400)).prop_map(|(d, bits)| {
        let dtype = FLOATS[d];
        let size = dtype.size();
        let element = |b: &u64| {
            let e = (b >> (64 - 8 * size)).to_le_bytes();
            let finite = Sketch::from_values(Values::new(dtype, &e[..size]).unwrap()).non_finite() == 0;
            if finite { e[..size].to_vec() } else { vec![0; size] }
        };
        (dtype, bits.iter().flat_map(element).collect())
    })
}

fn widen(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let half = |e: &[u8]| {
        let bits = u16::from_le_bytes([e[0], e[1]]);
        let (sign, exponent, mantissa) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 0x3FF));
        let magnitude = if exponent == 31 {
            f64::INFINITY
        } else {
            let whole = if exponent == 0 { mantissa } else { mantissa + 1024.0 };
            whole * 2f64.powi(exponent.max(1) - 25)
        };
        if sign == 1 { -magnitude } else { magnitude }
    };
    let number = |e: &[u8]| match dtype {
        Dtype::F64 => f64::from_le_bytes(e.try_into().unwrap()),
        Dtype::F32 => f64::from(f32::from_le_bytes(e.try_into().unwrap())),
        Dtype::F16 => half(e),
        _ => f64::from(f32::from_bits(u32::from(u16::from_le_bytes([e[0], e[1]])) << 16)),
    };
    bytes.chunks_exact(dtype.size()).map(number).collect()
}

proptest! {
    // A survey is 14 sketches of half a megabyte: fewer cases than the default.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn levels_and_reconstruction_agree((dtype, bytes) in tensor(), config in config()) {
        let w = Values::new(dtype, &bytes).unwrap();
        // The numbers reversed are as good a gradient as any.
        let g: Vec<u8> = bytes.chunks_exact(dtype.size()).rev().flatten().copied().collect();
        let g = Some(Values::new(dtype, &g).unwrap()).filter(|_| config.metric == Metric::Sensitivity);
        // Without a number there is no gradient to prune by.
        prop_assume!(!(w.is_empty() && g.is_some() && config.prune > 0.0));
        let mut survey = Survey::default();
        survey.add(Role::Linear, w, g).unwrap();
        // All sensitivities may have overflowed.
        prop_assume!(survey.thresholds(&config).is_ok());
        let (q, codebook, _) = run(w, g, &config, Role::Linear).unwrap();
        let bins = codebook.len() as u16;
        prop_assert!(bins <= config.bins);
        let restored = reconstruct(dtype, &q, &codebook).unwrap();
        prop_assert_eq!(restored.len(), bytes.len());
        let (was, is) = (widen(dtype, &bytes), widen(dtype, &restored));
        let book: Vec<f64> = codebook.values().map(f64::from).collect();
        let count = |level: u16| q.levels.iter().filter(|&&l| l == level).count() as f64;
        prop_assert_eq!(count(bins + 1) as usize, q.protected.len());
        prop_assert!(count(bins) <= config.prune * w.len() as f64);
        prop_assert!(count(bins + 1) <= 2.0 * (config.protect / 2.0 * w.len() as f64).ceil());
        for (i, &level) in q.levels.iter().enumerate() {
            prop_assert!(is[i].is_finite());
            if level < bins {
                let at = book[usize::from(level)];
                prop_assert!(dtype == Dtype::F16 || is[i] == at);
                // Nearest up to the key's width: half of it to either side of the border.
                let least = book.iter().map(|c| (c - was[i]).abs()).fold(f64::INFINITY, f64::min);
                let slack = if w.dtype().size() == 2 { 0.0 } else { was[i].abs() / 128.0 + 1e-40 };
                prop_assert!((at - was[i]).abs() <= least + slack);
            } else if level == bins {
                prop_assert_eq!(is[i].to_bits(), 0);
            } else {
                let slack = was[i].abs() / 256.0 + 1e-40;
                let slack = if dtype == Dtype::F16 { slack + 2f64.powi(-25) } else { slack };
                prop_assert!((is[i] - was[i]).abs() <= slack);
            }
        }
    }

    /// What was restored gives the same levels again: a recommit changes nothing.
    #[test]
    fn bins_are_fixed_points((dtype, bytes) in tensor(), bins in 1u16..64) {
        prop_assume!(dtype != Dtype::F16);
        let w = Values::new(dtype, &bytes).unwrap();
        let codebook = Codebook::exact(&Sketch::from_values(w), bins).unwrap();
        let q = quantise(w, None, &Cuts::NONE, &codebook).unwrap().unwrap();
        let restored = reconstruct(dtype, &q, &codebook).unwrap();
        let again = quantise(Values::new(dtype, &restored).unwrap(), None, &Cuts::NONE, &codebook).unwrap().unwrap();
        prop_assert_eq!(q, again);
    }

    #[test]
    fn surveys_merge(parts in vec(vec(-1.0f32..1.0, 0..50), 1..5), config in config()) {
        let config = Config { metric: Metric::Magnitude, ..config };
        let (mut whole, mut merged) = (Survey::default(), Survey::default());
        for (i, part) in parts.iter().enumerate() {
            let bytes = f32s(part);
            let mut one = Survey::default();
            one.add(Role::ALL[i], values(&bytes), Some(values(&bytes))).unwrap();
            merged.merge(&one);
            whole.add(Role::ALL[i], values(&bytes), Some(values(&bytes))).unwrap();
        }
        prop_assert_eq!(whole.thresholds(&config), merged.thresholds(&config));
        prop_assert_eq!(whole, merged);
    }

    #[test]
    fn broken_levels_are_refused(
        levels in vec(0u16..9, 0..40),
        protected in vec(any::<u16>(), 0..9),
        centres in vec(-1.0f64..1.0, 0..6),
    ) {
        let codebook = Codebook::new(&centres).unwrap();
        let q = Quantised { levels, protected };
        for dtype in Dtype::ALL {
            if let Ok(bytes) = reconstruct(dtype, &q, &codebook) {
                prop_assert_eq!(bytes.len(), q.levels.len() * dtype.size());
                prop_assert!(widen(dtype, &bytes).iter().all(|x| x.is_finite()));
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let n = (1 << 21) + 12_345;
    let (w, g) = (f32s(&weights(n)), f32s(&weights(n + 1)[1..]));
    let config = Config { prune: 0.2, metric: Metric::Sensitivity, ..Config::default() };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (q, codebook, cuts) = run(values(&w), Some(values(&g)), &config, Role::Linear).unwrap();
            let restored = reconstruct(Dtype::F32, &q, &codebook).unwrap();
            (q, codebook, cuts, restored, Sketch::from_values(values(&w)))
        })
    };
    let one = with(1);
    assert!(one.0.protected.len() > n / 200 && one.1.len() == 32);
    for threads in [2, 8] {
        assert!(with(threads) == one, "{threads} threads");
    }
}

#[test]
fn non_finite_tensors_stay_lossless() {
    let mut numbers = weights(20_000);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7F80_0001)] {
        numbers[17_000] = odd;
        let bytes = f32s(&numbers);
        let mut survey = Survey::default();
        assert_eq!(survey.add(Role::Linear, values(&bytes), None), Ok(Verdict::Lossless));
        assert_eq!(survey, Survey::default());
        let codebook = Codebook::new(&[0.0, 1.0]).unwrap();
        assert_eq!(quantise(values(&bytes), None, &Cuts::NONE, &codebook), Ok(None));
        // A broken gradient says nothing about a weight, and breaks nothing.
        let good = f32s(&weights(20_000));
        let config = Config { prune: 0.5, metric: Metric::Sensitivity, ..Config::default() };
        let (q, book, _) = run(values(&good), Some(values(&bytes)), &config, Role::Linear).unwrap();
        assert!(usize::from(q.levels[17_000]) < book.len());
    }
}

#[test]
fn degenerate_tensors() {
    let config = Config { bins: 8, prune: 0.3, ..Config::default() };
    for numbers in [vec![0.0f32; 5000], vec![-0.0; 5000], vec![-0.75; 5000], vec![0.5; 1], vec![], vec![1.0, -1.0]] {
        let bytes = f32s(&numbers);
        let (q, codebook, _) = run(values(&bytes), None, &config, Role::Conv).unwrap();
        let restored = reconstruct(Dtype::F32, &q, &codebook).unwrap();
        let back = widen(Dtype::F32, &restored);
        // Few distinct numbers, all of them bf16 but for the middle of their key: within 2^-8.
        for (x, y) in numbers.iter().zip(back) {
            assert!((f64::from(*x) - y).abs() <= f64::from(x.abs()) / 256.0, "{x} {y}");
        }
    }
}

#[test]
fn outliers_are_protected_and_saturate() {
    let mut numbers = weights(10_000);
    (numbers[3], numbers[77]) = (f32::MAX, f32::MIN);
    let bytes = f32s(&numbers);
    let config = Config { protect: 0.0005, ..Config::default() };
    let (q, codebook, _) = run(values(&bytes), None, &config, Role::Linear).unwrap();
    assert_eq!((q.protected[0], q.protected[1]), (0x7F7F, 0xFF7F));
    assert!(codebook.values().all(|v| v.abs() < 0.1));
    // 65,504 rounds to 65,536 in bf16, which f16 does not have.
    let halves: Vec<u8> =
        (0..5000u16).flat_map(|i| if i == 9 { 0x7BFFu16 } else { 0x2000 + i % 999 }.to_le_bytes()).collect();
    let w = Values::new(Dtype::F16, &halves).unwrap();
    let (q, codebook, _) = run(w, None, &config, Role::Linear).unwrap();
    let restored = reconstruct(Dtype::F16, &q, &codebook).unwrap();
    assert_eq!((q.protected.as_slice(), &restored[18..20]), (&[0x4780][..], &[0xFF, 0x7B][..]));
}

#[test]
fn embeddings_are_never_pruned() {
    let bytes = f32s(&weights(50_000));
    let config = Config { prune: 0.5, bins: 4, embedding_bins: 16, ..Config::default() };
    let (q, codebook, cuts) = run(values(&bytes), None, &config, Role::Embedding).unwrap();
    assert_eq!((codebook.len(), cuts.prune_magnitude), (16, 0.0));
    assert!(!q.levels.contains(&16));
    let (q, codebook, _) = run(values(&bytes), None, &config, Role::Linear).unwrap();
    let pruned = q.levels.iter().filter(|&&l| l == codebook.len() as u16).count();
    assert!((24_500..=25_000).contains(&pruned), "{pruned}");
}

#[test]
fn wrong_use_is_refused() {
    let bytes = f32s(&weights(100));
    let w = values(&bytes);
    let mut survey = Survey::default();
    assert!(survey.add(Role::Linear, w, Some(values(&bytes[4..]))).is_err());
    survey.add(Role::Linear, w, None).unwrap();
    let by_sensitivity = Config { prune: 0.1, metric: Metric::Sensitivity, ..Config::default() };
    assert!(survey.thresholds(&by_sensitivity).is_err());
    for bad in [
        Config { bins: 0, ..Config::default() },
        Config { embedding_bins: 257, ..Config::default() },
        Config { prune: -0.1, ..Config::default() },
        Config { protect: f64::NAN, ..Config::default() },
    ] {
        assert!(survey.thresholds(&bad).is_err());
    }
    let none = Codebook::new(&[]).unwrap();
    assert!(quantise(w, None, &Cuts::NONE, &none).is_err());
    assert!(Codebook::new(&[f64::NAN]).is_err() && Codebook::new(&[1e39]).is_err());
    let many: Vec<f64> = (0..257).map(f64::from).collect();
    assert!(Codebook::new(&many).is_err() && Codebook::new(&many[1..]).is_ok_and(|c| c.len() == 256));
}

#[test]
fn a_warm_start_keeps_the_bins() {
    let (before, after) = (weights(30_000), weights(30_001));
    let book = |n: &[f32]| Codebook::exact(&Sketch::from_values(values(&f32s(n))), 16).unwrap();
    let first = book(&before);
    assert_eq!(first.warmed(&Sketch::from_values(values(&f32s(&before)))), Ok(first.clone()));
    let moved: Vec<f32> = after.iter().map(|x| x * 1.01).collect();
    let warm = first.warmed(&Sketch::from_values(values(&f32s(&moved)))).unwrap();
    assert_eq!(warm.len(), 16);
    let seeded = Codebook::seeded(&Sketch::from_values(values(&f32s(&moved))), 16, 7).unwrap();
    assert_eq!(seeded, Codebook::seeded(&Sketch::from_values(values(&f32s(&moved))), 16, 7).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One pass gives the bytes of the two steps.
    #[test]
    fn restoring_is_quantising_and_reconstructing((dtype, bytes) in tensor(), config in config(), with: bool) {
        let w = Values::new(dtype, &bytes).unwrap();
        let g = Some(w).filter(|_| with && !w.is_empty());
        let config = Config { metric: Metric::Magnitude, ..config };
        let (q, codebook, cuts) = run(w, g, &config, Role::Linear).unwrap();
        let mut out = vec![1; bytes.len()];
        prop_assert_eq!(restore(w, g, &cuts, &codebook, &mut out), Ok(true));
        prop_assert_eq!(out, reconstruct(dtype, &q, &codebook).unwrap());
        // From the sketch of the first pass comes the same codebook.
        let mut survey = Survey::default();
        prop_assert_eq!(survey.add_sketch(Role::Linear, &Sketch::from_values(w)), Verdict::Counted);
        if !with {
            prop_assert_eq!(survey.thresholds(&config).unwrap().cuts(Role::Linear), cuts);
            prop_assert_eq!(rest_of(&Sketch::from_values(w), &cuts), rest(w, None, &cuts).unwrap());
        }
    }
}

#[test]
fn restoring_refuses_what_quantising_refuses() {
    let mut numbers = weights(40_000);
    let codebook = Codebook::new(&[0.0, 1.0]).unwrap();
    let mut out = vec![0; 160_000];
    assert_eq!(restore(values(&f32s(&numbers)), None, &Cuts::NONE, &codebook, &mut out), Ok(true));
    let none = Codebook::new(&[]).unwrap();
    assert!(restore(values(&f32s(&numbers)), None, &Cuts::NONE, &none, &mut out).is_err());
    assert!(restore(values(&f32s(&numbers)), None, &Cuts::NONE, &codebook, &mut out[4..]).is_err());
    for at in [0, 17_003, 39_999] {
        for odd in [f32::NAN, f32::INFINITY, f32::from_bits(0xFF80_0001)] {
            let kept = std::mem::replace(&mut numbers[at], odd);
            assert_eq!(restore(values(&f32s(&numbers)), None, &Cuts::NONE, &codebook, &mut out), Ok(false));
            numbers[at] = kept;
        }
    }
}
