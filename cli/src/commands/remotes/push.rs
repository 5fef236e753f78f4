//! `mdl push`: sends versions to a remote and moves its branches.

use super::{
    elsewhere, is_url, moves_json, named_or_url, peer,
    refspecs::{self, RefUpdate},
    tell_moves,
};
use crate::commands::prelude::*;
use mdl_remote::{
    fetch::note_refs,
    push::{Outcome, Push, Pushed, push},
    sync::RefMove,
};

/// Send versions to another place and move its branches there
///
/// Only what the other side lacks is sent, as it is stored here. Its branches move last, by compare-and-swap: of
/// several that push at once one wins. A branch moves only forward; --force-with-lease lets it leave commits behind if
/// it still stands where it was last seen. A push that was cut off goes on where it was when the command is run again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl push
  mdl push origin main --tags
  mdl push origin HEAD:refs/heads/release
  mdl push origin --delete old-run")]
pub struct Args {
    /// Remote, or a URL. Default: origin, or the only remote there is.
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,
    /// Branches or tags; `REV:NAME` to call it something else there. Default: the present branch.
    refs: Vec<String>,
    /// All branches.
    #[arg(long, conflicts_with_all = ["refs", "delete"])]
    all: bool,
    /// All tags too.
    #[arg(long, conflicts_with = "delete")]
    tags: bool,
    /// Delete these branches or tags there.
    #[arg(short, long, requires = "refs")]
    delete: bool,
    /// Let branches leave commits behind if they stand where they were last seen.
    #[arg(long, conflicts_with = "force")]
    force_with_lease: bool,
    /// Let branches leave commits behind and tags move, wherever they stand.
    #[arg(short, long)]
    force: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let (name, remote) = named_or_url(&repo, args.remote.as_deref())?;
    let shown = name.as_deref().unwrap_or(&remote.url);
    let head = present_branch(&repo)?;
    let create = head.as_deref().unwrap_or("main");
    let (peer, updates) = match args.delete {
        true => {
            let peer = peer(context, &repo, &remote, None)?;
            let there = peer.refs().map_err(elsewhere(shown))?;
            (peer, refspecs::deleted(&there, &args.refs, shown)?)
        }
        false => {
            // Checked first: a refspec that makes no sense must not create anything on the remote.
            let updates = refspecs::moved(&repo, &args.refs, args.all, args.tags)?;
            (peer(context, &repo, &remote, Some(create))?, updates)
        }
    };
    let updates = leased(&repo, args, name.as_deref(), updates)?;
    let done = push(&repo, &*peer, &updates, "push", &context.bars).map_err(|e| refused(e, shown))?;
    let Pushed { sent, objects, refs } = done;
    if !args.delete
        && let Err(e) = mdl_remote::notes::push_notes(&repo, &*peer, &context.bars)
    {
        context.note(&format!("warning: the notes on versions were not sent to {shown}: {e}"));
    }
    let (moves, failed) = settle(context, &repo, (name.as_deref(), shown), refs)?;
    let document = json!({"url": remote.url, "sent_bytes": sent, "objects": objects, "refs": moves_json(&moves)});
    // If nothing moved, only the failures are printed.
    if (failed.is_empty() || !moves.is_empty()) && context.wants_text(|| Ok(document))? {
        match moves.is_empty() {
            true => writeln!(context.out, "Everything is there already")?,
            false => writeln!(context.out, "To {}: {} sent ({})", remote.url, count(objects, "object"), size(sent))?,
        }
        tell_moves(context, &moves)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(CliError::Some(failed)) }
}

/// With --force-with-lease: where each branch must stand there, which is where it was last seen.
fn leased(repo: &Repo, args: &Args, remote: Option<&str>, updates: Vec<RefUpdate>) -> Result<Vec<Push>> {
    if args.force_with_lease && remote.is_none() {
        let hint = "name a remote: `mdl remote add NAME URL`, then `mdl fetch NAME`";
        return Err(CliError::usage("--force-with-lease: nothing is noted of a URL", hint));
    }
    let mut out = Vec::new();
    for (full, new) in updates {
        let noted = full.strip_prefix(HEADS).zip(remote);
        let lease = match (args.force_with_lease, noted) {
            (true, Some((branch, remote))) => Some(repo.refs().get(&RefName::remote(remote, branch)?)?),
            _ => None,
        };
        out.push(Push { name: full, new, force: args.force, lease });
    }
    Ok(out)
}

/// A push that was refused: who moved a ref there is not known here before it is fetched.
fn refused(error: RepoError, remote: &str) -> CliError {
    match error {
        RepoError::Conflict { .. } => {
            let look = match is_url(remote) {
                true => format!("see where it stands (`mdl ls-remote {remote}`)"),
                false => format!("run `mdl fetch {remote}` and look at what came"),
            };
            CliError::hinted(error, format!("it was moved meanwhile: {look}, then push again"))
        }
        // What is damaged may be here.
        RepoError::Corrupt { .. } => error.into(),
        error => elsewhere(remote)(error),
    }
}

/// Notes where the branches stand now; splits what was moved from what was not.
fn settle(
    context: &Context,
    repo: &Repo,
    (remote, shown): (Option<&str>, &str),
    refs: Vec<Outcome>,
) -> Result<(Vec<RefMove>, Vec<CliError>)> {
    let (mut moved, mut failed, mut noted) = (Vec::new(), Vec::new(), Vec::new());
    for (m, outcome) in refs {
        match outcome {
            Err(e) => failed.push(refused(e, shown)),
            Ok(()) => {
                // A remote given by URL has no remote-tracking branches.
                if let Some((branch, remote)) = m.name.strip_prefix(HEADS).zip(remote) {
                    let name = RefName::remote(remote, branch)?;
                    let expected = repo.refs().get(&name)?;
                    noted.push(RefMove { expected, name: name.to_string(), new: m.new, force: true });
                }
                moved.push(m);
            }
        }
    }
    // What is there is there, whatever becomes of the note.
    if let Err(e) = note_refs(repo, noted, true, "push", &context.bars) {
        context.note(&format!("warning: cannot note where {shown} stands: {e}"));
    }
    Ok((moved, failed))
}
