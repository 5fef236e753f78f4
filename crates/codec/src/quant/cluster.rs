//! Exact one-dimensional k-means by dynamic programming.
//!
//! An optimal clustering cuts sorted points into runs, and the best cut before a run moves right as the run's end does,
//! so that each layer (one cluster more) is filled by divide and conquer in O(n log n) evaluations: Grønlund et al.,
//! "Fast exact k-means, k-medians and Bregman divergence clustering in 1D" (arXiv 1701.07204), section 2.

use crate::{
    quant::{Points, priced},
    simd::Simd,
};

/// The at most `k` centres, ascending, that minimise [`Points::loss`]; all values where there are no more than `k` of
/// them.
///
/// Deterministic: of equally good cuts the lowest is taken; the sums that decide have a fixed order. Time O(k n log n),
/// memory 4 k n bytes, and far less of both where a price gives k clusters (see `priced`), as for weights.
///
/// Optimal up to the rounding of f64, of which `Sums` keeps large values away from the cost of small ones. Where values
/// differ so much in size that some costs are less than about 1e-13 of others that still compete with them (tens of
/// orders of magnitude, which weights do not have), the clustering is valid but may be worse than optimal.
pub fn cluster(points: &Points, k: usize) -> Vec<f64> {
    let n = points.len();
    if n <= k {
        return points.values().to_vec();
    }
    if k == 0 {
        return Vec::new();
    }
    let (simd, sums) = (Simd::detect(), Sums::new(points));
    let cuts = priced::best_cuts(simd, points, &sums, k).unwrap_or_else(|| layered_cuts(simd, &sums, n, k));
    cuts.windows(2).filter_map(|c| points.mean(c[0]..c[1])).collect()
}

/// The `k + 1` borders of the best `k` runs of `n` points, n > k >= 1.
pub(super) fn layered_cuts(simd: Simd, sums: &Sums, n: usize, k: usize) -> Vec<usize> {
    // cost[j]: of the first j points in as many clusters as layers so far.
    let mut cost: Vec<f64> = (0..=n).map(|j| sums.cost(0, j)).collect();
    let mut layers = vec![vec![0u32; n + 1]];
    for clusters in 2..=k {
        let mut layer = Layer {
            simd,
            sums,
            before: &cost,
            floor: &layers[clusters - 2],
            clusters,
            cost: vec![0.0; n + 1],
            cut: vec![0; n + 1],
        };
        // Of the last layer only the end is asked for.
        let first = if clusters == k { n } else { clusters };
        layer.fill(first, n, clusters - 1, n - 1);
        let Layer { cost: next, cut, .. } = layer;
        cost = next;
        layers.push(cut);
    }
    let mut borders = vec![n];
    let mut end = n;
    for layer in layers.iter().rev() {
        end = layer[end] as usize;
        borders.push(end);
    }
    borders.reverse();
    borders
}

/// One more cluster: `cost[j]` of the first j points and `cut[j]` where their last cluster begins.
struct Layer<'a> {
    simd: Simd,
    sums: &'a Sums,
    /// `cost` of the layer before.
    before: &'a [f64],
    /// `cut` of the layer before: with a cluster more, the last one never begins earlier.
    floor: &'a [u32],
    clusters: usize,
    cost: Vec<f64>,
    cut: Vec<u32>,
}

impl Layer<'_> {
    /// Fills ends `first..=last`, whose cuts are known to lie in `low..=high`.
    fn fill(&mut self, first: usize, last: usize, low: usize, high: usize) {
        let end = first + (last - first) / 2;
        let from = low.max(self.clusters - 1).max(self.floor[end] as usize).min(end - 1);
        let (cut, cost) = self.sums.best(self.simd, self.before, from, high.min(end - 1), end);
        self.cut[end] = cut as u32;
        self.cost[end] = cost;
        if end > first {
            self.fill(first, end - 1, low, cut);
        }
        if end < last {
            self.fill(end + 1, last, cut, high);
        }
    }
}

/// Sums of weight, weight times value and weight times value squared, over points `0..j` but counted from the point
/// where the sign changes: left of it they are negative.
///
/// Counted from the left end, one huge negative value would be in every sum, and what the small values cost would be
/// lost to rounding. Counted outwards, a run's error is relative to the values between it and zero, which are smaller.
#[derive(Debug)]
pub(super) struct Sums {
    weight: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Sums {
    pub(super) fn new(points: &Points) -> Sums {
        let (values, weights) = (points.values(), points.weights());
        let zero = values.partition_point(|&v| v < 0.0);
        let outwards = |term: &dyn Fn(usize) -> f64| {
            let mut s = vec![0.0; values.len() + 1];
            for j in zero..values.len() {
                s[j + 1] = s[j] + term(j);
            }
            for j in (0..zero).rev() {
                s[j] = s[j + 1] - term(j);
            }
            s
        };
        Sums {
            weight: outwards(&|j| weights[j]),
            first: outwards(&|j| weights[j] * values[j]),
            second: outwards(&|j| weights[j] * (values[j] * values[j])),
        }
    }

    /// Loss of points `i..j` around their mean.
    pub(super) fn cost(&self, i: usize, j: usize) -> f64 {
        spread(self.weight[j] - self.weight[i], self.first[j] - self.first[i], self.second[j] - self.second[i])
    }

    /// The cut in `from..=to` with the least `before[cut] + cost(cut, end)`, and that sum; the lowest of equals.
    #[inline]
    pub(super) fn best(&self, simd: Simd, before: &[f64], from: usize, to: usize, end: usize) -> (usize, f64) {
        let whole = [self.weight[end], self.first[end], self.second[end]];
        let parts = [&before[from..=to], &self.weight[from..=to], &self.first[from..=to], &self.second[from..=to]];
        let (at, cost) = simd.least_spread(parts, whole);
        (from + at, cost)
    }
}

/// Of equally long lists before, weight, first and second, the place with the least `before + spread(whole - the
/// others)`, and that sum; the lowest of equals.
#[inline]
pub(crate) fn least_spread(parts: [&[f64]; 4], whole: [f64; 3]) -> (usize, f64) {
    let columns = parts[0].iter().zip(parts[1]).zip(parts[2]).zip(parts[3]);
    let mut best = (0, f64::INFINITY);
    for (i, (((b, w), f), s)) in columns.enumerate() {
        let cost = b + spread(whole[0] - w, whole[1] - f, whole[2] - s);
        if cost < best.1 {
            best = (i, cost);
        }
    }
    best
}

/// Sum of squares around the mean. Rounding may leave a little less than nothing of it, or no weight at all where it
/// drowns in the sums: then it is 0.
#[inline(always)]
fn spread(weight: f64, first: f64, second: f64) -> f64 {
    let mean_part = if weight > 0.0 { first * first / weight } else { second };
    let rest = second - mean_part;
    if rest > 0.0 { rest } else { 0.0 }
}
