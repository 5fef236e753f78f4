//! Options of a lossy commit, shared by `commit`, `plan` and `policy test`: policy, gate, evaluator.

use super::prelude::*;
use mdl_repo::{CommandEvaluator, DEFAULT, Direction, Evaluator, Gate, LossyRequest, Policy, Quality};
use mdl_server::api::entry::without_search_state;
use std::{collections::BTreeSet, time::Duration};

/// What a lossy commit may try and lose.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Lossy commits")]
pub struct LossyOptions {
    /// Store weights lossily under this policy (`mdl policy list`), or the one in a .toml file. Without --policy,
    /// --quality, --progress and --eval every bit is kept; with one of the latter the policy is `lossy`.
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Gate: at most this fraction of the measured number may be lost, such as 0.05.
    #[arg(long, value_name = "EPS", conflicts_with = "progress")]
    quality: Option<f64>,
    /// Gate: at most this fraction of what the run gains per commit (smoothed) may be lost, such as 0.25.
    #[arg(long, value_name = "RHO")]
    progress: Option<f64>,
    /// Shell command that measures a checkpoint: MDL_CANDIDATE_DIR names a directory with what a checkout would give
    /// (read only); the last line it prints is one number. Where it fails, prints something else or takes too long,
    /// the candidate is rejected.
    #[arg(long, value_name = "CMD")]
    eval: Option<String>,
    /// Keep every bit, with a warning, where the evaluator gives no number even for the exact checkpoint. Without this
    /// that is an error, and nothing is committed.
    #[arg(long, requires = "eval")]
    keep_going: bool,
    /// Seconds that one measurement may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    eval_timeout: u64,
    /// Measurements side by side: what the search may ask for next is measured along with what it asks for. What is
    /// committed stays the same; it takes fewer rounds, more measurements, and room for so many candidates.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    eval_jobs: u16,
    /// The number is a loss (default).
    #[arg(long, conflicts_with = "higher_is_better")]
    lower_is_better: bool,
    /// The number is an accuracy or the like.
    #[arg(long)]
    higher_is_better: bool,
    /// Gradients (their moving average) as a safetensors file whose tensors are named as the weights: says which
    /// weights matter. Without it Adam's second moments are used where the commit has them.
    #[arg(long, value_name = "FILE")]
    grads: Option<PathBuf>,
    /// An earlier checkpoint of the run on disk (its directory, or only file), for the first version: what changed
    /// since says how close it must be. Without it, and without an earlier version, the bound `first` does.
    #[arg(long, value_name = "PATH")]
    since: Option<PathBuf>,
    /// The version that training was restored from since the last commit: recorded, and the lattice's offsets are
    /// drawn anew.
    #[arg(long, value_name = "REV", value_parser = crate::args::revision)]
    resumed_from: Option<String>,
}

/// A policy with what measures candidates.
#[derive(Debug)]
pub struct LossyPlan {
    policy: Policy,
    evaluator: Option<CommandEvaluator>,
    direction: Direction,
    grads: Option<PathBuf>,
    since: Option<PathBuf>,
}

impl LossyPlan {
    /// As the repository takes it.
    pub fn request(&mut self) -> LossyRequest<'_> {
        LossyRequest {
            policy: self.policy.clone(),
            evaluator: self.evaluator.as_mut().map(|e| e as &mut dyn Evaluator),
            direction: self.direction,
            grads: self.grads.clone(),
            since: self.since.clone(),
        }
    }

    /// Says why candidates have no number, each reason once.
    pub fn tell_failures(&self, context: &Context) {
        let mut told = BTreeSet::new();
        for failure in self.evaluator.iter().flat_map(|e| &e.failures).filter(|f| told.insert(*f)) {
            context.note(&format!("note: the evaluator gave no number: {}", visible(failure)));
        }
    }

    /// An error where the evaluator never gave a number, unless that is no reason to stop.
    pub fn check_evaluator(&self) -> Result<()> {
        let Some(evaluator) = self.evaluator.as_ref().filter(|e| e.gave_up()) else { return Ok(()) };
        let why = evaluator.failures.first().map_or("", String::as_str);
        let hint = "nothing was committed. The last line that --eval prints must be one number, for the checkpoint in \
                    $MDL_CANDIDATE_DIR; --keep-going commits every bit all the same";
        Err(refused(format!("the evaluator gave no number for the exact checkpoint: {why}"), hint))
    }
}

impl LossyOptions {
    pub fn resumed_from(&self, repo: &Repo) -> Result<Option<Id>> {
        Ok(self.resumed_from.as_ref().map(|rev| mdl_repo::resolve(repo, rev)).transpose()?)
    }

    /// The same, for commits that are made also where the evaluator gives no number.
    pub fn keeping_on(&self) -> LossyOptions {
        LossyOptions { keep_going: true, ..self.clone() }
    }

    /// Policy and evaluator; none: every bit is kept.
    pub fn plan(&self, repo: &Repo) -> Result<Option<LossyPlan>> {
        let asked = self.quality.is_some() || self.progress.is_some() || self.eval.is_some();
        let name = match &self.policy {
            Some(name) => name.as_str(),
            None if asked => DEFAULT,
            None => return Ok(None),
        };
        let mut policy = mdl_repo::policy(repo, name)?;
        mdl_repo::check_policy(&policy)?;
        for (option, part) in [("--quality", self.quality), ("--progress", self.progress)] {
            if part.is_some_and(|p| !(0.0..=1e6).contains(&p)) {
                return Err(CliError::usage(format!("{option} wants a fraction from 0 up"), ""));
            }
        }
        if let Some(gate) = self.quality.map(Gate::Epsilon).or(self.progress.map(Gate::Progress)) {
            policy.gate = gate;
        }
        let timeout = Duration::from_secs(self.eval_timeout);
        let jobs = usize::from(self.eval_jobs);
        let evaluator =
            |command| CommandEvaluator::new(command, timeout).side_by_side(jobs).keep_going(self.keep_going);
        Ok(Some(LossyPlan {
            policy,
            evaluator: self.eval.clone().map(evaluator),
            direction: if self.higher_is_better { Direction::HigherIsBetter } else { Direction::LowerIsBetter },
            grads: self.grads.clone(),
            since: self.since.clone(),
        }))
    }
}

/// `bins, 16 bins, fresh codebook; 1.4012 against 1.4001 exact, at most 1.4021 (progress 0.25); 3 evaluations`
pub fn quality_text(q: &Quality) -> String {
    let mut text = entry::measured(q);
    if q.evaluations > 0 {
        text.push_str(&format!("; {} evaluated", q.evaluations));
    }
    if let Some(exact) = q.exact_bytes {
        text.push_str(&format!("; exact while new: {}", size(exact)));
    }
    text
}

/// The record for programs, without what only the next search needs.
pub fn quality_json(q: &Quality) -> Value {
    without_search_state(serde_json::to_value(q).unwrap_or_default())
}
