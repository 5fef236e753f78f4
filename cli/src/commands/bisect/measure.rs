//! Bisection over recorded metrics: `mdl bisect --metric loss --above 2.3`.

use crate::{
    args::revision,
    commands::prelude::*,
    render::{json_number, short_number},
};
use mdl_objects::Commit;
use mdl_repo::{Measured, Threshold};

#[derive(Debug, clap::Args)]
pub struct MeasureArgs {
    /// With --metric: the bad version (default: HEAD), and good ones (default: none, all its history is searched).
    #[arg(value_name = "BAD_THEN_GOOD", value_parser = revision, requires = "metric")]
    revs: Vec<String>,
    /// Find the version from which on this recorded metric is bad, without a command or a checkout.
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Values above this are bad (as is what is not a number).
    #[arg(long, value_name = "X", requires = "metric", allow_negative_numbers = true)]
    above: Option<f64>,
    /// Values below this are bad.
    #[arg(long, value_name = "X", requires = "metric", allow_negative_numbers = true)]
    below: Option<f64>,
    /// Values are noisy: look at all, and find the version that leaves fewest of them on the wrong side.
    #[arg(long, requires = "metric")]
    noisy: bool,
}

impl MeasureArgs {
    pub fn is_wanted(&self) -> bool {
        self.metric.is_some()
    }
}

pub fn run(context: &mut Context, args: &MeasureArgs) -> Result<()> {
    let metric = args.metric.clone().unwrap_or_default();
    if args.above.is_none() && args.below.is_none() {
        let hint = format!("write --metric {metric} --above X, or --below X");
        return Err(CliError::usage("which values are bad is not said", hint));
    }
    let repo = context.repo()?;
    let ids: Vec<Id> = args.revs.iter().map(|rev| mdl_repo::resolve(&repo, rev)).collect::<mdl_repo::Result<_>>()?;
    let bad = ids.first().copied().map_or_else(|| mdl_repo::resolve(&repo, "HEAD"), Ok)?;
    let good = ids.get(1..).unwrap_or_default();
    let threshold = Threshold { metric: metric.clone(), above: args.above, below: args.below };
    let noted = mdl_repo::shown_notes(&repo)?;
    let value = |id: &Id, c: &Commit| noted.metric(id, c, &metric).or_else(|| mdl_repo::metric_of(c, &metric));
    let found = mdl_repo::bisect_metric(&repo, bad, good, &threshold, args.noisy, &value)?;
    if context.wants_text(|| Ok(document(&found)))? { tell(context, &repo, &found, &metric, &value) } else { Ok(()) }
}

fn document(found: &Measured) -> Value {
    let looked = |(id, v): &(Id, f64)| json!({"commit": id.to_hex(), "value": json_number(*v)});
    let (first, others) = found.first_bad.split_first().map_or((None, &[][..]), |(f, o)| (Some(f), o));
    json!({
        "first_bad": first.map(Id::to_hex),
        "or_any_of": others.iter().map(Id::to_hex).collect::<Vec<_>>(),
        "candidates": found.candidates,
        "looked_at": found.looked_at.iter().map(looked).collect::<Vec<_>>(),
        "wrong": found.wrong,
    })
}

fn tell(
    context: &mut Context,
    repo: &Repo,
    found: &Measured,
    metric: &str,
    value: &dyn Fn(&Id, &Commit) -> Option<f64>,
) -> Result<()> {
    for id in &found.first_bad {
        let commit = repo.odb().commit(id)?;
        let value = value(id, &commit).map_or_else(|| "not recorded".to_owned(), short_number);
        let what = if found.first_bad.len() == 1 { "is the first bad version" } else { "may be the first bad version" };
        writeln!(context.out, "{} {what} ({}: {value})", id.short(), visible(metric))?;
        writeln!(context.out, "  {}", subject(&commit.message))?;
    }
    let (n, all) = (count(found.looked_at.len() as u64, "value"), count(found.candidates as u64, "version"));
    let wrong = found.wrong.map(|n| format!("; {n} on the wrong side")).unwrap_or_default();
    Ok(writeln!(context.out, "{n} looked at, of {all}{wrong}")?)
}
