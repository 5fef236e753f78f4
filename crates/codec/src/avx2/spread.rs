//! The inner loop of exact k-means, four cuts at a time.

use std::arch::x86_64::*;

/// [`crate::quant::cluster::least_spread`].
///
/// # Safety
/// The processor has AVX2; the four lists are equally long and at least 4.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn least_spread(parts: [&[f64]; 4], whole: [f64; 3]) -> (usize, f64) {
    let n = parts[0].len();
    let zero = _mm256_setzero_pd();
    let [weight, first, second] = whole.map(|v| _mm256_set1_pd(v));
    let mut least = _mm256_set1_pd(f64::INFINITY);
    let mut place = _mm256_setzero_pd();
    let mut now = _mm256_setr_pd(0.0, 1.0, 2.0, 3.0);
    let mut at = 0;
    loop {
        // SAFETY: `at + 4 <= n`, the length of each list.
        let [b, w, f, s] = parts.map(|p| unsafe { _mm256_loadu_pd(p.as_ptr().add(at)) });
        let (w, f, s) = (_mm256_sub_pd(weight, w), _mm256_sub_pd(first, f), _mm256_sub_pd(second, s));
        let mean = _mm256_div_pd(_mm256_mul_pd(f, f), w);
        let mean = _mm256_blendv_pd(s, mean, _mm256_cmp_pd::<_CMP_GT_OQ>(w, zero));
        // Of a NaN and of two zeros `max` gives the second: plain 0.
        let cost = _mm256_add_pd(b, _mm256_max_pd(_mm256_sub_pd(s, mean), zero));
        let less = _mm256_cmp_pd::<_CMP_LT_OQ>(cost, least);
        least = _mm256_blendv_pd(least, cost, less);
        place = _mm256_blendv_pd(place, now, less);
        if at + 4 == n {
            break;
        }
        // The last four may overlap those before: a place looked at twice changes nothing.
        let step = (n - at - 4).min(4);
        at += step;
        now = _mm256_add_pd(now, _mm256_set1_pd(step as f64));
    }
    let (mut costs, mut places) = ([0.0; 4], [0.0; 4]);
    // SAFETY: four lanes are 32 bytes.
    unsafe {
        _mm256_storeu_pd(costs.as_mut_ptr(), least);
        _mm256_storeu_pd(places.as_mut_ptr(), place);
    }
    let mut best = (places[0], costs[0]);
    for (p, c) in places.into_iter().zip(costs).skip(1) {
        if c < best.1 || (c == best.1 && p < best.0) {
            best = (p, c);
        }
    }
    (best.0 as usize, best.1)
}
