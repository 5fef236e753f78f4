//! `mdl branch`: lists, makes, renames and deletes branches.

use super::{
    changes::delete_each,
    prelude::*,
    shared::{Notes, is_chosen, note_approximate},
};
use mdl_repo::REMOTES;

/// List, make, rename or delete branches
///
/// A deleted branch's commits stay in the repository until `mdl gc` finds that nothing (reflogs included) reaches them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl branch -v
  mdl branch -a 'origin/*'
  mdl branch ablation main~2
  mdl branch -m old-name new-name
  mdl branch -d ablation")]
pub struct Args {
    /// NAME, and START (default HEAD), to make a branch; OLD (default the present one) and NEW with -m; names with -d.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Delete branches whose commits another branch, tag or HEAD reaches.
    #[arg(short, long, requires = "names")]
    delete: bool,
    /// Delete branches even if nothing else reaches their commits.
    #[arg(short = 'D', long, requires = "names", conflicts_with = "delete")]
    delete_force: bool,
    /// Rename a branch (the present one if only NEW is given).
    #[arg(short = 'm', long = "move", requires = "names", conflicts_with_all = ["delete", "delete_force"])]
    rename: bool,
    /// List branches; NAME may be a glob such as 'exp/*'.
    #[arg(short, long, conflicts_with_all = ["delete", "delete_force", "rename"])]
    list: bool,
    /// List the branches of other places, REMOTE/NAME, as they were last seen.
    #[arg(short, long, conflicts_with_all = ["delete", "delete_force", "rename"])]
    remotes: bool,
    /// List these and your own.
    #[arg(short, long, conflicts_with_all = ["delete", "delete_force", "rename"])]
    all: bool,
    /// With every branch its commit, step, metrics and message.
    #[arg(short, long)]
    verbose: bool,
    /// Move a branch that exists.
    #[arg(short, long)]
    force: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    if args.delete || args.delete_force {
        let force = args.delete_force || args.force;
        return delete_each(context, "branch", &names, |name, bars| {
            Ok(mdl_repo::delete_branch(&repo, name, force, bars)?)
        });
    }
    match (args.rename, args.list || args.remotes || args.all, names.as_slice()) {
        (true, _, [new]) => {
            let none = || CliError::usage("HEAD is on no branch", "say which: mdl branch -m OLD NEW");
            rename(context, &repo, &present_branch(&repo)?.ok_or_else(none)?, new)
        }
        (true, _, [old, new]) => rename(context, &repo, old, new),
        (_, true, patterns) | (_, _, patterns @ []) => list(context, &repo, patterns, args),
        (_, _, [name]) => create(context, &repo, name, "HEAD", args.force),
        (_, _, [name, start]) => create(context, &repo, name, start, args.force),
        _ => Err(CliError::usage("too many names", "write `mdl branch NAME START` or `mdl branch -m OLD NEW`")),
    }
}

fn create(context: &mut Context, repo: &Repo, name: &str, start: &str, force: bool) -> Result<()> {
    mdl_repo::check_ref_name(name)?;
    let id = mdl_repo::resolve(repo, start)?;
    mdl_repo::create_branch(repo, name, &id, force)?;
    note_approximate(context, repo, &id)?;
    let line = format!("Branch {name} at {}", id.short());
    context.confirm(&json!({"branch": name, "commit": id.to_hex()}), line)
}

fn rename(context: &mut Context, repo: &Repo, old: &str, new: &str) -> Result<()> {
    mdl_repo::rename_branch(repo, old, new, &context.bars)?;
    context.confirm(&json!({"branch": new, "was": old}), format!("Branch {old} is now {new}"))
}

/// A branch: local, or remote-tracking.
struct Row {
    name: String,
    id: Id,
    remote: Option<String>,
}

fn rows(repo: &Repo, patterns: &[&str], args: &Args) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (prefix, wanted) in [(HEADS, args.all || !args.remotes), (REMOTES, args.all || args.remotes)] {
        let listed = if wanted { repo.refs().list(prefix)? } else { Vec::new() };
        rows.extend(listed.into_iter().map(|(name, id)| {
            let remote = name.split('/').next().filter(|_| prefix == REMOTES).map(str::to_owned);
            Row { name, id, remote }
        }));
    }
    rows.retain(|r| is_chosen(patterns, &r.name));
    Ok(rows)
}

fn list(context: &mut Context, repo: &Repo, patterns: &[&str], args: &Args) -> Result<()> {
    let head = repo.refs().head()?;
    let branches = rows(repo, patterns, args)?;
    let is_current = |r: &Row| r.remote.is_none() && head == Head::Branch(r.name.clone());
    if context.global.json {
        let (mut rows, notes) = (Vec::new(), Notes::read(repo)?);
        for r in &branches {
            let c = repo.odb().commit(&r.id)?;
            let commit = entry::json(repo.odb(), &notes, &r.id, &c)?;
            rows.push(json!({"name": r.name, "remote": r.remote, "current": is_current(r), "head": commit}));
        }
        return context.json(&json!({"branches": rows}));
    }
    let paint = context.paint;
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    if let (Head::Detached(id), true) = (&head, patterns.is_empty() && (args.all || !args.remotes)) {
        table.row([format!("* {}", paint.red(&format!("(HEAD detached at {})", id.short())))]);
    }
    for r in &branches {
        let mut row = vec![match &r.remote {
            Some(_) => format!("  {}", paint.red(&r.name)),
            None if is_current(r) => format!("* {}", paint.green(&r.name)),
            None => format!("  {}", r.name),
        }];
        if args.verbose {
            let c = repo.odb().commit(&r.id)?;
            let step = c.step.map_or_else(String::new, |s| format!("[step {s}] "));
            row.push(r.id.short());
            row.push(format!("{step}{} {}", subject(&c.message), paint.bold(&entry::metrics(&c))));
        }
        table.row(row);
    }
    context.print(&table.lines(0))
}
