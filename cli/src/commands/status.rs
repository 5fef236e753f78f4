//! `mdl status`: what differs between the work tree and HEAD. Neighbours: `Repo::status`. It must not change anything.

use crate::{context::Context, errors::Result};
use mdl_repo::{Change, Head, Repo};
use serde_json::{Value, json};
use std::io::Write;

/// Show which files differ from the present commit
///
/// Files that .mdlignore names are left out. Unchanged files are recognised by size and times, so that a second look reads
/// nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  mdl status\n  mdl status --short      M model.safetensors")]
pub struct Args {
    /// One line a file: A added, M modified, D deleted.
    #[arg(short, long)]
    short: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let changes = repo.status(&context.bars)?;
    let (head, commit) = (repo.refs().head()?, repo.refs().head_commit()?);
    if context.global.json {
        let branch = match &head {
            Head::Branch(name) => Value::from(name.clone()),
            Head::Detached(_) => Value::Null,
        };
        let files = changes
            .iter()
            .map(|(path, c)| json!({"path": path, "change": c.name()}));
        return context.json(&json!({
            "branch": branch,
            "commit": commit.map(|id| id.to_hex()),
            "clean": changes.is_empty(),
            "files": files.collect::<Vec<_>>(),
        }));
    }
    if args.short {
        for (path, change) in &changes {
            let text = format!("{} {path}", letter(*change));
            writeln!(context.out, "{text}")?;
        }
        return Ok(());
    }
    show(context, &repo, &head, commit.is_none(), &changes)
}

pub fn letter(change: Change) -> char {
    match change {
        Change::Added => 'A',
        Change::Modified => 'M',
        Change::Deleted => 'D',
    }
}

fn show(context: &mut Context, repo: &Repo, head: &Head, unborn: bool, changes: &[(String, Change)]) -> Result<()> {
    let paint = context.paint;
    match head {
        Head::Branch(name) => writeln!(context.out, "On branch {}", paint.bold(name))?,
        Head::Detached(id) => writeln!(context.out, "{} at {}", paint.red("HEAD detached"), id.short())?,
    }
    if unborn {
        writeln!(context.out, "No commits yet")?;
    }
    if changes.is_empty() {
        let what = if unborn {
            "No files to commit"
        } else {
            "Nothing to commit, the work tree is clean"
        };
        return Ok(writeln!(context.out, "{what}")?);
    }
    writeln!(context.out, "\nChanges, which the next `mdl commit` stores:")?;
    for (path, change) in changes {
        let size = repo.work().and_then(|w| std::fs::metadata(w.join(path)).ok());
        let size = size.map_or_else(String::new, |m| format!("  ({})", crate::render::size(m.len())));
        let line = format!("{:<10}{path}", format!("{}:", change.name()));
        let line = match change {
            Change::Added => paint.green(&line),
            Change::Modified => paint.yellow(&line),
            Change::Deleted => paint.red(&line),
        };
        writeln!(context.out, "  {line}{}", paint.dim(&size))?;
    }
    Ok(())
}
