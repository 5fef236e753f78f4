//! `mdl worktree`: directories that share one store, each with files and a HEAD of its own.

use super::{prelude::*, shared::branch_tip};
use crate::args::revision;
use mdl_repo::{CheckoutOptions, WorkTree};

/// Work on several versions at once: more directories that share this store
///
/// Each has its own files, HEAD and uncommitted changes; versions, branches, tags and settings are common, and `mdl gc`
/// keeps what any of them is on. A branch is in one work tree only.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl worktree add ../ablation -b ablation main@step=4000
  mdl worktree add ../look v1.0
  mdl worktree list
  mdl worktree remove ../look")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a work tree in a new directory
    Add(Add),
    /// List the work trees of this store, the main one first
    List,
    /// Remove a work tree and its directory
    Remove(Remove),
    /// Forget work trees whose directories are gone
    Prune(Prune),
    /// Keep a work tree from being pruned or removed, such as one on a disk that is not always there
    Lock(Lock),
    /// Let a locked work tree be pruned and removed again
    Unlock(Unlock),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Directory to make.
    dir: PathBuf,
    /// Branch or other revision. Default: a new branch of the directory's name at HEAD, or the one that exists.
    #[arg(value_parser = revision)]
    rev: Option<String>,
    /// Make this branch first, at REV.
    #[arg(short = 'b', value_name = "NAME", conflicts_with = "detach")]
    branch: Option<String>,
    /// Be on no branch, even if REV is one.
    #[arg(long)]
    detach: bool,
    /// Only files whose path matches; may be repeated. The others are deleted as far as a commit there is concerned.
    #[arg(long, hide = true, value_name = "GLOB")]
    only: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Directory of the work tree.
    dir: PathBuf,
    /// Lose changes and files that are in no version.
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct Prune {
    /// Only tell what would be forgotten.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Lock {
    /// Directory of the work tree.
    dir: PathBuf,
    /// Why.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

#[derive(Debug, clap::Args)]
struct Unlock {
    /// Directory of the work tree.
    dir: PathBuf,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    match &args.what {
        What::Add(args) => add(context, &repo, args),
        What::List => list(context, &repo),
        What::Remove(args) => {
            let gone = mdl_repo::remove_work_tree(&repo, &args.dir, args.force, &context.bars)?;
            let line = format!("Removed the work tree {}", gone.path.display());
            context.confirm(&json!({"removed": tree_json(&repo, &gone)?}), line)
        }
        What::Prune(args) => prune(context, &repo, args.dry_run),
        What::Lock(args) => {
            let tree = mdl_repo::lock_linked_work_tree(&repo, &args.dir, Some(&args.reason))?;
            context.confirm(&tree_json(&repo, &tree)?, format!("Locked {}", tree.path.display()))
        }
        What::Unlock(args) => {
            let tree = mdl_repo::lock_linked_work_tree(&repo, &args.dir, None)?;
            context.confirm(&tree_json(&repo, &tree)?, format!("Unlocked {}", tree.path.display()))
        }
    }
}

fn add(context: &mut Context, repo: &Repo, args: &Add) -> Result<()> {
    let named = args.dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let new = match (&args.branch, &args.rev) {
        (Some(name), _) => Some(name.clone()),
        (None, None) if !args.detach && branch_tip(repo, &named)?.is_none() => Some(named.clone()),
        _ => None,
    };
    let rev = match (&args.rev, &new) {
        (Some(rev), _) => rev.clone(),
        (None, None) if !args.detach => named,
        _ => "HEAD".to_owned(),
    };
    let commit = mdl_repo::resolve(repo, &rev)?;
    let head = match (&new, args.detach) {
        (Some(name), _) => Head::Branch(name.clone()),
        (None, false) if branch_tip(repo, &rev)?.is_some() => Head::Branch(rev),
        _ => Head::Detached(commit),
    };
    if let Some(name) = &new {
        mdl_repo::create_branch(repo, name, &commit, false)?;
    }
    let options = CheckoutOptions { only: args.only.clone(), ..CheckoutOptions::default() };
    let made = mdl_repo::add_work_tree(repo, &args.dir, &commit, &head, &options, &context.bars);
    if let (Err(_), Some(name)) = (&made, &new) {
        // A refusal leaves nothing behind; the error that matters is the one that was met.
        let _ = mdl_repo::delete_branch(repo, name, true, &context.bars);
    }
    let (tree, done) = made?;
    let mut document = tree_json(repo, &tree)?;
    document["created"] = new.is_some().into();
    document["written"] = done.written.into();
    document["bytes"] = done.bytes.into();
    let on = head_text(repo, &tree)?;
    let line =
        format!("{} is at {on}: {} written ({})", tree.path.display(), count(done.written, "file"), size(done.bytes));
    context.confirm(&document, line)
}

fn tip(repo: &Repo, tree: &WorkTree) -> Result<Option<Id>> {
    Ok(tree.head.as_ref().map(|head| repo.refs().tip(head)).transpose()?.flatten())
}

fn tree_json(repo: &Repo, tree: &WorkTree) -> Result<Value> {
    Ok(json!({
        "path": tree.path.display().to_string(),
        "name": tree.name,
        "branch": tree.head.as_ref().and_then(Head::branch),
        "commit": tip(repo, tree)?.map(|id| id.to_hex()),
        "locked": tree.locked,
        "prunable": tree.prunable,
    }))
}

/// `main 1f2e...` or `1f2e... (detached HEAD)`
fn head_text(repo: &Repo, tree: &WorkTree) -> Result<String> {
    let commit = tip(repo, tree)?.map_or_else(|| "no commit".to_owned(), |id| id.short());
    Ok(match &tree.head {
        Some(Head::Branch(name)) => format!("{name} {commit}"),
        Some(Head::Detached(_)) => format!("{commit} (detached HEAD)"),
        None => "an unknown place: its HEAD cannot be read".to_owned(),
    })
}

fn list(context: &mut Context, repo: &Repo) -> Result<()> {
    let trees = mdl_repo::work_trees(repo)?;
    if context.global.json {
        let all = trees.iter().map(|tree| tree_json(repo, tree)).collect::<Result<Vec<_>>>()?;
        return context.json(&json!({"worktrees": all}));
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for tree in &trees {
        let locked = tree.locked.as_ref().map(|why| match why.as_str() {
            "" => "locked".to_owned(),
            why => format!("locked: {why}"),
        });
        let prunable = tree.prunable.as_ref().map(|why| format!("prunable: {why}"));
        let notes: Vec<String> = locked.into_iter().chain(prunable).collect();
        table.row([tree.path.display().to_string(), head_text(repo, tree)?, context.paint.dim(&notes.join("; "))]);
    }
    context.print(&table.lines(0))
}

fn prune(context: &mut Context, repo: &Repo, dry_run: bool) -> Result<()> {
    // Before it is forgotten: which version nothing may reach any more.
    let gone = mdl_repo::prune_work_trees(repo, true)?;
    let all = gone.iter().map(|tree| tree_json(repo, tree)).collect::<Result<Vec<_>>>()?;
    if !dry_run {
        mdl_repo::prune_work_trees(repo, false)?;
    }
    if !context.wants_text(|| Ok(json!({"dry_run": dry_run, "pruned": all})))? {
        return Ok(());
    }
    let done = if dry_run { "Would forget" } else { "Forgot" };
    for tree in &gone {
        let (why, at) = (tree.prunable.clone().unwrap_or_default(), head_text(repo, tree)?);
        writeln!(context.out, "{done} {}, which was at {at}: {why}", tree.path.display())?;
    }
    Ok(())
}
