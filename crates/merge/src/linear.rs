//! Averages, plain and weighted.

use crate::{merge::Kernel, strategy::total};

/// `(x_1 + x_2 + ...) / n`.
pub(crate) fn average<'a>() -> Kernel<'a> {
    Box::new(|block, out| {
        let (first, others) = block.versions.split_at(1);
        for (i, out) in out.iter_mut().enumerate() {
            let sum = others.iter().fold(first[0][i], |sum, x| sum + x[i]);
            *out = sum / block.versions.len() as f64;
        }
    })
}

/// `(w_1 x_1 + w_2 x_2 + ...) / (w_1 + w_2 + ...)`, or undivided.
pub(crate) fn weighted(weight: &[f64], normalize: bool) -> Kernel<'_> {
    let divisor = if normalize { total(weight) } else { 1.0 };
    Box::new(move |block, out| {
        for (i, out) in out.iter_mut().enumerate() {
            let mut sum = weight[0] * block.versions[0][i];
            for (w, x) in weight.iter().zip(&block.versions).skip(1) {
                sum += w * x[i];
            }
            *out = sum / divisor;
        }
    })
}
