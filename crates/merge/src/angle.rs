//! Sine, cosine and arc cosine, correct to about 100 bits, from additions, multiplications and divisions alone: a
//! system's mathematical library differs from the next one's in the last bit.

use crate::Double;

/// Terms of the series that count for arguments up to a quarter turn: the next one is below 2^-110.
const TERMS: u32 = 16;
/// Steps of Newton's method: each doubles the digits, and the first guess has two.
const STEPS: u32 = 6;

/// The sine of an angle in radians, from 0 to pi.
pub fn sin(angle: Double) -> Double {
    let folded = if angle.hi > std::f64::consts::FRAC_PI_2 { Double::PI - angle } else { angle };
    series(folded, folded, 1)
}

/// The cosine of an angle in radians, from 0 to pi / 2.
pub fn cos(angle: Double) -> Double {
    series(Double::from(1.0), angle, 0)
}

/// The angle in radians, from 0 to pi, whose cosine is `x`, which lies in -1..=1 and is not near its ends (there the
/// angle says little, and [`crate::Method::Slerp`] interpolates linearly).
pub fn acos(x: Double) -> Double {
    if x.hi < 0.0 {
        return Double::PI - acos(-x);
    }
    // The series of the arc cosine at 1 is the first guess.
    let z = 1.0 - x.hi;
    let guess = (2.0 * z).sqrt() * (1.0 + z * (1.0 / 12.0 + z * (3.0 / 160.0 + z * (5.0 / 896.0))));
    let mut angle = Double::from(guess);
    for _ in 0..STEPS {
        angle = angle + (cos(angle) - x) / sin(angle);
    }
    angle
}

/// `first - first * x^2 / ((n + 1) (n + 2)) + ...`: the Taylor series of the sine (n = 1) or the cosine (n = 0).
fn series(first: Double, x: Double, n: u32) -> Double {
    let square = x * x;
    let (mut term, mut sum) = (first, first);
    for k in 0..TERMS {
        let n = f64::from(n + 2 * k);
        term = -(term * square) / Double::from((n + 1.0) * (n + 2.0));
        sum = sum + term;
    }
    sum
}
