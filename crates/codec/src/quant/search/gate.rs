//! What a lossy checkpoint may lose. Neighbours: the searches ask it. It must not know how quality is measured.
//!
//! Two gates: the paper's (degradation at most epsilon, section 5), and the progress gate, which allows a fraction of what the run gains
//! per interval: late in training 5 % of the loss is several checkpoints of progress (docs/design/0005-quantised-engine.md).

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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Quality of the newest exact checkpoint.
    pub last: Option<f64>,
    /// Improvements of the cost in the last two intervals, the older one first; negative where it got worse.
    pub gains: [Option<f64>; 2],
    /// Smoothed improvement per interval.
    pub gain: Option<f64>,
}

/// The middle one of three gains, the mean of two. One noisy checkpoint in a run is two gains that are far off, of either sign: the median
/// drops both.
fn middle(older: Option<f64>, old: Option<f64>, new: f64) -> f64 {
    match (older, old) {
        (Some(a), Some(b)) => a.max(b).min(a.min(b).max(new)),
        (_, Some(b)) => (b + new) / 2.0,
        _ => new,
    }
}

impl Progress {
    /// Takes the next exact checkpoint into account.
    #[must_use]
    pub fn then(self, exact: f64, direction: Direction) -> Progress {
        let Some(last) = self.last else {
            return Progress {
                last: Some(exact),
                ..self
            };
        };
        let new = direction.cost(last) - direction.cost(exact);
        let middle = middle(self.gains[0], self.gains[1], new);
        let smooth = |old: f64| (1.0 - NEWEST) * old + NEWEST * middle;
        Progress {
            last: Some(exact),
            gains: [self.gains[1], Some(new)],
            gain: Some(self.gain.map_or(middle, smooth)),
        }
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
    pub fn limit(self, exact: f64, progress: Progress, direction: Direction) -> f64 {
        let may_lose = match self {
            Gate::Epsilon(epsilon) => epsilon * exact.abs(),
            Gate::Progress(rho) => {
                let gain = progress.gain.unwrap_or(FIRST * exact.abs());
                rho * gain.max(LEAST * exact.abs())
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
        let limit = |exact, d| Gate::Epsilon(0.05).limit(exact, Progress::default(), d);
        assert_eq!(limit(2.0, LowerIsBetter), 2.1);
        assert_eq!(limit(0.8, HigherIsBetter), 0.8 - 0.05 * 0.8);
        assert!(Gate::passes(2.1, 2.1, LowerIsBetter) && !Gate::passes(2.11, 2.1, LowerIsBetter));
        assert!(Gate::passes(0.77, 0.76, HigherIsBetter) && !Gate::passes(0.75, 0.76, HigherIsBetter));
        assert!(!Gate::passes(f64::NAN, 2.1, LowerIsBetter) && !Gate::passes(f64::NAN, 0.7, HigherIsBetter));
    }

    #[test]
    fn progress_is_smoothed_and_has_a_floor() {
        let gate = Gate::Progress(0.25);
        let start = Progress::default().then(4.0, LowerIsBetter);
        assert_eq!(gate.limit(4.0, start, LowerIsBetter), 4.0 + 0.25 * 0.04);
        let next = start.then(3.0, LowerIsBetter);
        assert_eq!((next.gain, gate.limit(3.0, next, LowerIsBetter)), (Some(1.0), 3.25));
        let slower = next.then(2.8, LowerIsBetter);
        let gain = slower.gain.unwrap_or_default();
        assert!((gain - (0.5 + 0.5 * 0.6)).abs() < 1e-12);
        // One bad checkpoint changes little: the middle of 1, 0.2, -6.2 and then of 0.2, -6.2, 6.3.
        let spike = slower.then(9.0, LowerIsBetter);
        assert!((spike.gain.unwrap_or_default() - (gain / 2.0 + 0.1)).abs() < 1e-12);
        let after = spike.then(2.7, LowerIsBetter);
        assert!((after.gain.unwrap_or_default() - (gain / 4.0 + 0.15)).abs() < 1e-12);
        // Getting worse for good allows the floor, not less.
        let worse = [9.1, 9.2, 9.3, 9.4, 9.0]
            .into_iter()
            .fold(spike, |p, l| p.then(l, LowerIsBetter));
        assert!(worse.gain < Some(0.0));
        assert_eq!(gate.limit(9.0, worse, LowerIsBetter), 9.0 + 0.25 * (1e-4 * 9.0));
        let accuracy = Progress::default().then(0.5, HigherIsBetter).then(0.6, HigherIsBetter);
        let limit = gate.limit(0.6, accuracy, HigherIsBetter);
        assert!((limit - 0.575).abs() < 1e-12);
        assert!((Gate::used(0.59, 0.6, limit) - 0.4).abs() < 1e-9);
    }
}
