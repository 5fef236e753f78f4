//! `mdl compare`: compression systems side by side on checkpoints.

mod plot;
mod show;

use crate::{
    context::Context,
    errors::{CliError, Result},
};
use mdl_repo::{Progress, RepoError};
use mdl_rivals::{
    compare::{Checkpoint, Evaluator, Measured, Verdict, at_error, measure},
    systems::{NAMES, State, system},
};
use std::{path::PathBuf, time::Duration};

/// Compare compression systems on checkpoint files: ratio, error, quality, speed
///
/// Ratios are of bytes that a system really emits and that were decoded again; speeds are of one run over all threads.
/// Several checkpoints are a history: each is encoded against what the system decoded of the one before. Vectors, small
/// and integer tensors are lossless for every system; an optimizer's moments are left out. Errors are over all numbers,
/// of the worst row (over the row; how many are above 15 %, where a lossy commit keeps rows by default), and over what
/// training changed since the checkpoint before. No repository is needed.
///
/// Systems: lossless (mdl's own), zstd; adaptive (Check-N-Run), uniform (QD-compressor), kmeans (GOBO), lc
/// (LC-Checkpoint), delta-dnn, int8, nf4, fp4, neuzip-lossy, paper (Inshrinkerator); bins, lattice (mdl's own).
/// Settings follow a colon: uniform:bits=4, adaptive:bits=4,steps=100, kmeans:bins=16,
/// paper:bins=8,prune=0.2,protect=0.005, lattice:step=0.5,scale=model.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl compare model.safetensors
  mdl compare step-100.safetensors step-200.safetensors --systems paper,bins,lattice
  mdl compare model.safetensors --at-error 0.1 --systems adaptive,uniform,bins,lattice:scale=model
  mdl compare model/ --eval 'python eval.py \"$MDL_CANDIDATE_DIR\"' --lower-is-better --plot plots")]
pub struct Args {
    /// Checkpoints, oldest first: files, or directories of files.
    #[arg(required = true, value_name = "CKPT")]
    checkpoints: Vec<PathBuf>,
    /// Systems with their settings, between commas.
    #[arg(long, value_name = "LIST")]
    systems: Option<String>,
    /// Search each system's settings for the smallest encoding with at most this relative L2 error.
    #[arg(long, value_name = "X")]
    at_error: Option<f64>,
    /// A shell command that prints a checkpoint's quality as its last line; MDL_CANDIDATE_DIR holds the files.
    #[arg(long, value_name = "CMD")]
    eval: Option<String>,
    /// Seconds that an evaluation may take.
    #[arg(long, value_name = "S", default_value_t = 600, requires = "eval")]
    eval_timeout: u64,
    /// A smaller quality is a better one.
    #[arg(long, requires = "eval", conflicts_with = "higher_is_better")]
    lower_is_better: bool,
    /// A larger quality is a better one.
    #[arg(long, requires = "eval")]
    higher_is_better: bool,
    /// Gradients by tensor name, for systems that weigh by sensitivity.
    #[arg(long, value_name = "FILE")]
    grads: Option<PathBuf>,
    /// Write one line for each checkpoint and system.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw SVG pictures into this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// One system on one checkpoint.
pub struct Row {
    /// As it was asked for.
    asked: String,
    /// Index of the checkpoint.
    at: usize,
    /// `None` where no setting is good enough.
    measured: Option<Measured>,
    verdict: Option<Verdict>,
}

/// What is shown.
pub struct Results {
    checkpoints: Vec<String>,
    /// Quality of each checkpoint as it is.
    exact: Vec<Option<Verdict>>,
    rows: Vec<Row>,
    /// How to read a quality; `None` without an evaluator.
    lower_is_better: Option<bool>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    if args.eval.is_some() && !args.lower_is_better && !args.higher_is_better {
        let hint = "add --lower-is-better (a loss) or --higher-is-better (an accuracy)";
        return Err(CliError::usage("--eval needs to know which quality is better", hint));
    }
    if args.at_error.is_some_and(|x| !x.is_finite() || x < 0.0) {
        return Err(CliError::usage("--at-error takes a number from 0 up", ""));
    }
    let asked = systems(args.systems.as_deref())?;
    let results = measure_all(context, args, &asked)?;
    if let Some(path) = &args.csv {
        std::fs::write(path, show::csv(&results)).map_err(RepoError::io(format!("cannot write {}", path.display())))?;
    }
    if let Some(folder) = &args.plot {
        plot::write(folder, &results)?;
    }
    if context.global.json {
        return context.json(&show::json(&results));
    }
    show::table(context, &results)
}

/// The list at its commas, but not at those between settings: a part that is `KEY=VALUE` belongs to the system before.
fn systems(list: Option<&str>) -> Result<Vec<String>> {
    let default = NAMES.join(",");
    let mut out: Vec<String> = Vec::new();
    for part in list.unwrap_or(&default).split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let setting = part.contains('=') && !part.split('=').next().unwrap_or_default().contains(':');
        match out.last_mut() {
            Some(last) if setting => *last = format!("{last},{part}"),
            _ => out.push(part.to_owned()),
        }
    }
    for text in &out {
        system(text).map_err(|e| CliError::usage(e, "`mdl compare --help` lists systems and settings"))?;
    }
    if out.is_empty() {
        return Err(CliError::usage("no system to compare", "leave --systems out for all of them"));
    }
    Ok(out)
}

fn measure_all(context: &Context, args: &Args, asked: &[String]) -> Result<Results> {
    let evaluator = args.eval.as_ref().map(|command| Evaluator {
        command: command.clone(),
        timeout: Duration::from_secs(args.eval_timeout),
        scratch: std::env::temp_dir(),
    });
    let gradients = args.grads.as_deref().map(Checkpoint::read).transpose()?;
    let mut results = Results {
        checkpoints: Vec::new(),
        exact: Vec::new(),
        rows: Vec::new(),
        lower_is_better: evaluator.is_some().then_some(args.lower_is_better),
    };
    let mut last: Option<Checkpoint> = None;
    let mut parents: Vec<Option<State>> = asked.iter().map(|_| None).collect();
    for (at, path) in args.checkpoints.iter().enumerate() {
        let mut checkpoint = Checkpoint::read(path)?;
        if let Some(g) = &gradients
            && checkpoint.take_gradients(g) == 0
        {
            context.note("warning: no gradient has the name and shape of a tensor");
        }
        if checkpoint.moments > 0 && at == 0 {
            context.note(&format!("note: {} optimizer tensors are left out", checkpoint.moments));
        }
        let total = checkpoint.logical_bytes() * asked.len() as u64;
        context.bars.begin(&format!("comparing {}", checkpoint.name), total);
        let exact = evaluator.as_ref().map(|e| e.judge(&checkpoint, &State::default()));
        results.exact.push(exact.transpose()?);
        for (text, parent) in asked.iter().zip(&mut parents) {
            let before = last.as_ref().zip(parent.as_ref());
            let mut row = one(text, args.at_error, &checkpoint, before, at)?;
            if let (Some(e), Some(m)) = (&evaluator, &row.measured) {
                row.verdict = Some(e.judge(&checkpoint, &m.state)?);
            }
            // Only the next checkpoint needs it.
            *parent = row.measured.as_mut().map(|m| std::mem::take(&mut m.state));
            results.rows.push(row);
            context.bars.advance(checkpoint.logical_bytes());
        }
        context.bars.end();
        results.checkpoints.push(checkpoint.name.clone());
        last = Some(checkpoint);
    }
    Ok(results)
}

fn one(
    text: &str,
    most: Option<f64>,
    checkpoint: &Checkpoint,
    before: Option<(&Checkpoint, &State)>,
    at: usize,
) -> Result<Row> {
    let measured = match most {
        Some(most) => at_error(text, checkpoint, before, most)?,
        None => {
            let system = system(text).map_err(|e| CliError::usage(e, ""))?;
            Some(measure(&system, checkpoint, before)?)
        }
    };
    Ok(Row { asked: text.to_owned(), at, measured, verdict: None })
}
