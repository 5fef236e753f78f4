//! `mdl log`: history, newest first.

use super::{
    log_filter::FilterArgs,
    shared::{Notes, every_ref},
    signing_options::{SignersOptions, verdict_json},
};
use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{
        Paint, count,
        entry::{self, Entry},
        graph::Graph,
        visible,
    },
};
use mdl_objects::Id;
use mdl_repo::{Filtering, History, Repo, Signers, Step};
use std::{
    collections::{BinaryHeap, HashMap},
    io::Write,
};

/// Show the versions that lead to a revision, newest first
///
/// Sizes are the files' bytes -> the bytes this version added to the repository, and how many times smaller that is.
/// Of a version that is marked as `pruned` a coming `mdl gc` takes the contents, and `mdl prune --undo` keeps them; of
/// one that is `gone` a gc has taken them. Of versions under a lossy policy
/// `exact` or `approximate` says what they hold today: once they are no longer new, a coming `mdl gc` takes the exact
/// contents, and the approximation that was judged when they were committed stands for them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl log -n 5
  mdl log --oneline --graph --all
  mdl log --since 7d --metric 'loss<2 and acc>=0.9'
  mdl log main -- 'model.safetensors:*embed*'
  mdl log --json main | jq -r '.[] | [.step, .metrics.loss] | @tsv'")]
pub struct Args {
    /// Revision to start from.
    #[arg(default_value = "HEAD", conflicts_with = "all", value_parser = crate::args::revision)]
    rev: String,
    /// Draw how branches part and join.
    #[arg(long)]
    graph: bool,
    /// One line a version.
    #[arg(long)]
    oneline: bool,
    /// Show at most N versions.
    #[arg(short = 'n', long = "max-count", value_name = "N")]
    limit: Option<usize>,
    /// Start from every branch and tag.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// With each version what its signature is worth.
    #[arg(long)]
    show_signature: bool,
    #[command(flatten)]
    signers: SignersOptions,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let starts = if args.all { every_ref(&repo)? } else { vec![mdl_repo::resolve(&repo, &args.rev)?] };
    let notes = Notes::read(&repo)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let filter = args.filter.read()?;
    if args.graph && !filter.is_empty() {
        return Err(CliError::usage("--graph shows all versions", "leave out --graph, or what filters"));
    }
    let mut filtering = filter.begin(&repo)?;
    let mut steps = mdl_repo::history(&repo, &starts)?;
    let signers = args.show_signature.then(|| args.signers.signers(&repo)).transpose()?;
    if context.global.json {
        let mut list = Vec::new();
        while list.len() < limit
            && let Some(step) = next(&mut steps, &mut filtering, &notes)?
        {
            let mut document = entry::json(repo.odb(), &notes, &step.id, &step.commit)?;
            if let Some(signers) = &signers {
                document["signature"] = verdict_json(&mdl_repo::verify_commit(&repo, &step.id, signers)?.1);
            }
            list.push(document);
        }
        return context.json(&list);
    }
    let listing =
        Listing { repo: &repo, notes: &notes, paint: context.paint, oneline: args.oneline, signers: signers.as_ref() };
    if args.graph {
        return graph(context, &ordered(&repo, &starts)?, limit, &listing);
    }
    let mut n = 0;
    while n < limit
        && let Some(step) = next(&mut steps, &mut filtering, &notes)?
    {
        let lines = listing.lines(&step)?;
        if n > 0 && !args.oneline {
            writeln!(context.out)?;
        }
        context.print(&lines)?;
        n += 1;
    }
    tell_untold(context, &filtering);
    Ok(())
}

/// The next version that passes.
fn next(steps: &mut History<'_>, filtering: &mut Filtering<'_>, notes: &Notes) -> Result<Option<Step>> {
    for step in steps {
        let Step { id, commit } = step?;
        let step = Step { commit: notes.noted.annotated(&id, commit), id };
        if filtering.passes(&step)? {
            return Ok(Some(step));
        }
    }
    Ok(None)
}

fn tell_untold(context: &Context, filtering: &Filtering<'_>) {
    if filtering.untold() > 0 {
        let n = count(filtering.untold() as u64, "version");
        context.note(&format!("note: of {n} it cannot be told what they touched: contents are gone"));
    }
}

/// How versions are listed.
struct Listing<'a> {
    repo: &'a Repo,
    notes: &'a Notes,
    paint: Paint,
    oneline: bool,
    /// Whose signatures count, where they are shown.
    signers: Option<&'a Signers>,
}

impl Listing<'_> {
    fn lines(&self, step: &Step) -> Result<Vec<String>> {
        let entry = Entry::new(self.repo.odb(), self.notes, &step.id, &step.commit)?;
        let mut lines = if self.oneline { vec![entry.short(self.paint)] } else { entry.full(self.paint) };
        if let Some(signers) = self.signers {
            let (_, verdict) = mdl_repo::verify_commit(self.repo, &step.id, signers)?;
            let text = visible(&verdict.text());
            let text = if verdict.is_good() { self.paint.green(&text) } else { self.paint.red(&text) };
            lines.insert(1, format!("{:<9}{text}", if self.oneline { "" } else { "Signed:" }));
        }
        Ok(lines)
    }
}

/// All commits, newest first, but none before all its children, whatever the clocks said: lanes need that.
fn ordered(repo: &Repo, starts: &[Id]) -> Result<Vec<Step>> {
    let steps = mdl_repo::history(repo, starts)?.collect::<mdl_repo::Result<Vec<Step>>>()?;
    let place: HashMap<Id, usize> = steps.iter().enumerate().map(|(i, s)| (s.id, i)).collect();
    let parents = |s: &Step| s.commit.parents.iter().filter_map(|p| place.get(p).copied()).collect::<Vec<_>>();
    let mut children = vec![0usize; steps.len()];
    for p in steps.iter().flat_map(parents) {
        if let Some(n) = children.get_mut(p) {
            *n += 1;
        }
    }
    let key = |i: usize| steps.get(i).map(|s| (s.commit.author.time_ms, std::cmp::Reverse(i)));
    let mut ready: BinaryHeap<_> = (0..steps.len()).filter(|&i| children.get(i) == Some(&0)).filter_map(key).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some((_, std::cmp::Reverse(i))) = ready.pop() {
        order.push(i);
        for p in steps.get(i).map(parents).unwrap_or_default() {
            if let Some(n) = children.get_mut(p) {
                *n -= 1;
                ready.extend(key(p).filter(|_| *n == 0));
            }
        }
    }
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| steps.get_mut(i)?.take()).collect())
}

fn graph(context: &mut Context, steps: &[Step], limit: usize, listing: &Listing<'_>) -> Result<()> {
    let mut graph = Graph::new();
    for (n, step) in steps.iter().take(limit).enumerate() {
        let rows = graph.commit(&step.id, &step.commit.parents);
        let mut text = listing.lines(step)?;
        let last = n + 1 == steps.len().min(limit);
        if !listing.oneline && !last {
            text.push(String::new());
        }
        let width = rows.first().map_or(0, String::len);
        let rest = format!("{:width$}", graph.rest());
        for i in 0..rows.len().max(text.len()) {
            let row = rows.get(i).unwrap_or(&rest);
            let line = format!("{row} {}", text.get(i).map_or("", String::as_str));
            writeln!(context.out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}
