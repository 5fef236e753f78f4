//! `mdl prune`: which versions keep their contents, and what is left of the others.

use super::retention_options::{RetentionOptions, To};
use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{count, size},
};
use mdl_objects::Id;
use mdl_repo::{KeptVersion, Level, LevelReport, PruneOptions, PruneReport, PrunedVersion};
use serde_json::json;
use std::io::Write;

/// Versions listed of each kind.
const SHOWN: usize = 20;

/// Let go of the contents of versions that no rule keeps
///
/// A version stays if any rule keeps it, if a branch, tag or HEAD points at it, if a run resumed from it within
/// `gc.grace_hours`, or if a branch that is not pruned holds it. All branches are pruned, each by its own versions,
/// unless one is named. A pruned version stays in the log with its message, step and metrics; what it held is freed by
/// `mdl gc` once it has been pruned for `gc.grace_hours`, and can be taken back until then. If anything that is to stay
/// is damaged or missing, nothing is pruned. A rule of steps or of a metric keeps everything on a branch where no
/// version has one.
///
/// With --to the versions that no rule keeps are not let go of altogether. They go down a ladder, never up: exact,
/// approximate, weights, gone. A version that was not committed under a lossy policy has no approximation. Files that
/// hold nothing but state of the optimizer, or random state, are told by their names and those of their tensors; a file
/// that holds weights as well stays whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl prune --keep-latest 3 --keep-every-steps 10000 --keep-best 2:eval_loss:min --dry-run
  mdl prune --branch main --keep-latest 5 --keep-newer 7d
  mdl prune --keep-latest 5 --to weights  # older versions lose their optimizer state
  mdl prune --undo
  mdl prune --keep-latest 1 && mdl compact && mdl gc --prune-now")]
pub struct Args {
    /// Prune this branch only: other branches then hold on to all that is theirs.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    #[command(flatten)]
    rules: RetentionOptions,
    /// What is left of versions that no rule keeps.
    #[arg(long, value_enum, default_value_t = To::Gone, value_name = "LEVEL")]
    to: To,
    /// Only say which versions would go, and what that frees at each level.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Take prunings back: of these versions, or of all that were pruned last. A version that is named keeps its exact
    /// contents too, if a lossy policy was to let go of them.
    #[arg(long, value_name = "REV", num_args = 0.., value_parser = crate::args::revision, conflicts_with_all = [
        "branch", "keep_latest", "keep_every_steps", "keep_best", "keep_every", "keep_steps", "keep_newer", "rules",
        "dry_run", "to",
    ])]
    undo: Option<Vec<String>>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    if let Some(revs) = &args.undo {
        return undo(context, revs);
    }
    let hint = "give at least one rule, such as --keep-latest 3; --dry-run shows what would go";
    let rules = args.rules.rules().ok_or_else(|| CliError::usage("nothing says what is to be kept", hint))?;
    let repo = context.repo()?;
    let options = PruneOptions { dry_run: args.dry_run, to: args.to.into() };
    let report = mdl_repo::prune(&repo, args.branch.as_deref(), &rules, &options)?;
    if context.global.json {
        return context.json(&report);
    }
    for rule in &report.undecided {
        context.note(&format!("note: no version has what this rule asks for, so it keeps all: {rule}"));
    }
    if !context.chatty() {
        return Ok(());
    }
    tell(context, &report, repo.config().grace_hours())
}

fn tell(context: &mut Context, r: &PruneReport, grace_hours: u64) -> Result<()> {
    let kept = count(r.kept.len() as u64, "version");
    if r.pruned.is_empty() {
        writeln!(context.out, "Nothing to prune{}: {kept} stay", down_to(r.to))?;
        left_alone(context, r)?;
        return levels(context, &r.levels);
    }
    let verb = if r.dry_run { "Would prune" } else { "Pruned" };
    let pruned = count(r.pruned.len() as u64, "version");
    writeln!(context.out, "{verb} {pruned}{} ({}); {kept} stay", down_to(r.to), r.branches.join(", "))?;
    list(context, r.pruned.iter().map(|p| line(p.commit, p.step, "")))?;
    if r.dry_run {
        writeln!(context.out, "To stay:")?;
        list(context, r.kept.iter().map(|k: &KeptVersion| line(k.commit, k.step, &k.why.join(", "))))?;
    }
    left_alone(context, r)?;
    let freed = size(r.freed_bytes);
    writeln!(context.out, "{freed} to be freed by `mdl gc`, {grace_hours} hours from now (at once with --prune-now)")?;
    if r.base_bytes > 0 {
        let bases = size(r.base_bytes);
        writeln!(context.out, "{bases} more are bases of what stays: `mdl compact` before `mdl gc` lets go of them")?;
    }
    levels(context, &r.levels)?;
    if !r.dry_run {
        writeln!(context.out, "`mdl prune --undo` takes it back until then")?;
    }
    Ok(())
}

fn down_to(level: Level) -> &'static str {
    match level {
        Level::Gone => "",
        Level::Weights => " to their weights",
        Level::Approximate => " to their approximation",
    }
}

/// Versions that no rule keeps, and that give up nothing or not all.
fn left_alone(context: &mut Context, r: &PruneReport) -> Result<()> {
    let why = [
        (r.no_approximation, "left as they are: no approximation was committed with them"),
        (r.no_state, "left as they are: no file of nothing but optimizer state beside one with weights"),
        (r.mixed, "with files of weights and optimizer state in one: these stay whole"),
    ];
    for (versions, why) in why.into_iter().filter(|(versions, _)| *versions > 0) {
        writeln!(context.out, "{} {why}", count(versions, "version"))?;
    }
    Ok(())
}

/// What each level would free.
fn levels(context: &mut Context, levels: &[LevelReport]) -> Result<()> {
    for LevelReport { to, versions, freed_bytes, base_bytes } in levels {
        let (versions, freed) = (count(*versions, "version"), size(freed_bytes.saturating_add(*base_bytes)));
        writeln!(context.out, "  --to {:<12} {versions}, {freed}", to.name())?;
    }
    Ok(())
}

pub fn line(commit: Id, step: Option<u64>, why: &str) -> String {
    let step = step.map_or_else(String::new, |s| format!("step {s}"));
    format!("  {}  {step:<12} {why}", commit.short()).trim_end().to_owned()
}

pub fn list(context: &mut Context, lines: impl ExactSizeIterator<Item = String>) -> Result<()> {
    let total = lines.len();
    for line in lines.take(SHOWN) {
        writeln!(context.out, "{line}")?;
    }
    if total > SHOWN {
        writeln!(context.out, "  ... {} more; --json lists all", total - SHOWN)?;
    }
    Ok(())
}

fn undo(context: &mut Context, revs: &[String]) -> Result<()> {
    let repo = context.repo()?;
    let ids = revs.iter().map(|r| mdl_repo::resolve(&repo, r)).collect::<mdl_repo::Result<Vec<Id>>>()?;
    let back = mdl_repo::undo_prune(&repo, (!ids.is_empty()).then_some(&ids))?;
    if !context.wants_text(|| Ok(json!({"restored": back})))? {
        return Ok(());
    }
    writeln!(context.out, "Took back {}", count(back.len() as u64, "version"))?;
    list(context, back.iter().map(|p: &PrunedVersion| line(p.commit, p.step, "")))
}
