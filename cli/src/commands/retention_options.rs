//! Options that say which versions stay, and what is left of the others: shared by `prune` and `free`.

use super::shared::parse_age;
use clap::ValueEnum;
use mdl_repo::{BestMode, Level, Retention};

/// Rules of retention: a version stays if any keeps it.
#[derive(Clone, Debug, clap::Args)]
pub struct RetentionOptions {
    /// Keep the N newest versions.
    #[arg(long, value_name = "N", help_heading = "Rules")]
    keep_latest: Option<u64>,
    /// Keep versions whose step is a multiple of N.
    #[arg(long, value_name = "N", help_heading = "Rules")]
    keep_every_steps: Option<u64>,
    /// Keep the N best versions by a metric. Without min or max the metric's name must tell which end is best.
    #[arg(long, value_name = "N:METRIC[:min|max]", value_parser = best, help_heading = "Rules")]
    keep_best: Vec<Retention>,
    /// Keep the oldest version, then each that is this much younger than the one kept before (seconds, or 30m, 1h,
    /// 7d).
    #[arg(long, value_name = "TIME", value_parser = parse_age, help_heading = "Rules")]
    keep_every: Option<u64>,
    /// Keep the versions of these steps.
    #[arg(long, value_name = "STEP", value_delimiter = ',', help_heading = "Rules")]
    keep_steps: Vec<u64>,
    /// Keep versions made no longer than this before the newest one (seconds, or 30m, 1h, 7d).
    #[arg(long, value_name = "TIME", value_parser = parse_age, help_heading = "Rules")]
    keep_newer: Option<u64>,
    /// Rules as JSON, such as {"rule": "LatestN", "n": 3}.
    #[arg(long, value_name = "JSON", value_parser = rules_json, help_heading = "Rules")]
    rules: Option<Retention>,
}

impl RetentionOptions {
    /// The rules that were given; none if there are none.
    pub fn rules(&self) -> Option<Retention> {
        let steps = (!self.keep_steps.is_empty())
            .then(|| Retention::CustomSteps { steps: self.keep_steps.iter().copied().collect() });
        let given = [
            self.keep_latest.map(|n| Retention::LatestN { n }),
            self.keep_every_steps.map(|n| Retention::EveryNSteps { n }),
            self.keep_every.map(|seconds| Retention::EveryNSeconds { seconds }),
            steps,
            self.keep_newer.map(|seconds| Retention::LatestDuration { seconds }),
            self.rules.clone(),
        ];
        let rules: Vec<Retention> = given.into_iter().flatten().chain(self.keep_best.iter().cloned()).collect();
        (!rules.is_empty()).then_some(Retention::Any { rules })
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum To {
    /// Nothing but the commit
    Gone,
    /// All but the optimizer state: of the approximation, if there is one
    Weights,
    /// The approximation
    Approximate,
}

impl From<To> for Level {
    fn from(to: To) -> Level {
        match to {
            To::Gone => Level::Gone,
            To::Weights => Level::Weights,
            To::Approximate => Level::Approximate,
        }
    }
}

/// `2:loss:min`
fn best(text: &str) -> std::result::Result<Retention, String> {
    let wanted = || "write N:METRIC, N:METRIC:min or N:METRIC:max, such as 2:loss:min".to_owned();
    let (n, metric) = text.split_once(':').ok_or_else(wanted)?;
    let (metric, mode) = match metric.rsplit_once(':') {
        Some((metric, "min")) => (metric, Some(BestMode::Min)),
        Some((metric, "max")) => (metric, Some(BestMode::Max)),
        // A metric's name may hold a colon.
        _ => (metric, None),
    };
    Ok(Retention::BestN { n: n.parse().map_err(|_| wanted())?, metric: metric.to_owned(), mode })
}

fn rules_json(text: &str) -> std::result::Result<Retention, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}
