//! `mdl status`: what differs between the work tree and HEAD.

use super::{
    prelude::*,
    replay::{conflict_json, tell_conflicts},
};
use mdl_repo::{Change, InProgress, Silent, Survey};
use std::{collections::HashSet, os::unix::fs::PermissionsExt};

/// Show which files differ from the present commit
///
/// Files that .mdlignore names are left out. Unchanged files are recognised by size and times, so that a second look
/// reads nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl status\n  mdl status --short      M model.safetensors")]
pub struct Args {
    /// One line a file: A added, M modified, D deleted.
    #[arg(short, long)]
    short: bool,
    /// Compare what symbolic links point at instead of listing them as problems.
    #[arg(long)]
    follow_symlinks: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let Survey { changes, problems } = mdl_repo::survey(&repo, args.follow_symlinks, &context.bars)?;
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let modes = modes_only(&repo, &changes)?;
    let (head, commit) = (repo.refs().head()?, repo.refs().head_commit()?);
    if context.global.json {
        let files = changes
            .iter()
            .map(|(path, c)| json!({"path": path, "change": c.name(), "mode_only": modes.contains(path)}));
        return context.json(&json!({
            "branch": head.branch(),
            "commit": commit.map(|id| id.to_hex()),
            "files_of": mdl_repo::work_tree_base(&repo)?.map(|id| id.to_hex()),
            "clean": changes.is_empty(),
            "in_progress": mdl_repo::in_progress(&repo)?.map(|record| in_progress_json(&record)),
            "files": files.collect::<Vec<_>>(),
            "problems": problems,
            "bisect": bisecting(&repo)?.map(|b| b.marks.len()),
        }));
    }
    if !args.short
        && let Some(bisection) = bisecting(&repo)?
    {
        let said = count(bisection.marks.len() as u64, "verdict");
        let line = format!("Bisecting ({said}); `mdl bisect` says what is next, `mdl bisect reset` ends it");
        writeln!(context.out, "{}", context.paint.yellow(&line))?;
    }
    if args.short {
        for (path, change) in &changes {
            writeln!(context.out, "{} {path}", letter(*change))?;
        }
        for problem in &problems {
            writeln!(context.out, "! {}", visible(problem))?;
        }
        return Ok(());
    }
    show(context, &repo, &head, commit.is_none(), &changes, &modes)?;
    if !problems.is_empty() {
        writeln!(context.out, "\nCannot be committed (name it in .mdlignore, or see `mdl commit --help`):")?;
    }
    for problem in &problems {
        writeln!(context.out, "  {}", context.paint.red(&visible(problem)))?;
    }
    Ok(())
}

/// The bisection under way. One whose state is damaged must not hide the files: the next `mdl bisect` says so.
fn bisecting(repo: &Repo) -> Result<Option<mdl_repo::Bisection>> {
    match mdl_repo::bisection(repo) {
        Err(RepoError::Corrupt { .. }) => Ok(None),
        found => Ok(found?),
    }
}

/// Changed files whose bytes are those of the version: only the executable bit differs.
fn modes_only(repo: &Repo, changes: &[(String, Change)]) -> Result<HashSet<String>> {
    let mut found = HashSet::new();
    let (Some(id), Some(work)) = (mdl_repo::work_tree_base(repo)?, repo.work()) else {
        return Ok(found);
    };
    let files = mdl_repo::files(repo, &id)?;
    for (path, _) in changes.iter().filter(|c| c.1 == Change::Modified) {
        let file = work.join(path);
        let is_executable = std::fs::metadata(&file).is_ok_and(|m| m.permissions().mode() & 0o100 != 0);
        let entry = files.get(path).filter(|e| e.executable != is_executable);
        if let Some(entry) = entry
            && mdl_repo::file_equals(repo, &file, entry, &Silent)?
        {
            found.insert(path.clone());
        }
    }
    Ok(found)
}

fn letter(change: Change) -> char {
    match change {
        Change::Added => 'A',
        Change::Modified => 'M',
        Change::Deleted => 'D',
    }
}

fn show(
    context: &mut Context,
    repo: &Repo,
    head: &Head,
    unborn: bool,
    changes: &[(String, Change)],
    modes: &HashSet<String>,
) -> Result<()> {
    let paint = context.paint;
    match head {
        Head::Branch(name) => writeln!(context.out, "On branch {}", paint.bold(name))?,
        Head::Detached(id) => writeln!(context.out, "{} at {}", paint.red("HEAD detached"), id.short())?,
    }
    if unborn {
        writeln!(context.out, "No commits yet")?;
    }
    match mdl_repo::in_progress(repo) {
        Ok(None) => tell_moved(context, repo)?,
        Ok(Some(record)) => tell_in_progress(context, repo, &record)?,
        Err(e) => {
            writeln!(context.out, "{}:", context.paint.red(&e.to_string()))?;
            writeln!(context.out, "  {}", mdl_server::problem::hint(&e).unwrap_or_default())?;
        }
    }
    if changes.is_empty() {
        let what = if unborn { "No files to commit" } else { "Nothing to commit, the work tree is clean" };
        return Ok(writeln!(context.out, "{what}")?);
    }
    let stores = if mdl_repo::in_progress(repo).is_ok_and(|r| r.is_none()) {
        ", which the next `mdl commit` stores"
    } else {
        ""
    };
    writeln!(context.out, "\nChanges{stores}:")?;
    for (path, change) in changes {
        let size = repo.work().and_then(|w| std::fs::metadata(w.join(path)).ok());
        let size = size.map_or_else(String::new, |m| format!("  ({})", crate::render::size(m.len())));
        let line = format!("{:<10}{path}", format!("{}:", change.name()));
        let mode = if modes.contains(path) { "  (only the executable bit)" } else { "" };
        writeln!(context.out, "  {}{}{}", paint.change(*change, &line), paint.dim(&size), paint.dim(mode))?;
    }
    Ok(())
}

/// Says where another user has moved the branch.
fn tell_moved(context: &mut Context, repo: &Repo) -> Result<()> {
    if let Err(moved @ RepoError::FilesOfAnother { .. }) = mdl_repo::refuse_moved(repo) {
        writeln!(context.out, "{}", context.paint.yellow(&format!("{moved}:")))?;
        writeln!(context.out, "  {}", mdl_server::problem::hint(&moved).unwrap_or_default())?;
    }
    Ok(())
}

/// Says what is going on, what it waits for, and how to go on or back.
fn tell_in_progress(context: &mut Context, repo: &Repo, record: &InProgress) -> Result<()> {
    let (name, paint) = (record.operation.name(), context.paint);
    let done = record.done.len() as u64;
    let left = record.todo.len() as u64 + u64::from(record.stopped.is_some());
    let onto = record.onto.map_or_else(String::new, |id| format!(" onto {}", id.short()));
    let line = format!("A {name}{onto} is in progress ({} done, {left} left):", count(done, "version"));
    writeln!(context.out, "{}", paint.yellow(&line))?;
    if let Some(stopped) = &record.stopped {
        let message = repo.odb().commit(&stopped.version)?.message;
        let (version, title) = (stopped.version.short(), subject(&message));
        writeln!(context.out, "  {version} {title} waits for these files:")?;
        tell_conflicts(context, &stopped.conflicts)?;
    }
    Ok(writeln!(context.out, "  `mdl {name} --continue` goes on, `mdl {name} --abort` takes it back")?)
}

fn in_progress_json(record: &InProgress) -> Value {
    let stopped = record.stopped.as_ref();
    json!({
        "operation": record.operation.name(),
        "original": record.original.to_hex(),
        "onto": record.onto.map(|id| id.to_hex()),
        "done": record.done.len(),
        "left": record.todo.len() + usize::from(stopped.is_some()),
        "version": stopped.map(|s| s.version.to_hex()),
        "conflicts": stopped.map(|s| s.conflicts.iter().map(conflict_json).collect::<Vec<_>>()).unwrap_or_default(),
    })
}
