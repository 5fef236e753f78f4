//! Exact one-dimensional k-means by a price for each cluster: the fast way, where it works.
//!
//! With a price on every cluster, the number of clusters need not be kept track of: one pass finds the cuts that make
//! cost plus price least. If those happen to be k clusters, no other k clusters cost less, as they would pay the same
//! price (weak duality). The cost of the best k clusters is convex in k, so some price gives k unless two numbers of
//! clusters tie.

use crate::{
    quant::{Points, cluster::Sums},
    simd::Simd,
};

/// Prices tried. Weights take two or three; ties never end.
const TRIES: usize = 24;

/// The `k + 1` borders of the best `k` runs, if a price for it is found; n > k >= 1.
pub(super) fn best_cuts(simd: Simd, points: &Points, sums: &Sums, k: usize) -> Option<Vec<usize>> {
    let n = points.len();
    let (mut cost, mut cut) = (vec![0.0; n + 1], vec![0u32; n + 1]);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut price = guess(points, k);
    for _ in 0..TRIES {
        if !(price > low && price < high) {
            return None;
        }
        pass(simd, sums, price, &mut cost, &mut cut);
        let borders = borders(&cut);
        let found = borders.len() - 1;
        if found == k {
            return Some(borders);
        }
        if found > k {
            low = price;
        } else {
            high = price;
        }
        // Cost falls with the square of the number of clusters, so the price of one more falls with its cube.
        let ratio = found as f64 / k as f64;
        price *= ratio * ratio * ratio;
        if !(price > low && price < high) {
            price = if low == 0.0 { high / 8.0 } else { low.sqrt() * high.sqrt() };
        }
    }
    None
}

/// What one cluster more is worth where k are many (Panter and Dite, 1951): a sixth of (the integral of the cube root
/// of the density, over k), cubed. Only a start: nothing but the number of passes hangs on it.
fn guess(points: &Points, k: usize) -> f64 {
    let (values, weights) = (points.values(), points.weights());
    let mut integral = 0.0;
    for (v, w) in values.windows(3).zip(&weights[1..]) {
        let width = (v[2] - v[0]) * 0.5;
        integral += cube_root(w * width * width);
    }
    let share = integral / k as f64;
    share * share * share / 6.0
}

/// About the cube root, the same everywhere: a third of the exponent and one Newton step.
fn cube_root(x: f64) -> f64 {
    let y = f64::from_bits(x.to_bits() / 3 + 0x2A9F_7893_0000_0000);
    y - (y - x / (y * y)) / 3.0
}

/// `cost[j]`: the least cost of the first j points in any number of clusters, at a price for each; `cut[j]`: where the
/// last of them begins, the lowest of equals.
fn pass(simd: Simd, sums: &Sums, price: f64, cost: &mut [f64], cut: &mut [u32]) {
    // The best cut moves right as the end does. To beat the last one, the points before a cut have to cost less than
    // `limit`, and what points cost rises with their number.
    let (mut from, mut to) = (0, 0);
    for end in 1..cost.len() {
        let limit = cost[from] + sums.cost(from, end);
        while to + 1 < end && cost[to + 1] <= limit {
            to += 1;
        }
        while to > from && cost[to] > limit {
            to -= 1;
        }
        let (best, least) = sums.best(simd, cost, from, to, end);
        cost[end] = least + price;
        cut[end] = best as u32;
        from = best;
        to = to.max(from);
    }
}

/// Follows the cuts from the last point back.
fn borders(cut: &[u32]) -> Vec<usize> {
    let mut end = cut.len() - 1;
    let mut borders = vec![end];
    while end > 0 {
        end = cut[end] as usize;
        borders.push(end);
    }
    borders.reverse();
    borders
}

#[cfg(test)]
mod tests {
    use super::{super::cluster::layered_cuts, *};

    #[test]
    fn cube_roots_are_close() {
        for x in [1e-300, 3.7e-21, 0.008, 1.0, 27.0, 1e30] {
            let y = cube_root(x);
            assert!((y * y * y / x - 1.0).abs() < 0.02, "{x} {y}");
        }
    }

    /// Both ways to the optimum, on both instruction sets, for weights as they are.
    #[test]
    fn a_price_finds_what_layers_find() {
        let mix = |i: u64| {
            let z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
        };
        let mut found = 0;
        for seed in 0..6u64 {
            let mut values: Vec<f64> = (0..900).map(|i| mix(seed << 20 | i) as f64 - 8e6).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            let weights = values.iter().map(|v| 1e7 / (1e6 + v.abs())).collect();
            let points = Points::new(values, weights).unwrap();
            let sums = Sums::new(&points);
            for k in [1, 2, 7, 32, 100] {
                let layers = layered_cuts(Simd::scalar(), &sums, points.len(), k);
                assert_eq!(layered_cuts(Simd::detect(), &sums, points.len(), k), layers);
                let priced = best_cuts(Simd::scalar(), &points, &sums, k);
                assert_eq!(best_cuts(Simd::detect(), &points, &sums, k), priced);
                if let Some(cuts) = priced {
                    assert_eq!(cuts, layers);
                    found += 1;
                }
            }
        }
        assert!(found >= 28, "{found}");
    }
}
