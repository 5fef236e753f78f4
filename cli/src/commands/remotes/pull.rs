//! `mdl pull`: fetches, then moves the present branch forward, or brings two sides that have parted together.

use super::{Fetched, elsewhere, fetch_from, named, pull_merge};
use crate::{
    commands::{changes::tell_merged, prelude::*, replay},
    errors::unforced,
};
use mdl_remote::tracking::Choice;
use mdl_repo::{Merged, Operation, TensorRule};

/// Fetch from another place and bring the present branch together with what came
///
/// Where only the other side has new versions, the branch moves forward. Where both have, say how: --rebase puts this
/// side's versions on top of the others (as `mdl rebase` does), --merge makes one version of both (as `mdl merge`
/// does). Without either the branch stays, since weights have no merge that is right without being asked for. With
/// `mdl config pull.rebase true` a rebase needs no asking.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl pull
  mdl pull --rebase
  mdl pull --merge average
  mdl pull origin main --rebase --theirs config.json")]
pub struct Args {
    /// Remote. Default: origin, or the only one there is.
    remote: Option<String>,
    /// Branch there. Default: that of the same name as the present one.
    branch: Option<String>,
    /// Where both sides have new versions, put this side's on top.
    #[arg(short, long)]
    rebase: bool,
    /// Where both sides have new versions, make one of both: average, weighted, slerp, task-arithmetic, ties, dare,
    /// ours, theirs (see `mdl merge`).
    #[arg(long, value_name = "STRATEGY", conflicts_with = "rebase", value_parser = pull_merge::strategy)]
    merge: Option<mdl_repo::Rule>,
    /// Do not rebase, whatever `pull.rebase` says.
    #[arg(long, conflicts_with = "rebase")]
    no_rebase: bool,
    /// With --rebase: change weights by as much as they changed in each version, instead of keeping its snapshot.
    #[arg(long, conflicts_with = "merge")]
    update: bool,
    #[command(flatten)]
    sides: replay::Sides,
}

impl Args {
    fn rebases(&self, repo: &Repo) -> bool {
        self.rebase || !self.no_rebase && repo.config().pull_rebase()
    }
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    mdl_repo::refuse_in_progress(&repo)?;
    let (name, remote) = named(&repo, args.remote.as_deref())?;
    let detached = || RepoError::user("HEAD is detached: it is not clear what to pull", "name a branch");
    let branch = args.branch.clone().map_or_else(|| present_branch(&repo), |b| Ok(Some(b)))?.ok_or_else(detached)?;
    let choice = Choice { branches: vec![branch.clone()], tags: true, prune: false };
    let done = fetch_from(context, &repo, &name, &remote, choice)?;
    let noted = RefName::remote(&name, &branch)?;
    let gone = || elsewhere(&name)(RepoError::not_found(Missing::Branch, format!("{branch} at {name}")));
    let tip = repo.refs().get(&noted)?.ok_or_else(gone)?;
    let label = format!("{name}/{branch}");
    let parted = mdl_repo::parted(&repo, &tip, &context.bars)?;
    if let (Some(_), Some(rule)) = (parted, &args.merge) {
        return pull_merge::merge(context, &repo, (&name, &remote, &done), (&tip, &label), (rule, &args.sides));
    }
    match parted {
        None => forward(context, &repo, (&name, &remote), &done, (&tip, &label)),
        Some(_) if args.rebases(&repo) => rebase(context, &repo, (&name, &remote), &done, &tip, args),
        Some((here, there)) => {
            if !done.moves.is_empty() && !context.global.json && context.chatty() {
                done.tell(context, &remote)?;
            }
            Err(RepoError::Parted { label, here, there }.into())
        }
    }
}

fn forward(
    context: &mut Context,
    repo: &Repo,
    (name, remote): (&str, &mdl_repo::Remote),
    done: &Fetched,
    (tip, label): (&Id, &str),
) -> Result<()> {
    let merged = mdl_repo::merge(repo, tip, label, &context.bars).map_err(unforced)?;
    let (result, from) = match merged {
        Merged::UpToDate => ("up_to_date", None),
        Merged::FastForward { from, .. } => ("fast_forward", from),
    };
    let document = || {
        let mut document = done.json(name);
        document["result"] = result.into();
        document["from"] = from.map(|id| id.to_hex()).into();
        document["commit"] = repo.refs().head_commit()?.map(|id| id.to_hex()).into();
        Ok(document)
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    if !done.moves.is_empty() {
        done.tell(context, remote)?;
    }
    tell_merged(context, &merged)
}

fn rebase(
    context: &mut Context,
    repo: &Repo,
    (name, remote): (&str, &mdl_repo::Remote),
    done: &Fetched,
    tip: &Id,
    args: &Args,
) -> Result<()> {
    if !done.moves.is_empty() && !context.global.json && context.chatty() {
        done.tell(context, remote)?;
    }
    let rule = if args.update { TensorRule::Update } else { TensorRule::Snapshot };
    let options = args.sides.options(rule);
    let outcome = mdl_repo::rebase(repo, tip, None, &options, &context.bars).map_err(unforced)?;
    if !context.global.json {
        return replay::tell(context, repo, &outcome, Operation::Rebase);
    }
    let mut document = done.json(name);
    let more = replay::document(repo, &outcome, Operation::Rebase)?;
    for (key, value) in more.as_object().into_iter().flatten() {
        document[key] = value.clone();
    }
    context.json(&document)?;
    replay::stopped(&outcome)
}
