//! Which version is tested next: the one whose verdict leaves least, whatever it is.

use super::graph::Candidates;

/// Places of up to `jobs` versions to test at once, of those that `testable` allows. With one job that is the version
/// that splits the weight in two as evenly as one can (git's rule, where all weigh the same); with more, they split it
/// into equal parts, so that a round leaves one part of `jobs + 1`. `skips`: how many were skipped so far; from the
/// first on a version farther away is taken, as what surrounds a version that cannot be tested often cannot be either.
pub(super) fn next(
    candidates: &Candidates,
    weight: &[f64],
    testable: &dyn Fn(usize) -> bool,
    jobs: usize,
    skips: usize,
) -> Vec<usize> {
    let sums = candidates.sums(weight);
    let total: f64 = weight.iter().sum();
    let mut left: Vec<usize> = (0..candidates.len()).filter(|at| testable(*at)).collect();
    let mut chosen = Vec::new();
    for part in 1..=jobs {
        let target = total * part as f64 / (jobs + 1) as f64;
        let distance = |at: &usize| (sums[*at] - target).abs();
        if skips > 0 {
            left.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.cmp(b)));
            let at = (left.len() as f64 * far(skips, part)) as usize;
            if at < left.len() {
                chosen.push(left.remove(at));
            }
        } else if let Some(at) = (0..left.len()).min_by(|a, b| distance(&left[*a]).total_cmp(&distance(&left[*b]))) {
            chosen.push(left.remove(at));
        }
    }
    chosen
}

/// A number from 0 to 1, small more often than large, the same for the same arguments (SplitMix64).
fn far(skips: usize, part: usize) -> f64 {
    let mut z = (skips as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part as u64);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let even = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
    even * even.sqrt()
}

/// The least `n` with `2^n >= versions`.
pub(super) fn steps(versions: usize) -> u32 {
    versions.max(1).next_power_of_two().trailing_zeros()
}
