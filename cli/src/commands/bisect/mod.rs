//! `mdl bisect`: finds the first bad version by testing as few as possible.

mod measure;
mod run;
mod tell;
mod trial;

use super::prelude::*;
use crate::args::revision;
use mdl_repo::{Outlook, Verdict};

/// Find the version that made things worse, by testing as few as possible
///
/// Start with a bad version and good ones before it. The version in the middle is checked out: say whether it is good
/// or bad, and the next one comes, until the first bad version is found. `run` tests by a command, each version in a
/// directory of its own. With --metric the metrics that were recorded decide, and nothing is checked out.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mdl bisect start HEAD v1.0
  mdl bisect good
  mdl bisect run sh -c 'python \"$MDL_BISECT_FROM/check.py\" model.safetensors'
  mdl bisect run --repeat 5 --jobs 2 --only '*.safetensors' ./noisy-eval.sh
  mdl bisect reset
  mdl bisect --metric loss --above 2.3"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    measure: measure::MeasureArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Begin: name a bad version, and good ones that are older
    Start(Start),
    /// Say that a version is good (default: the one that is checked out)
    Good(Marked),
    /// Say that a version is bad (default: the one that is checked out)
    Bad(Marked),
    /// Say that a version cannot be tested (default: the one that is checked out)
    Skip(Marked),
    /// Test by a command: it ends with 0 for good, 1 to 127 for bad, 125 for what cannot be tested
    Run(run::Args),
    /// Print what was said so far, as commands
    Log,
    /// End, and go back to where it began
    Reset(Reset),
}

#[derive(Debug, clap::Args)]
struct Start {
    /// A bad version.
    #[arg(value_name = "BAD", value_parser = revision)]
    bad: Option<String>,
    /// Good versions.
    #[arg(value_name = "GOOD", value_parser = revision)]
    good: Vec<String>,
    /// Do not check versions out: only say which is next. So it is where there is no work tree.
    #[arg(long)]
    no_checkout: bool,
}

#[derive(Debug, clap::Args)]
struct Marked {
    /// Revisions.
    #[arg(value_name = "REV", value_parser = revision)]
    revs: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Reset {
    /// Go there instead of where it began: a branch, or a version.
    #[arg(value_name = "REV", value_parser = revision)]
    rev: Option<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    match &args.what {
        Some(What::Start(start)) => begin(context, start),
        Some(What::Good(marked)) => mark(context, &marked.revs, Verdict::Good),
        Some(What::Bad(marked)) => mark(context, &marked.revs, Verdict::Bad),
        Some(What::Skip(marked)) => mark(context, &marked.revs, Verdict::Skip),
        Some(What::Run(args)) => run::run(context, args),
        Some(What::Log) => tell::log(context),
        Some(What::Reset(args)) => reset(context, args),
        None if args.measure.is_wanted() => measure::run(context, &args.measure),
        None => {
            let repo = context.repo()?;
            let outlook = mdl_repo::bisect_next(&repo, 1)?;
            tell::outlook(context, &repo, &outlook)
        }
    }
}

fn resolved(repo: &Repo, revs: &[String]) -> Result<Vec<Id>> {
    revs.iter().map(|rev| Ok(mdl_repo::resolve(repo, rev)?)).collect()
}

fn begin(context: &mut Context, args: &Start) -> Result<()> {
    let repo = context.repo()?;
    let bad = args.bad.as_deref().map(|rev| mdl_repo::resolve(&repo, rev)).transpose()?;
    let good = resolved(&repo, &args.good)?;
    let checkout = !args.no_checkout && repo.work().is_some();
    let outlook = mdl_repo::bisect_start(&repo, bad, &good, checkout)?;
    go_on(context, &repo, &outlook)
}

fn mark(context: &mut Context, revs: &[String], verdict: Verdict) -> Result<()> {
    let repo = context.repo()?;
    let commits = match revs {
        [] => vec![present(&repo)?],
        revs => resolved(&repo, revs)?,
    };
    mdl_repo::bisect_mark(&repo, &commits, verdict, false)?;
    let outlook = mdl_repo::bisect_next(&repo, 1)?;
    go_on(context, &repo, &outlook)
}

/// The version that a verdict without a revision is on: HEAD's, or the next one where nothing is checked out.
fn present(repo: &Repo) -> Result<Id> {
    let checkout = mdl_repo::bisection(repo)?.is_some_and(|b| b.checkout);
    match mdl_repo::bisect_next(repo, 1)? {
        Outlook::Test { commits, .. } if !checkout && commits.len() == 1 => Ok(commits[0]),
        _ => Ok(mdl_repo::resolve(repo, "HEAD")?),
    }
}

fn go_on(context: &mut Context, repo: &Repo, outlook: &Outlook) -> Result<()> {
    mdl_repo::bisect_visit(repo, outlook, &context.bars).map_err(crate::errors::unforced)?;
    tell::outlook(context, repo, outlook)
}

fn reset(context: &mut Context, args: &Reset) -> Result<()> {
    let repo = context.repo()?;
    let to = match args.rev.as_deref() {
        None => None,
        Some(rev) => {
            let id = mdl_repo::resolve(&repo, rev)?;
            let branch = super::shared::branch_tip(&repo, rev)?.map(|_| Head::Branch(rev.to_owned()));
            Some((branch.unwrap_or(Head::Detached(id)), id))
        }
    };
    let back = mdl_repo::bisect_reset(&repo, to, &context.bars).map_err(crate::errors::unforced)?;
    trial::sweep(&repo);
    let commit = repo.refs().head_commit()?;
    let document = json!({
        "branch": repo.refs().head()?.branch(),
        "commit": commit.map(|id| id.to_hex()),
        "moved": back.is_some(),
    });
    let place = match repo.refs().head()? {
        Head::Branch(name) => format!("on branch {name}"),
        Head::Detached(id) => format!("at {}", id.short()),
    };
    context.confirm(&document, format!("The bisection has ended; HEAD is {place}"))
}
