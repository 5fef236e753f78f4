//! Bisection with noisy verdicts: the probability of each version to be the first bad one.
//!
//! This is probabilistic bisection (Horstein, *Sequential transmission using noiseless feedback*, 1963; Waeber, Frazier
//! and Henderson, *Bisection search with noisy responses*, 2013): each verdict multiplies the probabilities by Bayes'
//! rule, and the version is tested that splits them in two. Verdicts that agree are worth more than a majority at each
//! step, since each of them speaks of all versions. The assumption: a verdict is wrong with the same probability for
//! every version, whatever the other verdicts are.

use super::graph::Candidates;

/// A probability that ends the search.
const SURE: f64 = 0.99;

/// What is known so far.
pub(super) struct Belief {
    /// For each candidate, the probability that it is the first bad one.
    pub weight: Vec<f64>,
}

impl Belief {
    /// What these verdicts (place of a candidate, whether it was bad) say, where each is wrong with probability `rate`.
    pub fn new(candidates: &Candidates, verdicts: impl Iterator<Item = (usize, bool)>, rate: f64) -> Belief {
        let n = candidates.len();
        let mut weight = vec![1.0 / n.max(1) as f64; n];
        for (at, bad) in verdicts {
            let history = candidates.ancestors(at);
            for (w, is_in) in weight.iter_mut().zip(history) {
                *w *= if is_in == bad { 1.0 - rate } else { rate };
            }
            let total: f64 = weight.iter().sum();
            weight.iter_mut().for_each(|w| *w /= total);
        }
        Belief { weight }
    }

    /// The most probable version, and its probability.
    pub fn best(&self) -> Option<(usize, f64)> {
        let all = self.weight.iter().copied().enumerate();
        // Of equals the earliest.
        all.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// Whether that is enough.
    pub fn is_sure(&self) -> bool {
        self.best().is_some_and(|(_, p)| p >= SURE)
    }
}
