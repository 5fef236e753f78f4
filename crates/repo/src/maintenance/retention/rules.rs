//! Retention rules: which versions of a branch are kept, from steps, times and metrics alone.
//!
//! The rules have the names and meanings of Orbax' preservation policies.

use crate::history::metrics::End;
use mdl_store::{RepoError, Result};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A rule that keeps versions. As JSON: `{"rule": "LatestN", "n": 3}`,
/// `{"rule": "Any", "rules": [{"rule": "BestN", "n": 2, "metric": "loss", "mode": "min"}]}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", deny_unknown_fields)]
pub enum Retention {
    /// The newest.
    LatestN {
        /// How many.
        n: u64,
    },
    /// Those whose step is a multiple.
    EveryNSteps {
        /// Of this many steps.
        n: u64,
    },
    /// The oldest, then each that is at least so much younger than the one kept before.
    EveryNSeconds {
        /// Seconds between two that are kept.
        seconds: u64,
    },
    /// Those best by a metric; of equals the newer. NaN is never best.
    BestN {
        /// How many.
        n: u64,
        /// Name of the metric.
        metric: String,
        /// Which way it counts; without it the name must tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<BestMode>,
    },
    /// Those of these steps.
    CustomSteps {
        /// The steps.
        steps: BTreeSet<u64>,
    },
    /// Those made no longer than this before the newest one.
    LatestDuration {
        /// Seconds before the newest version, not before now: a run that pauses loses nothing.
        seconds: u64,
    },
    /// Those that any of these keeps.
    Any {
        /// The rules.
        rules: Vec<Retention>,
    },
}

/// Which end of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BestMode {
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// What a rule may know of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Milliseconds since 1970, by the committer's clock.
    pub time_ms: i64,
    /// Training step.
    pub step: Option<u64>,
    /// Metrics.
    pub metrics: BTreeMap<String, f64>,
}

/// Which rules keep which versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// For each version the rules that keep it, in words; empty if none does.
    pub kept: Vec<Vec<String>>,
    /// Rules that could tell nothing of any version, and so keep all of them.
    pub undecided: Vec<String>,
}

impl Retention {
    /// Refuses rules that could keep nothing whatever there is, and metrics without a known best end.
    pub fn check(&self) -> Result<()> {
        let empty = match self {
            Retention::LatestN { n } | Retention::EveryNSteps { n } => *n == 0,
            Retention::EveryNSeconds { seconds } | Retention::LatestDuration { seconds } => *seconds == 0,
            Retention::BestN { n, metric, mode } => {
                if mode.is_none() {
                    End::Best.is_least(metric)?;
                }
                *n == 0 || metric.is_empty()
            }
            Retention::CustomSteps { steps } => steps.is_empty(),
            Retention::Any { rules } => {
                rules.iter().try_for_each(Retention::check)?;
                rules.is_empty()
            }
        };
        if empty {
            return Err(RepoError::usage(
                format!("the rule {self:?} would keep no version"),
                "give at least one rule, and numbers above 0",
            ));
        }
        Ok(())
    }

    /// What of these versions is kept. They are those of one branch, newest first.
    pub fn choose(&self, versions: &[Facts]) -> Result<Choice> {
        self.check()?;
        let mut out = Choice { kept: vec![Vec::new(); versions.len()], undecided: Vec::new() };
        for rule in self.flat() {
            let words = rule.to_string();
            let kept = match rule.keeps(versions)? {
                Some(kept) => kept,
                // A mistyped metric, or a run that has none yet, must not cost everything.
                None => {
                    out.undecided.push(words.clone());
                    (0..versions.len()).collect()
                }
            };
            for i in kept {
                out.kept[i].push(words.clone());
            }
        }
        Ok(out)
    }

    /// The rules that are not `Any`.
    fn flat(&self) -> Vec<&Retention> {
        match self {
            Retention::Any { rules } => rules.iter().flat_map(Retention::flat).collect(),
            rule => vec![rule],
        }
    }

    /// Places of what one rule keeps; none where it can tell nothing of any version.
    fn keeps(&self, all: &[Facts]) -> Result<Option<Vec<usize>>> {
        let stepped = |wanted: &dyn Fn(u64) -> bool| {
            let known = all.is_empty() || all.iter().any(|v| v.step.is_some());
            let fits = |i: &usize| all[*i].step.is_some_and(wanted);
            known.then(|| (0..all.len()).filter(fits).collect())
        };
        Ok(match self {
            Retention::LatestN { n } => Some((0..all.len()).take(clamp(*n)).collect()),
            Retention::EveryNSteps { n } => stepped(&|step| step.is_multiple_of(*n)),
            Retention::CustomSteps { steps } => stepped(&|step| steps.contains(&step)),
            Retention::EveryNSeconds { seconds } => Some(spaced(all, millis(*seconds))),
            Retention::LatestDuration { seconds } => {
                let newest = all.iter().map(|v| v.time_ms).max().unwrap_or(0);
                let since = newest.saturating_sub(millis(*seconds));
                Some((0..all.len()).filter(|i| all[*i].time_ms >= since).collect())
            }
            Retention::BestN { n, metric, mode } => {
                let least = match mode {
                    Some(mode) => *mode == BestMode::Min,
                    None => End::Best.is_least(metric)?,
                };
                best(all, metric, least).map(|order| order.into_iter().take(clamp(*n)).collect())
            }
            Retention::Any { .. } => Some(Vec::new()),
        })
    }
}

fn clamp(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn millis(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)
}

/// The oldest, and each that follows the last one kept by the gap or more. What is kept of a run's beginning does not
/// depend on what comes later, nor on what was pruned before.
fn spaced(all: &[Facts], gap: i64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all.len()).rev().collect();
    order.sort_by_key(|i| all[*i].time_ms);
    let mut last: Option<i64> = None;
    order.retain(|i| {
        let time = all[*i].time_ms;
        let far = last.is_none_or(|l| time.saturating_sub(l) >= gap);
        if far {
            last = Some(time);
        }
        far
    });
    order
}

/// Places of the versions that have a metric, best first; none if there are versions and none of them has it.
fn best(all: &[Facts], metric: &str, least: bool) -> Option<Vec<usize>> {
    let value = |i: usize| all[i].metrics.get(metric).copied().filter(|v| !v.is_nan());
    let mut order: Vec<(usize, f64)> = (0..all.len()).filter_map(|i| Some((i, value(i)?))).collect();
    // A stable sort: of equals the newer comes first.
    order.sort_by(|a, b| {
        let (a, b) = if least { (a.1, b.1) } else { (b.1, a.1) };
        a.partial_cmp(&b).unwrap_or(Ordering::Equal)
    });
    (all.is_empty() || !order.is_empty()).then(|| order.into_iter().map(|(i, _)| i).collect())
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::LatestN { n } => write!(f, "latest {n}"),
            Retention::EveryNSteps { n } => write!(f, "every {n} steps"),
            Retention::EveryNSeconds { seconds } => write!(f, "every {seconds} s"),
            Retention::BestN { n, metric, mode } => {
                let end = match mode {
                    None => "",
                    Some(BestMode::Min) => " (min)",
                    Some(BestMode::Max) => " (max)",
                };
                write!(f, "best {n} of {metric}{end}")
            }
            Retention::CustomSteps { steps } => {
                let all: Vec<String> = steps.iter().map(u64::to_string).collect();
                write!(f, "steps {}", all.join(" "))
            }
            Retention::LatestDuration { seconds } => write!(f, "newest {seconds} s"),
            Retention::Any { rules } => {
                let all: Vec<String> = rules.iter().map(Retention::to_string).collect();
                write!(f, "{}", all.join(", "))
            }
        }
    }
}
