//! Numbers of about 106 bits as unevaluated sums of two f64, without fused multiply-add.
//!
//! Dekker, "A floating-point technique for extending the available precision" (1971), and Hida, Li and Bailey,
//! "Library for double-double and quad-double arithmetic" (2007). For magnitudes between about 2^-500 and 2^500.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// `hi + lo`, where `hi` is the sum rounded to f64.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Double {
    /// The number, rounded to f64.
    pub hi: f64,
    /// What the rounding left.
    pub lo: f64,
}

/// The sum of two f64, exactly.
fn two_sum(a: f64, b: f64) -> Double {
    let hi = a + b;
    let b_part = hi - a;
    Double { hi, lo: (a - (hi - b_part)) + (b - b_part) }
}

/// The sum of two f64, exactly, where the first is the larger one.
fn quick_two_sum(a: f64, b: f64) -> Double {
    let hi = a + b;
    Double { hi, lo: b - (hi - a) }
}

/// Upper and lower half of the bits of an f64.
fn split(a: f64) -> (f64, f64) {
    let shifted = 134_217_729.0 * a;
    let hi = shifted - (shifted - a);
    (hi, a - hi)
}

impl Double {
    /// Zero.
    pub const ZERO: Double = Double { hi: 0.0, lo: 0.0 };
    /// Pi.
    pub const PI: Double = Double { hi: std::f64::consts::PI, lo: 1.224_646_799_147_353_2e-16 };

    /// The product of two f64, exactly.
    pub fn product(a: f64, b: f64) -> Double {
        let hi = a * b;
        let (a_hi, a_lo) = split(a);
        let (b_hi, b_lo) = split(b);
        Double { hi, lo: ((a_hi * b_hi - hi) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo }
    }

    /// The square root; of zero, zero.
    #[must_use]
    pub fn sqrt(self) -> Double {
        if self.hi <= 0.0 {
            return Double::ZERO;
        }
        let inverse = 1.0 / self.hi.sqrt();
        let root = self.hi * inverse;
        let rest = (self - Double::product(root, root)).hi;
        two_sum(root, rest * (inverse * 0.5))
    }
}

impl From<f64> for Double {
    fn from(value: f64) -> Double {
        Double { hi: value, lo: 0.0 }
    }
}

impl Neg for Double {
    type Output = Double;

    fn neg(self) -> Double {
        Double { hi: -self.hi, lo: -self.lo }
    }
}

impl Add for Double {
    type Output = Double;

    fn add(self, other: Double) -> Double {
        let high = two_sum(self.hi, other.hi);
        let low = two_sum(self.lo, other.lo);
        let sum = quick_two_sum(high.hi, high.lo + low.hi);
        quick_two_sum(sum.hi, sum.lo + low.lo)
    }
}

impl Sub for Double {
    type Output = Double;

    fn sub(self, other: Double) -> Double {
        self + -other
    }
}

impl Mul for Double {
    type Output = Double;

    fn mul(self, other: Double) -> Double {
        let product = Double::product(self.hi, other.hi);
        quick_two_sum(product.hi, product.lo + (self.hi * other.lo + self.lo * other.hi))
    }
}

impl Div for Double {
    type Output = Double;

    fn div(self, other: Double) -> Double {
        let first = self.hi / other.hi;
        let rest = self - other * Double::from(first);
        let second = rest.hi / other.hi;
        let third = (rest - other * Double::from(second)).hi / other.hi;
        quick_two_sum(first, second) + Double::from(third)
    }
}
