//! `mdl checkout`: a version's files in the work tree or in another directory.

use super::{
    changes::left_behind,
    prelude::*,
    shared::{Moved, branch_tip, fidelity, move_head, note_approximate},
};
use mdl_repo::CheckoutOptions;

/// Bring back a version, bit for bit
///
/// Of a version that was committed under a lossy policy the exact files are there for as long as it is new
/// (docs/policies.md, `exact_latest`); after that its approximation, and a note says so.
///
/// Without --to the work tree becomes that version and HEAD moves there: on the branch if REV is one, else detached.
/// Files with changes that are in no version are never overwritten without --force; files that no version knows stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl checkout main
  mdl checkout 'main@best(loss)' --to /tmp/best
  mdl checkout v1.0 --to /scratch/v1 --link
  mdl checkout main~2 --only '*.safetensors' --to old
  mdl checkout HEAD --only config.json --force     drops the changes of one file")]
pub struct Args {
    /// Revision.
    #[arg(value_parser = crate::args::revision)]
    rev: String,
    /// Write the files into DIR (made if need be) and leave work tree and HEAD alone.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Files in DIR are read-only, and share their blocks with those of earlier checkouts with --link: by reflinks
    /// where the file system has them, else by hard links. Ten checkouts then take the room of one.
    #[arg(long, requires = "to")]
    link: bool,
    /// Only files whose path matches; may be repeated. `*` stops at '/', `**` does not. HEAD stays where it is.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Overwrite files whose changes are in no version.
    #[arg(short, long)]
    force: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let commit = mdl_repo::resolve(&repo, &args.rev)?;
    let options = CheckoutOptions { only: args.only.clone(), force: args.force, link: args.link };
    let before = repo.refs().head()?;
    let (moved, to) = if let Some(dir) = &args.to {
        (mdl_repo::checkout_to(&repo, &commit, dir, &options, &context.bars)?.into(), Some(dir.clone()))
    } else if args.only.is_empty() {
        let branch = branch_tip(&repo, &args.rev)?.map(|_| args.rev.clone());
        let head = branch.map_or(Head::Detached(commit), Head::Branch);
        (move_head(&repo, &commit, &head, args.force, &context.bars)?, None)
    } else {
        (mdl_repo::checkout(&repo, &commit, &before, &options, &context.bars)?.into(), None)
    };
    if let Some(text) = left_behind(&repo, &before)? {
        context.note(&text);
    }
    note_approximate(context, &repo, &commit)?;
    let head_moved = args.to.is_none() && args.only.is_empty();
    let document = || {
        let changed = moved.changed.iter().map(|(path, c)| json!({"path": path, "change": c.name()}));
        let mut document = json!({
            "commit": commit.to_hex(),
            "fidelity": fidelity(&repo, &commit)?,
            "to": to.as_ref().map(|d| d.display().to_string()),
            "written": moved.files.written,
            "kept": moved.files.kept,
            "removed": moved.files.removed,
            "bytes": moved.files.bytes,
            "shared": moved.files.shared,
            "changed": changed.collect::<Vec<_>>(),
        });
        // Where HEAD stays, its branch has nothing to do with what was written.
        if head_moved {
            document["branch"] = json!(present_branch(&repo)?);
        }
        Ok(document)
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    if head_moved {
        tell_head(context, &repo, &before, &args.rev)?;
    }
    let place = to.map_or_else(String::new, |d| format!(" in {}", d.display()));
    tell_files(context, &moved, &place)
}

/// What became of the files; changed ones that were kept are named.
pub fn tell_files(context: &mut Context, moved: &Moved, place: &str) -> Result<()> {
    for (path, change) in &moved.changed {
        writeln!(context.out, "{:<9} {path}", change.name())?;
    }
    let done = &moved.files;
    let mut parts = Vec::new();
    if done.written > 0 {
        parts.push(format!("{} written ({})", count(done.written, "file"), size(done.bytes)));
    }
    if done.shared > 0 {
        parts.push(format!("{} of them shared with earlier checkouts", done.shared));
    }
    if done.kept > 0 {
        parts.push(format!("{} unchanged", done.kept));
    }
    if done.removed > 0 {
        parts.push(format!("{} removed", done.removed));
    }
    if !parts.is_empty() {
        writeln!(context.out, "{}{place}", parts.join(", "))?;
    }
    Ok(())
}

/// Where HEAD is now, with a warning where commits would be on no branch.
pub fn tell_head(context: &mut Context, repo: &Repo, before: &Head, rev: &str) -> Result<()> {
    match repo.refs().head()? {
        Head::Branch(name) if *before == Head::Branch(name.clone()) => {
            writeln!(context.out, "Already on branch {name}")?;
        }
        Head::Branch(name) => writeln!(context.out, "Switched to branch {name}")?,
        Head::Detached(commit) => {
            let message = repo.odb().commit(&commit)?.message;
            if matches!(before, Head::Branch(_)) {
                context.note(&format!(
                    "note: {rev} is not a branch: HEAD is detached. Commits made here are on no branch until you \
                     run\n  mdl switch -c NAME"
                ));
            }
            writeln!(context.out, "HEAD is now at {} {}", commit.short(), subject(&message))?;
        }
    }
    Ok(())
}
