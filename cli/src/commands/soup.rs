//! `mdl soup`: makes one version of several of a run, or of fine-tunes of one model.

use super::{
    merge_options::{MergeOptions, document, tell, undecided},
    prelude::*,
};
use crate::errors::unforced;
use mdl_repo::{CommandEvaluator, MeasuredSoup, SoupKind, SoupRequest};
use std::{path::Path, time::Duration};

/// Average several versions into a new one
///
/// Versions are revisions, and ranges `A..B`: what B has and A has not, along first parents. The new version goes on
/// top of the present branch, with all of them as parents. Its weights are their average; files that are no weights,
/// and state of the optimizer, are those of the newest of them (the last that is named).
///
/// --ema counts newer versions more. --greedy begins with the version that measures best and adds those, best first,
/// with which the average measures no worse: CMD is run by `sh -c` with MDL_CANDIDATE_DIR set to a directory with the
/// checkpoint, and the last line that it prints is a number.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl soup main~5..main
  mdl soup main~20..main --ema 0.9
  mdl soup run-1 run-2 run-3 --greedy --eval 'python evaluate.py'")]
pub struct Args {
    /// Versions, oldest first.
    #[arg(value_name = "REV", required = true)]
    revs: Vec<String>,
    /// Exponential moving average: what was before counts DECAY, each newer version the rest.
    #[arg(long, value_name = "DECAY", conflicts_with = "greedy")]
    ema: Option<f64>,
    /// Take those that measure well together.
    #[arg(long, requires = "eval")]
    greedy: bool,
    /// Evaluator: prints a number, smaller is better.
    #[arg(long, value_name = "CMD", requires = "greedy")]
    eval: Option<String>,
    /// Larger numbers are better.
    #[arg(long, requires = "eval")]
    maximize: bool,
    /// Seconds that the evaluator may take.
    #[arg(long, value_name = "S", default_value_t = 600)]
    eval_timeout: u64,
    /// Another strategy, or `ours` (the newest), for files whose path or tensors whose name match; may be repeated.
    #[arg(long = "for", value_name = "GLOB=STRATEGY")]
    overrides: Vec<String>,
    /// Average state of the optimizer too.
    #[arg(long)]
    with_state: bool,
    /// Message.
    #[arg(short, long)]
    message: Option<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let mut versions = Vec::new();
    for rev in &args.revs {
        match rev.split_once("..") {
            Some((base, head)) => {
                let head = if head.is_empty() { "HEAD" } else { head };
                let (base, head) = (mdl_repo::resolve(&repo, base)?, mdl_repo::resolve(&repo, head)?);
                versions.extend(mdl_repo::range(&repo, &base, &head)?);
            }
            None => versions.push(mdl_repo::resolve(&repo, rev)?),
        }
    }
    versions.reverse();
    let mut seen = std::collections::HashSet::new();
    versions.retain(|id| seen.insert(*id));
    let command = args.eval.clone().map(|c| CommandEvaluator::new(c, Duration::from_secs(args.eval_timeout)));
    let mut measure = |dir: &Path| command.as_ref().map_or_else(|| Err(String::new()), |c| c.run(dir));
    let request = SoupRequest {
        versions,
        kind: match (args.ema, args.greedy) {
            (Some(decay), _) => SoupKind::Ema { decay },
            (None, true) => SoupKind::Greedy,
            (None, false) => SoupKind::Uniform,
        },
        measure: Some(&mut measure),
        maximize: args.maximize,
        overrides: MergeOptions::only(&args.overrides).overrides()?,
        with_state: args.with_state,
        message: args.message.clone(),
    };
    let (outcome, tried) = mdl_repo::soup(&repo, request, &context.bars).map_err(unforced)?;
    let with_tries = || {
        let mut all = document(&repo, &outcome)?;
        all["tried"] = tried.iter().map(tried_json).collect();
        Ok(all)
    };
    if context.wants_text(with_tries)? {
        for MeasuredSoup { versions, value, kept } in &tried {
            let names: Vec<String> = versions.iter().map(Id::short).collect();
            let mark = if *kept { "kept" } else { "" };
            writeln!(context.out, "{}", format!("  {value} {} {mark}", names.join(" + ")).trim_end())?;
        }
        tell(context, &repo, &outcome)?;
    }
    undecided(&outcome)
}

fn tried_json(tried: &MeasuredSoup) -> Value {
    let versions: Vec<String> = tried.versions.iter().map(Id::to_hex).collect();
    json!({"versions": versions, "value": tried.value, "kept": tried.kept})
}
