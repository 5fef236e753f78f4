//! Weighted points on a line, the input of k-means.

use crate::{CodecError, Result, quant::Sketch};
use std::ops::Range;

/// Share of the frequency in a point's weight; the rest is its magnitude's (section 4.4: 0.1 to 0.4 is best, 0.2 is
/// used).
pub const SIGMA: f64 = 0.2;

/// Distinct finite values in ascending order, each with a positive finite weight. Sums run from the first to the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    values: Vec<f64>,
    weights: Vec<f64>,
}

impl Points {
    /// These points. Points of weight 0 pull at nothing and are left out.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] unless the lengths agree, the values are finite and strictly ascending, and the weights
    /// are finite and not negative.
    pub fn new(values: Vec<f64>, weights: Vec<f64>) -> Result<Points> {
        let finite = |v: &[f64]| v.iter().all(|x| x.is_finite());
        if values.len() != weights.len() || !finite(&values) || !finite(&weights) {
            return Err(CodecError::BadInput("points need finite values and as many finite weights"));
        }
        if weights.iter().any(|&w| w < 0.0) || !values.is_sorted_by(|a, b| a < b) {
            return Err(CodecError::BadInput("points need ascending values and no negative weight"));
        }
        if weights.iter().all(|&w| w > 0.0) {
            return Ok(Points { values, weights });
        }
        let (values, weights) = values.into_iter().zip(weights).filter(|&(_, w)| w > 0.0).unzip();
        Ok(Points { values, weights })
    }

    /// The cells of a sketch, weighted by section 4.4 and Algorithm 2: `sigma` times the share of the count plus
    /// `1 - sigma` times the share of the magnitude (a point's |value| among all points' |value|).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] where `sigma` is not in [0, 1].
    pub fn from_sketch(sketch: &Sketch, sigma: f64) -> Result<Points> {
        if !(0.0..=1.0).contains(&sigma) {
            return Err(CodecError::BadInput("sigma must be in [0, 1]"));
        }
        let cells = sketch.cells();
        let values: Vec<f64> = cells.iter().map(|&(v, _)| f64::from(v)).collect();
        let count = cells.iter().map(|&(_, n)| n).sum::<u64>() as f64;
        let magnitude: f64 = values.iter().map(|v| v.abs()).sum();
        // With zeros only there is no magnitude to share out.
        let scale = if magnitude > 0.0 { (1.0 - sigma) / magnitude } else { 0.0 };
        let weight = |(&v, &(_, n)): (&f64, &(f32, u64))| sigma * (n as f64 / count) + scale * v.abs();
        let weights = values.iter().zip(&cells).map(weight).collect();
        Points::new(values, weights)
    }

    /// The values, ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The weights, in the order of the values.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Weighted mean of a run of points; `None` for none. Never outside the run, whatever the rounding.
    pub fn mean(&self, run: Range<usize>) -> Option<f64> {
        let (values, weights) = (self.values.get(run.clone())?, self.weights.get(run)?);
        let (mut total, mut weight) = (0.0, 0.0);
        for (v, w) in values.iter().zip(weights) {
            total += w * v;
            weight += w;
        }
        Some((total / weight).clamp(*values.first()?, *values.last()?))
    }

    /// Where the points nearest to each of the ascending centres begin and end: `centres + 1` indices. A point halfway
    /// between two centres belongs to the lower one.
    pub fn runs(&self, centres: &[f64]) -> Vec<usize> {
        let mut ends = vec![0];
        let halfway = centres.windows(2).map(|c| (c[0] + c[1]) * 0.5);
        ends.extend(halfway.map(|h| self.values.partition_point(|&v| v <= h)));
        ends.push(self.len());
        ends
    }

    /// What k-means makes small: the sum over points of weight times squared distance to the nearest centre. Centres
    /// ascend; 0 without centres.
    pub fn loss(&self, centres: &[f64]) -> f64 {
        let ends = self.runs(centres);
        let mut loss = 0.0;
        for (c, run) in centres.iter().zip(ends.windows(2)) {
            for i in run[0]..run[1] {
                let d = self.values[i] - c;
                loss += self.weights[i] * (d * d);
            }
        }
        loss
    }
}
