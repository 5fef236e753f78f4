//! `mdl switch`: goes to a branch, or makes one and goes there.

use super::{
    changes::left_behind,
    checkout::{tell_files, tell_head},
    prelude::*,
    shared::{Moved, branch_tip, fidelity, move_head, note_approximate},
};

/// Go to a branch: the work tree becomes its version
///
/// Refuses to overwrite changes that are in no version, unless forced. A new branch (-c) at the present commit takes
/// uncommitted changes along.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl switch main\n  mdl switch -c ablation\n  mdl switch -c retry main@step=4000")]
pub struct Args {
    /// The branch.
    branch: String,
    /// Make the branch first.
    #[arg(short, long)]
    create: bool,
    /// Where a new branch starts.
    #[arg(requires = "create", value_name = "START", value_parser = crate::args::revision)]
    start: Option<String>,
    /// Overwrite files whose changes are in no version.
    #[arg(short, long)]
    force: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let name = &args.branch;
    let before = repo.refs().head()?;
    // Before a branch is made that nothing gets onto.
    mdl_repo::refuse_in_progress(&repo)?;
    let moved = if args.create { create(context, &repo, args)? } else { go(context, &repo, args)? };
    if let Some(text) = left_behind(&repo, &before)? {
        context.note(&text);
    }
    if let Some(tip) = repo.refs().head_commit()? {
        note_approximate(context, &repo, &tip)?;
    }
    let done = &moved.files;
    let document = || {
        Ok(json!({
            "branch": name,
            "commit": repo.refs().head_commit()?.map(|id| id.to_hex()),
            "fidelity": repo.refs().head_commit()?.map(|id| fidelity(&repo, &id)).transpose()?,
            "created": args.create,
            "written": done.written,
            "kept": done.kept,
            "removed": done.removed,
            "bytes": done.bytes,
        }))
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    if args.create {
        writeln!(context.out, "Switched to a new branch {name}")?;
    } else {
        tell_head(context, &repo, &before, name)?;
    }
    tell_files(context, &moved, "")
}

fn go(context: &Context, repo: &Repo, args: &Args) -> Result<Moved> {
    let name = &args.branch;
    match branch_tip(repo, name)? {
        Some(tip) => move_head(repo, &tip, &Head::Branch(name.clone()), args.force, &context.bars),
        // The branch of a repository without commits.
        None if repo.refs().head()? == Head::Branch(name.clone()) => Ok(Moved::default()),
        None if mdl_repo::resolve(repo, name).is_ok() => {
            let hint =
                format!("`mdl checkout {name}` goes there without a branch, `mdl switch -c NAME {name}` makes one");
            Err(refused(format!("{name} is a revision but not a branch"), hint))
        }
        None => Err(not_found(Missing::Branch, name)),
    }
}

fn create(context: &Context, repo: &Repo, args: &Args) -> Result<Moved> {
    let head = Head::Branch(args.branch.clone());
    mdl_repo::check_ref_name(&args.branch)?;
    let present = repo.refs().head_commit()?;
    let asked = args.start.as_ref().map(|rev| mdl_repo::resolve(repo, rev)).transpose()?;
    let Some(start) = asked.or(present) else {
        // Without commits there is nothing to branch from: the first commit will make the branch.
        mdl_repo::attach(repo, &head, None, &context.bars)?;
        return Ok(Moved::default());
    };
    if branch_tip(repo, &args.branch)?.is_some() {
        let hint = format!("`mdl switch {}` goes there; choose another name for a new one", args.branch);
        return Err(refused(format!("branch {} exists", args.branch), hint));
    }
    mdl_repo::create_branch(repo, &args.branch, &start, false)?;
    if Some(start) == present {
        mdl_repo::attach(repo, &head, present, &context.bars)?;
        return Ok(Moved::default());
    }
    move_head(repo, &start, &head, args.force, &context.bars).inspect_err(|_| {
        // A refusal leaves nothing behind; the error that matters is the one that was met.
        let _ = mdl_repo::delete_branch(repo, &args.branch, true, &context.bars);
    })
}
