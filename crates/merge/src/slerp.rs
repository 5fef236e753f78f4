//! Spherical interpolation of two tensors taken as vectors (Shoemake, "Animating rotation with quaternion curves",
//! 1985), with mergekit's limits.

use crate::{
    Double, Tensors,
    angle::{acos, sin},
    blocks::{Block, map},
    element::power_of_two,
    merge::Kernel,
};

/// Vectors whose cosine's magnitude is larger are interpolated linearly.
const DOT_THRESHOLD: f64 = 0.9995;
/// A shorter vector is not brought to length 1.
const EPSILON: f64 = 1e-8;

/// `s_0 x_0 + s_1 x_1`.
pub(crate) fn slerp<'a>(t: f64, tensors: &Tensors<'a>) -> Kernel<'a> {
    let (s0, s1) = match cosine(tensors) {
        Some(dot) if dot.hi.abs() <= DOT_THRESHOLD => factors(dot, t),
        _ => (1.0 - t, t),
    };
    Box::new(move |block, out| {
        for (i, out) in out.iter_mut().enumerate() {
            *out = s0 * block.versions[0][i] + s1 * block.versions[1][i];
        }
    })
}

/// `sin((1 - t) a) / sin(a)` and `sin(t a) / sin(a)` of the angle of this cosine.
fn factors(dot: Double, t: f64) -> (f64, f64) {
    let angle = acos(dot);
    let part = angle * Double::from(t);
    let all = sin(angle);
    ((sin(angle - part) / all).hi, (sin(part) / all).hi)
}

/// The cosine of the angle between the two; none: an element is not finite.
fn cosine(tensors: &Tensors<'_>) -> Option<Double> {
    let largest = |block: &Block| [0, 1].map(|v| block.versions[v].iter().fold(0.0, |m, x| larger(m, x.abs())));
    let largest = map(tensors, largest).into_iter().fold([0.0; 2], |m, b| [larger(m[0], b[0]), larger(m[1], b[1])]);
    if largest.iter().any(|m: &f64| !m.is_finite()) {
        return None;
    }
    // Scaled by a power of two, no square is lost to overflow or underflow.
    let exponent = largest.map(|m| if m == 0.0 { 0 } else { ((m.to_bits() >> 52) as i32 - 1023).clamp(-1021, 1021) });
    let scale = exponent.map(|e| power_of_two(-e));
    let parts = map(tensors, |block| products(block, scale));
    let sums = parts.into_iter().fold([Double::ZERO; 3], |sum, part| [0, 1, 2].map(|k| sum[k] + part[k]));
    let length = |k: usize| {
        let scaled = sums[k].sqrt();
        let is_long = scaled.hi * power_of_two(exponent[k]) > EPSILON;
        if is_long { scaled } else { Double::from(scale[k]) }
    };
    Some(sums[2] / (length(0) * length(1)))
}

/// The larger one; NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Sums of `x_0^2`, `x_1^2` and `x_0 x_1` over a block.
fn products(block: &Block, scale: [f64; 2]) -> [Double; 3] {
    let mut sums = [Double::ZERO; 3];
    for (a, b) in block.versions[0].iter().zip(&block.versions[1]) {
        let (a, b) = (a * scale[0], b * scale[1]);
        for (sum, (x, y)) in sums.iter_mut().zip([(a, a), (b, b), (a, b)]) {
            *sum = *sum + Double::product(x, y);
        }
    }
    sums
}
