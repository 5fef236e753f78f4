//! `mdl grep-metric`: versions whose metrics satisfy an expression, sorted.

use super::{
    log_filter::expression,
    prelude::*,
    shared::{Notes, every_ref},
};
use crate::render::short_number;
use mdl_repo::{Step, metric_of};

/// List versions whose metrics satisfy an expression, sorted by its first metric
///
/// Comparisons: < <= > >= = !=, joined by and, or, not and parentheses; a comma is `and`. `step` and `epoch` are those
/// of the version. has(NAME) holds where the metric was recorded; a comparison of one that was not is false. Names with
/// spaces stand in double quotes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl grep-metric 'loss<2'
  mdl grep-metric 'eval/acc>=0.9 and step>1000' --all --sort step -n 5
  mdl grep-metric 'loss = nan'")]
pub struct Args {
    /// Expression.
    #[arg(value_name = "EXPR")]
    expression: String,
    /// Revision to start from.
    #[arg(default_value = "HEAD", conflicts_with = "all", value_parser = crate::args::revision)]
    rev: String,
    /// Start from every branch and tag.
    #[arg(long)]
    all: bool,
    /// Sort by this metric instead.
    #[arg(long, value_name = "NAME")]
    sort: Option<String>,
    /// The greatest first.
    #[arg(short, long)]
    reverse: bool,
    /// Show at most N versions.
    #[arg(short = 'n', long = "max-count", value_name = "N")]
    limit: Option<usize>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let wanted = expression(&args.expression)?;
    let repo = context.repo()?;
    let starts = if args.all { every_ref(&repo)? } else { vec![mdl_repo::resolve(&repo, &args.rev)?] };
    let notes = Notes::read(&repo)?;
    let key = args.sort.as_deref().unwrap_or_else(|| wanted.first_name());
    let mut found: Vec<(Option<f64>, Step)> = Vec::new();
    for step in mdl_repo::history(&repo, &starts)? {
        let Step { id, commit } = step?;
        let step = Step { commit: notes.noted.annotated(&id, commit), id };
        if wanted.holds(&|name| metric_of(&step.commit, name)) {
            found.push((metric_of(&step.commit, key), step));
        }
    }
    // What has no such metric comes last, what is not a number before it; of equals the newest comes first.
    found.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) if a.is_nan() || b.is_nan() => a.is_nan().cmp(&b.is_nan()),
        (Some(a), Some(b)) if args.reverse => b.total_cmp(a),
        (Some(a), Some(b)) => a.total_cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    });
    found.truncate(args.limit.unwrap_or(usize::MAX));
    if context.global.json {
        let list: mdl_repo::Result<Vec<Value>> =
            found.iter().map(|(_, s)| entry::json(repo.odb(), &notes, &s.id, &s.commit)).collect();
        return context.json(&list?);
    }
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    for (value, step) in &found {
        let value = value.map_or_else(|| "-".to_owned(), short_number);
        let entry = entry::Entry::new(repo.odb(), &notes, &step.id, &step.commit)?;
        table.row([visible(key), value, entry.short(context.paint)]);
    }
    context.print(&table.lines(0))
}
