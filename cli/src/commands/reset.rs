//! `mdl reset`: moves the present branch to another commit.

use super::{
    prelude::*,
    shared::{fidelity, note_approximate},
};

/// Move the present branch to a revision
///
/// The work tree is left alone unless --hard is given. The reflog remembers where the branch was: `mdl reset
/// 'main@{1}'` takes a reset back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl reset HEAD~1\n  mdl reset --hard 'main@best(loss)'\n  mdl reset 'main@{1}'")]
pub struct Args {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = crate::args::revision)]
    rev: String,
    /// Make the work tree that version too; uncommitted changes are lost.
    #[arg(long)]
    hard: bool,
    /// Leave the work tree alone (the default).
    #[arg(long, conflicts_with = "hard")]
    soft: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let commit = mdl_repo::resolve(&repo, &args.rev)?;
    let done = mdl_repo::reset(&repo, &commit, args.hard, &context.bars)?;
    note_approximate(context, &repo, &commit)?;
    let document = || {
        Ok(json!({
            "commit": commit.to_hex(),
            "fidelity": fidelity(&repo, &commit)?,
            "branch": present_branch(&repo)?,
            "hard": args.hard,
            "written": done.written,
            "kept": done.kept,
            "removed": done.removed,
        }))
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    let message = repo.odb().commit(&commit)?.message;
    Ok(writeln!(context.out, "HEAD is now at {} {}", commit.short(), subject(&message))?)
}
