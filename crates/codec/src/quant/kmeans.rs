//! The paper's weighted k-means++ and Lloyd's iteration, as a reference and for warm starts.
//!
//! Algorithm 3 says "distance"; Proposition A.2 rests on Arthur and Vassilvitskii's theorem, which needs its square. So
//! the square it is.

use crate::quant::Points;

/// Lloyd's iteration ends here even if points still move; in practice it stands still long before.
const ROUNDS: usize = 300;

/// splitmix64's step between two outputs.
pub(crate) const MIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Its two factors.
pub(crate) const MIX_FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// Output number `index + 1` of splitmix64 from `seed`.
#[inline(always)]
pub(crate) fn splitmix64(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(MIX_STEP));
    let z = (z ^ z >> 30).wrapping_mul(MIX_FACTORS[0]);
    let z = (z ^ z >> 27).wrapping_mul(MIX_FACTORS[1]);
    z ^ z >> 31
}

/// Number `index` of the random stream `seed`, in [0, 1) with 53 bits: splitmix64 (Steele et al., OOPSLA '14) read by
/// counter, so that a number depends on nothing but its place.
pub fn uniform(seed: u64, index: u64) -> f64 {
    (splitmix64(seed, index) >> 11) as f64 / 9_007_199_254_740_992.0
}

/// Index drawn with probability proportional to `shares`: the first whose running sum exceeds `u` times the sum of all.
/// `None` where there is nothing to draw from.
fn draw(shares: &[f64], u: f64) -> Option<usize> {
    let target = u * shares.iter().sum::<f64>();
    let mut sum = 0.0;
    shares.iter().position(|s| {
        sum += s;
        sum > target
    })
}

/// Algorithm 3: at most `k` starting centres, ascending and distinct. The first is drawn by weight, each further one by
/// weight times squared distance to the nearest centre so far, with number i of the stream `seed`.
pub fn plus_plus(points: &Points, k: usize, seed: u64) -> Vec<f64> {
    let (values, weights) = (points.values(), points.weights());
    let mut shares = weights.to_vec();
    let mut squares = vec![f64::INFINITY; values.len()];
    let mut centres = Vec::new();
    while centres.len() < k {
        let Some(drawn) = draw(&shares, uniform(seed, centres.len() as u64)) else {
            break;
        };
        centres.push(values[drawn]);
        for (i, v) in values.iter().enumerate() {
            let d = v - values[drawn];
            squares[i] = squares[i].min(d * d);
            shares[i] = weights[i] * squares[i];
        }
    }
    centres.sort_by(f64::total_cmp);
    centres
}

/// Lloyd's iteration from ascending centres until no point changes its centre (at most 300 rounds). A centre without
/// points stays where it is. A warm start from an earlier codebook keeps the bins' order and number.
pub fn lloyd(points: &Points, start: &[f64]) -> Vec<f64> {
    let mut centres = start.to_vec();
    centres.sort_by(f64::total_cmp);
    let mut runs = Vec::new();
    for _ in 0..ROUNDS {
        let now = points.runs(&centres);
        if now == runs {
            break;
        }
        for (c, run) in centres.iter_mut().zip(now.windows(2)) {
            *c = points.mean(run[0]..run[1]).unwrap_or(*c);
        }
        runs = now;
    }
    centres
}

/// The paper's clustering (Algorithm 2, lines 4 and 5): [`plus_plus`], then [`lloyd`]. All values where there are no
/// more than `k` of them.
pub fn kmeans(points: &Points, k: usize, seed: u64) -> Vec<f64> {
    if points.len() <= k {
        return points.values().to_vec();
    }
    lloyd(points, &plus_plus(points, k, seed))
}
