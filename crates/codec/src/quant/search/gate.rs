//! Quality gates: what a lossy checkpoint may lose.
//!
//! Two gates: the paper's (degradation at most epsilon, section 5), and the progress gate, which allows a fraction of
//! what the run gains per interval: late in training 5 % of the loss is several checkpoints of progress
//! (docs/design/0005-quantised-engine.md).

/// Which way the measured number improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// A loss.
    #[default]
    LowerIsBetter,
    /// An accuracy.
    HigherIsBetter,
}

impl Direction {
    /// The measured number as a cost: lower is better.
    fn cost(self, measured: f64) -> f64 {
        match self {
            Direction::LowerIsBetter => measured,
            Direction::HigherIsBetter => -measured,
        }
    }

    /// `lower-is-better` or `higher-is-better`.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::LowerIsBetter => "lower-is-better",
            Direction::HigherIsBetter => "higher-is-better",
        }
    }
}

/// Weight of the newest interval in the smoothed improvement.
const NEWEST: f64 = 0.5;
/// Improvement per interval taken for granted before one was seen, as a part of the measured number.
const FIRST: f64 = 0.01;
/// Least improvement that is reckoned with, as a part of the measured number: at a plateau something may still be lost.
const LEAST: f64 = 1e-4;

/// What the exact checkpoints of a run have shown so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Quality of the newest exact checkpoint.
    pub last: Option<f64>,
    /// Improvements of the cost in the last few intervals, the newest last; negative where it got worse.
    pub gains: Vec<f64>,
    /// Smoothed improvement per interval.
    pub gain: Option<f64>,
}

/// Gains that the trend is taken of.
const WINDOW: usize = 5;

/// The improvement per interval: the median of those between any two of the checkpoints (Theil and Sen's estimator).
/// One noisy checkpoint moves few of them. Where all are noisy, as with large learning rates, pairs that lie far apart
/// still see the trend, which the median of neighbours does not.
fn trend(gains: &[f64]) -> f64 {
    let mut slopes = Vec::with_capacity(gains.len() * (gains.len() + 1) / 2);
    for first in 0..gains.len() {
        let mut sum = 0.0;
        for (count, gain) in gains[first..].iter().enumerate() {
            sum += gain;
            slopes.push(sum / (count + 1) as f64);
        }
    }
    slopes.sort_by(f64::total_cmp);
    let n = slopes.len();
    (slopes[(n - 1) / 2] + slopes[n / 2]) / 2.0
}

impl Progress {
    /// Takes the next exact checkpoint into account.
    #[must_use]
    pub fn then(self, exact: f64, direction: Direction) -> Progress {
        let mut next = Progress { last: Some(exact), ..self };
        if let Some(last) = self.last {
            next.gains.push(direction.cost(last) - direction.cost(exact));
            let surplus = next.gains.len().saturating_sub(WINDOW);
            next.gains.drain(..surplus);
            let trend = trend(&next.gains);
            let smooth = |old: f64| (1.0 - NEWEST) * old + NEWEST * trend;
            next.gain = Some(self.gain.map_or(trend, smooth));
        }
        next
    }
}

/// A quality contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// At most this fraction of the smoothed improvement per interval may be lost.
    Progress(f64),
    /// At most this fraction of the measured number may be lost (the paper's epsilon).
    Epsilon(f64),
}

impl Gate {
    /// The worst measured number that passes; `progress` has seen `exact`.
    pub fn limit(self, exact: f64, progress: &Progress, direction: Direction) -> f64 {
        let may_lose = match self {
            Gate::Epsilon(epsilon) => epsilon * exact.abs(),
            Gate::Progress(rho) => {
                // A run that warms up may get worse before it gets better: that is no gain seen yet.
                let young = progress.gains.len() < WINDOW;
                let unseen = if young { FIRST } else { LEAST } * exact.abs();
                rho * progress.gain.filter(|gain| *gain > 0.0).unwrap_or(unseen).max(LEAST * exact.abs())
            }
        };
        match direction {
            Direction::LowerIsBetter => exact + may_lose,
            Direction::HigherIsBetter => exact - may_lose,
        }
    }

    /// Whether a measured number is as good as the limit. NaN never is.
    pub fn passes(measured: f64, limit: f64, direction: Direction) -> bool {
        direction.cost(measured) <= direction.cost(limit)
    }

    /// What of the allowance a measured number uses up: 0 as good as exact, 1 at the limit.
    pub fn used(measured: f64, exact: f64, limit: f64) -> f64 {
        let allowance = limit - exact;
        if allowance == 0.0 {
            return if measured == exact { 0.0 } else { 1.0 };
        }
        (measured - exact) / allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{HigherIsBetter, LowerIsBetter};

    #[test]
    fn epsilon_is_a_part_of_what_was_measured() {
        let limit = |exact, d| Gate::Epsilon(0.05).limit(exact, &Progress::default(), d);
        assert_eq!(limit(2.0, LowerIsBetter), 2.1);
        assert_eq!(limit(0.8, HigherIsBetter), 0.8 - 0.05 * 0.8);
        assert!(Gate::passes(2.1, 2.1, LowerIsBetter) && !Gate::passes(2.11, 2.1, LowerIsBetter));
        assert!(Gate::passes(0.77, 0.76, HigherIsBetter) && !Gate::passes(0.75, 0.76, HigherIsBetter));
        assert!(!Gate::passes(f64::NAN, 2.1, LowerIsBetter) && !Gate::passes(f64::NAN, 0.7, HigherIsBetter));
    }

    #[test]
    fn progress_is_smoothed_and_has_a_floor() {
        let gate = Gate::Progress(0.25);
        let run = |losses: &[f64]| losses.iter().fold(Progress::default(), |p, &l| p.then(l, LowerIsBetter));
        assert_eq!(gate.limit(4.0, &run(&[4.0]), LowerIsBetter), 4.0 + 0.25 * 0.04);
        assert_eq!(run(&[4.0, 3.0]).gain, Some(1.0));
        assert_eq!(gate.limit(3.0, &run(&[4.0, 3.0]), LowerIsBetter), 3.25);
        // A steady run, and the same with one bad checkpoint.
        let steady = run(&[10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0]);
        let spiked = run(&[10.0, 9.0, 8.0, 7.0, 60.0, 5.0, 4.0]);
        assert_eq!((steady.gain, spiked.gain, steady.gains.len()), (Some(1.0), Some(1.0), WINDOW));
        // A run whose every checkpoint is noisy still has its trend.
        let noisy = run(&[10.0, 9.6, 8.1, 8.3, 6.2, 7.4, 4.9, 5.1, 3.2]);
        assert!((0.5..1.1).contains(&noisy.gain.unwrap_or(0.0)), "{noisy:?}");
        // Getting worse allows what a first checkpoint has, later the floor, not less.
        let worse = |n: usize| run(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0][..n]);
        assert!(worse(3).gain < Some(0.0));
        assert_eq!(gate.limit(3.0, &worse(3), LowerIsBetter), 3.0 + 0.25 * (0.01 * 3.0));
        assert_eq!(gate.limit(6.0, &worse(6), LowerIsBetter), 6.0 + 0.25 * (1e-4 * 6.0));
        let accuracy = [0.5, 0.6].into_iter().fold(Progress::default(), |p, a| p.then(a, HigherIsBetter));
        let limit = gate.limit(0.6, &accuracy, HigherIsBetter);
        assert!((limit - 0.575).abs() < 1e-12);
        assert!((Gate::used(0.59, 0.6, limit) - 0.4).abs() < 1e-9);
    }
}
