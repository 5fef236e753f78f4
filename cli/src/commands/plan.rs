//! `mdl plan`: what a lossy commit would try, and what would come out.

use super::lossy_options::{LossyOptions, quality_json, quality_text};
use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{Align, Table, json_number, short_number, size},
};
use mdl_repo::{BoundCost, CommitRequest, PlannedCommit, Trial};
use serde_json::{Map, Value, json};
use std::{io::Write, path::PathBuf};

/// Show what a lossy commit would store, without committing
///
/// Makes and measures the same candidates as `mdl commit` with the same options, and lists them: bytes that the weights
/// would take, the measured number, the deviation of the weights. Then what each bound of the policy costs: the bytes
/// that the same steps, or bins, would take less without it. Nothing is stored.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl plan out --policy lossy --eval './evaluate.sh' --grads out.grads.safetensors
  mdl plan --policy paper --quality 0.01 --eval ./accuracy --higher-is-better --json")]
pub struct Args {
    /// Directory (or file) that would be committed. Default: the work tree.
    path: Option<PathBuf>,
    /// Branch that would be committed to. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Commit what symbolic links point at instead of refusing them.
    #[arg(long)]
    follow_symlinks: bool,
    #[command(flatten)]
    lossy: LossyOptions,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let Some(mut plan) = args.lossy.plan(&repo)? else {
        let hint = "name one with --policy NAME; `mdl policy list` shows them";
        return Err(CliError::usage("a plan wants a policy", hint));
    };
    let request = CommitRequest {
        source: args.path.clone(),
        branch: args.branch.clone(),
        follow_symlinks: args.follow_symlinks,
        resumed_from: args.lossy.resumed_from(&repo)?,
        ..CommitRequest::default()
    };
    let PlannedCommit { quality, mut trials, bound_costs } = mdl_repo::plan(&repo, &request, &mut plan.request())?;
    plan.check_evaluator()?;
    trials.sort_by_key(|t| t.bytes);
    if context.global.json {
        let trials: Vec<Value> = trials.iter().map(trial_json).collect();
        let costs = bound_costs.iter().map(|c| (c.bound.to_owned(), c.bytes.into()));
        let costs: Map<String, Value> = costs.collect();
        let document = json!({"plan": quality_json(&quality), "candidates": trials, "bound_costs": costs});
        return context.json(&document);
    }
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Right, Right, Right, Right, Left]);
    let head =
        ["candidate", "bytes", "measured", "max error", "rel. error", "worst row", "of update", "kept exact", ""];
    table.row(head.map(|h| context.paint.dim(h)));
    for t in &trials {
        let verdict = verdict(t, t.configuration == quality.configuration).to_owned();
        let [max, l2, row] = [t.max_abs, t.rel_l2, t.worst_row].map(short_number);
        let update = t.worst_row_update.map_or("-".to_owned(), short_number);
        let exact = exact(t);
        table.row([t.configuration.clone(), size(t.bytes), measured(t), max, l2, row, update, exact, verdict]);
    }
    context.print(&table.lines(0))?;
    writeln!(context.out, "would be committed: {}", quality_text(&quality))?;
    if let Some(bounds) = &quality.bounds {
        writeln!(context.out, "{}", bounds.text())?;
    }
    for BoundCost { bound, bytes } in &bound_costs {
        let cost = size(bytes.unsigned_abs());
        let text = if *bytes < 0 { format!("saves {cost}") } else { format!("costs {cost}") };
        writeln!(context.out, "  the bound `{bound}` {text}")?;
    }
    context.finish()?;
    for warning in &quality.warnings {
        context.note(&format!("warning: {warning}"));
    }
    plan.tell_failures(context);
    Ok(())
}

fn measured(t: &Trial) -> String {
    match t.measured {
        Some(m) => short_number(m),
        None if t.evaluated => "none".to_owned(),
        None => "-".to_owned(),
    }
}

/// What a bound keeps exact: `2 tensors, 31 rows`.
fn exact(t: &Trial) -> String {
    let counted = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}{}", if n == 1 { "" } else { "s" }));
    let both = [counted(t.exact_tensors, "tensor"), counted(t.exact_rows, "row")];
    let text = both.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if text.is_empty() { "-".to_owned() } else { text }
}

fn verdict(t: &Trial, chosen: bool) -> &'static str {
    match (chosen, t.evaluated, t.passes) {
        (true, ..) => "<- this one",
        // Measured on a guess; the search went another way.
        _ if t.ahead => "not needed",
        (_, true, true) => "passes",
        (_, true, false) => "rejected",
        _ => "",
    }
}

fn trial_json(t: &Trial) -> Value {
    json!({
        "configuration": t.configuration,
        "bytes": t.bytes,
        "measured": t.measured.map(json_number),
        "evaluated": t.evaluated,
        "passes": t.passes,
        "ahead": t.ahead,
        "max_abs": json_number(t.max_abs),
        "rel_l2": json_number(t.rel_l2),
        "update_error": t.update_error.map(json_number),
        "worst_row": json_number(t.worst_row),
        "worst_row_update": t.worst_row_update.map(json_number),
        "hidden_rows": t.hidden_rows,
        "exact_tensors": t.exact_tensors,
        "exact_rows": t.exact_rows,
    })
}
