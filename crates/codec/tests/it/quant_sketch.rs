//! The quantile sketch and exact k-means as properties.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use mdl_codec::{
    Dtype,
    quant::{Grid, Points, SIGMA, Sketch, Values, cluster, kmeans, lloyd, plus_plus, uniform},
};
use proptest::{collection::vec, prelude::*};

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn sketch(numbers: &[f32]) -> Sketch {
    Sketch::from_values(Values::new(Dtype::F32, &f32s(numbers)).unwrap())
}

/// Any finite f32, subnormals and zeros included; half of them of the size of weights.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |x| x.is_finite()), -1.0f32..1.0,]
}

/// What weights are like, with outliers.
fn weight() -> impl Strategy<Value = f32> {
    prop_oneof![8 => -1.0f32..1.0, 4 => -1e-2f32..1e-2, 1 => Just(0.0), 1 => -1e4f32..1e4]
}

/// Whether `near` is as close to `x` as `Grid::value` promises.
fn close(near: f32, x: f32) -> bool {
    let (near, x) = (f64::from(near), f64::from(x));
    (near - x).abs() <= (x.abs() / 256.0).max(f64::from(f32::MIN_POSITIVE) / 128.0)
}

proptest! {
    #[test]
    fn quantiles_have_an_exact_rank_and_a_bounded_error(numbers in vec(number(), 1..300), q in 0.0f64..=1.0) {
        let mut sorted: Vec<f32> = numbers.iter().map(|x| x.abs()).collect();
        sorted.sort_by(f32::total_cmp);
        let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
        let s = sketch(&numbers);
        prop_assert!(close(s.quantile_abs(q).unwrap(), sorted[rank - 1]));
        prop_assert_eq!(s.len(), numbers.len() as u64);
    }

    #[test]
    fn thresholds_take_whole_keys_within_the_limit(numbers in vec(number(), 1..300), limit in 0u64..300) {
        let s = sketch(&numbers);
        let (top, bottom) = (s.top(limit), s.bottom(limit));
        let count = |f: &dyn Fn(f32) -> bool| numbers.iter().filter(|x| f(x.abs())).count() as u64;
        prop_assert!(count(&|x| x >= top) <= limit);
        prop_assert!(count(&|x| x < bottom) <= limit);
        // One key more would be too much.
        let key = |x: f32| x.to_bits() >> 16;
        let next_down = numbers.iter().map(|x| x.abs()).filter(|&x| x < top).map(key).max();
        prop_assert!(next_down.is_none_or(|k| count(&|x| key(x) >= k) > limit));
        let next_up = numbers.iter().map(|x| x.abs()).filter(|&x| x >= bottom).map(key).min();
        prop_assert!(next_up.is_none_or(|k| count(&|x| key(x) <= k) > limit));
    }

    #[test]
    fn cells_ascend_and_stand_for_every_number(numbers in vec(number(), 0..300)) {
        let cells = sketch(&numbers).cells();
        prop_assert!(cells.is_sorted_by(|a, b| a.0 < b.0));
        prop_assert_eq!(cells.iter().map(|c| c.1).sum::<u64>(), numbers.len() as u64);
        for &x in &numbers {
            prop_assert!(cells.iter().any(|c| close(c.0, x)));
        }
    }

    #[test]
    fn merging_is_the_sketch_of_everything(parts in vec((vec(any::<u16>(), 0..40), 0usize..3), 0..6)) {
        let dtypes = [Dtype::F16, Dtype::BF16, Dtype::F32];
        let one = |(keys, d): &(Vec<u16>, usize)| {
            let low: &[u8] = if *d == 2 { &[1, 0] } else { &[] };
            let element = |k: &u16| [low, &k.to_le_bytes()].concat();
            let bytes: Vec<u8> = keys.iter().flat_map(element).collect();
            Sketch::from_values(Values::new(dtypes[*d], &bytes).unwrap())
        };
        let (mut there, mut back) = (Sketch::default(), Sketch::default());
        parts.iter().for_each(|p| there.merge(&one(p)));
        parts.iter().rev().for_each(|p| back.merge(&one(p)));
        prop_assert_eq!(&there, &back);
        let n: usize = parts.iter().map(|p| p.0.len()).sum();
        prop_assert_eq!(there.len() + there.non_finite(), n as u64);
    }

    /// Proposition A.1 for the mean absolute distance it speaks of: optimal losses over numbers in [0, 1] and over
    /// their representatives differ by at most alpha, which is 2^-8 here.
    #[test]
    fn proposition_a1(numbers in vec(0.0f32..=1.0, 1..24), k in 1usize..5) {
        let exact: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
        let grouped: Vec<f64> = numbers.iter().map(|&x| f64::from(sketch(&[x]).cells()[0].0)).collect();
        let (a, b) = (best_medians(exact, k), best_medians(grouped, k));
        prop_assert!((a - b).abs() <= 1.0 / 256.0, "{a} {b}");
    }

    /// What Proposition A.2 rests on (its equation 4), with the exact clustering in the place of k-means++: the optimal
    /// squared loss over the representatives is at most twice the one over the numbers, plus alpha squared.
    #[test]
    fn equation_4_of_proposition_a2(numbers in vec(0.0f32..=1.0, 1..60), k in 1usize..8) {
        let loss = |x: Vec<f64>| {
            let n = x.len() as f64;
            let points = weighted(x);
            points.loss(&cluster(&points, k)) / n
        };
        let exact = loss(numbers.iter().map(|&x| f64::from(x)).collect());
        let grouped = loss(numbers.iter().map(|&x| f64::from(sketch(&[x]).cells()[0].0)).collect());
        let alpha = 1.0 / 256.0;
        prop_assert!(grouped <= 2.0 * (exact + alpha * alpha) + 1e-12, "{grouped} {exact}");
    }

    #[test]
    fn clustering_equals_brute_force((points, k) in (points(), 1usize..5)) {
        let best = brute_force(&points, 0, k);
        let found = points.loss(&cluster(&points, k));
        prop_assert!((found - best).abs() <= 1e-12 * (1.0 + best), "{found} {best}");
    }

    #[test]
    fn clustering_of_anything_is_valid(numbers in vec(number(), 1..200), k in 0usize..40) {
        let points = Points::from_sketch(&sketch(&numbers), SIGMA).unwrap();
        let centres = cluster(&points, k);
        prop_assert_eq!(centres.len(), k.min(points.len()));
        prop_assert!(centres.is_sorted_by(|a, b| a < b) && points.loss(&centres).is_finite());
    }

    #[test]
    fn clustering_is_never_worse_than_kmeans(numbers in vec(weight(), 1..400), k in 1usize..40) {
        let points = Points::from_sketch(&sketch(&numbers), SIGMA).unwrap();
        let centres = cluster(&points, k);
        prop_assert!(centres.is_sorted_by(|a, b| a < b) && centres.len() <= k);
        let exact = points.loss(&centres);
        for seed in 0..20 {
            let rival = points.loss(&kmeans(&points, k, seed));
            prop_assert!(exact <= rival * (1.0 + 1e-9), "{exact} {rival}");
        }
    }

    #[test]
    fn lloyd_only_improves(numbers in vec(number(), 1..200), k in 1usize..20, seed: u64) {
        let points = Points::from_sketch(&sketch(&numbers), SIGMA).unwrap();
        let start = plus_plus(&points, k, seed);
        prop_assert!(start.is_sorted_by(|a, b| a < b) && start.len() <= k);
        let end = lloyd(&points, &start);
        prop_assert!(points.loss(&end) <= points.loss(&start) * (1.0 + 1e-9));
    }
}

/// Numbers as points, equal ones as one of more weight.
fn weighted(mut x: Vec<f64>) -> Points {
    x.sort_by(f64::total_cmp);
    let runs: Vec<(f64, f64)> = x.chunk_by(|a, b| a == b).map(|r| (r[0], r.len() as f64)).collect();
    let (values, weights) = runs.into_iter().unzip();
    Points::new(values, weights).unwrap()
}

/// Up to 11 points on a coarse grid, so that there are ties.
fn points() -> impl Strategy<Value = Points> {
    vec((-20i32..20, 0u32..8), 1..12).prop_map(|mut p| {
        p.sort_by_key(|q| q.0);
        p.dedup_by_key(|q| q.0);
        let (v, w) = p.into_iter().map(|(v, w)| (f64::from(v) / 4.0, f64::from(w) / 8.0)).unzip();
        Points::new(v, w).unwrap()
    })
}

/// Least loss of the points from `from` on in at most k runs, each around its mean.
fn brute_force(points: &Points, from: usize, k: usize) -> f64 {
    let n = points.len();
    if from == n {
        return 0.0;
    }
    let alone = |end: usize| {
        let mean = points.mean(from..end).unwrap();
        let term = |i: usize| points.weights()[i] * (points.values()[i] - mean).powi(2);
        (from..end).map(term).sum::<f64>()
    };
    if k == 1 {
        return alone(n);
    }
    (from + 1..=n).map(|end| alone(end) + brute_force(points, end, k - 1)).fold(f64::INFINITY, f64::min)
}

/// Least mean absolute distance to k centres.
fn best_medians(mut x: Vec<f64>, k: usize) -> f64 {
    x.sort_by(f64::total_cmp);
    let n = x.len();
    let alone = |i: usize, j: usize| x[i..j].iter().map(|v| (v - x[(i + j) / 2]).abs()).sum::<f64>();
    let mut best: Vec<f64> = (0..=n).map(|j| if j == 0 { 0.0 } else { alone(0, j) }).collect();
    for _ in 1..k {
        let better = |j: usize| (0..j).map(|i| best[i] + alone(i, j)).fold(best[j], f64::min);
        best = (0..=n).map(better).collect();
    }
    best[n] / n as f64
}

#[test]
fn odd_inputs() {
    let nothing = Sketch::default();
    assert_eq!((nothing.len(), nothing.quantile_abs(0.5), nothing.cells().len()), (0, None, 0));
    assert!(cluster(&Points::from_sketch(&nothing, SIGMA).unwrap(), 8).is_empty());
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::from_bits(0x7F80_0001), 2.0];
    let s = sketch(&odd);
    assert_eq!((s.len(), s.non_finite()), (3, 4));
    assert_eq!(s.cells(), [(0.0, 2), (Grid::F32.value(0x4000), 1)]);
    assert!(s.cells()[0].0.is_sign_positive());
    assert_eq!(sketch(&[f32::NAN]).quantile_abs(0.5), None);
    assert_eq!(sketch(&[f32::MAX]).cells().len(), 1);
    assert_eq!(s.quantile_abs(f64::NAN), Some(0.0));
    let too_big = 1e300f64.to_le_bytes();
    assert_eq!(Sketch::from_values(Values::new(Dtype::F64, &too_big).unwrap()).non_finite(), 1);
    for constant in [[0.0f32; 9], [-3.5; 9]] {
        let points = Points::from_sketch(&sketch(&constant), SIGMA).unwrap();
        assert_eq!(cluster(&points, 4), points.values());
        assert_eq!(kmeans(&points, 4, 1), points.values());
    }
    assert!(Points::new(vec![1.0, 1.0], vec![1.0; 2]).is_err());
    assert!(Points::new(vec![1.0, f64::NAN], vec![1.0; 2]).is_err());
    assert!(Points::new(vec![1.0], vec![-1.0]).is_err());
    assert!(Points::from_sketch(&s, 1.5).is_err());
}

/// What is left of small values must not drown in the square of a huge one, on either side.
#[test]
fn outliers_do_not_blunt_the_rest() {
    let small: Vec<f64> = (-300..300).map(|i| f64::from(i) * 1e-4 + 1e-6).collect();
    for outlier in [1e20, -1e20] {
        let mut values = small.clone();
        values.push(outlier);
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let points = Points::new(values, vec![1.0; n]).unwrap();
        let alone = Points::new(small.clone(), vec![1.0; n - 1]).unwrap();
        let (with, without) = (points.loss(&cluster(&points, 9)), alone.loss(&cluster(&alone, 8)));
        assert!((with - without).abs() <= 1e-9 * without, "{with} {without}");
    }
}

#[test]
fn the_random_stream_is_splitmix64() {
    // First outputs of the published generator for seed 1234567.
    let published = [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    for (i, &x) in published.iter().enumerate() {
        assert_eq!(uniform(1_234_567, i as u64), (x >> 11) as f64 / (1u64 << 53) as f64);
    }
}
