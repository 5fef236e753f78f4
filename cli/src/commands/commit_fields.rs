//! Options that describe a new commit: message, branch, step, metrics.

use crate::errors::{CliError, Result};
use mdl_repo::CommitRequest;
use std::collections::BTreeMap;

#[derive(Clone, Debug, clap::Args)]
pub struct CommitFields {
    /// What this version is. Default: "step N" where --step is given, else `commit` asks $EDITOR.
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Branch to commit to, made from the present commit if it is new. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Optimizer steps trained so far; `main@step=N` finds the version again.
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Epochs trained so far, possibly a fraction.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    epoch: Option<f64>,
    /// A number measured on this version, such as loss=0.41; may be repeated. `main@best(loss)` finds the best
    /// version, `main@min(NAME)` and `main@max(NAME)` the ends.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = metric)]
    metric: Vec<(String, f64)>,
    /// Anything else worth keeping, such as run=8f3k; may be repeated.
    #[arg(long, value_name = "KEY=TEXT", value_parser = pair)]
    meta: Vec<(String, String)>,
    /// Commit even if nothing changed.
    #[arg(long)]
    allow_empty: bool,
}

impl CommitFields {
    /// Refuses NaN, infinite and negative epochs before the editor opens or files are read.
    pub fn check(&self) -> Result<()> {
        if self.epoch.is_some_and(|e| !e.is_finite() || e < 0.0) {
            return Err(CliError::usage("--epoch must be a number from 0 up", ""));
        }
        Ok(())
    }

    /// Builds the commit request; `ask` supplies a missing message.
    pub fn request(self, ask: impl FnOnce() -> Result<String>) -> Result<CommitRequest> {
        let message = match (self.message, self.step) {
            (Some(text), _) => text,
            (None, Some(step)) => format!("step {step}"),
            (None, None) => ask()?,
        };
        if message.trim().is_empty() {
            return Err(CliError::usage("the message is empty", "say what this version is with -m TEXT"));
        }
        Ok(CommitRequest {
            message,
            branch: self.branch,
            step: self.step,
            epoch: self.epoch,
            metrics: unique("metric", self.metric)?,
            meta: unique("meta", self.meta)?,
            allow_empty: self.allow_empty,
            ..CommitRequest::default()
        })
    }
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a name, '=' and a value are wanted".to_owned()),
    }
}

fn metric(text: &str) -> std::result::Result<(String, f64), String> {
    let (key, value) = pair(text)?;
    let number: f64 = value.trim().parse().map_err(|_| format!("{value:?} is not a number"))?;
    if number.is_infinite() && value.contains(|c: char| c.is_ascii_digit()) {
        return Err(format!("{value:?} is too large for a number of 64 bits"));
    }
    Ok((key, number))
}

/// Refuses duplicate names: one of the values would be lost.
fn unique<V>(what: &str, pairs: Vec<(String, V)>) -> Result<BTreeMap<String, V>> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.insert(key.clone(), value).is_some() {
            return Err(CliError::usage(format!("--{what} {key} is given twice"), ""));
        }
    }
    Ok(map)
}
