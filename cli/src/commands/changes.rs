//! Reports changes, for several commands: changed files of a commit, deleted refs, commits no ref reaches any more,
//! fast-forwarded branches.

use super::prelude::*;
use crate::progress::Bars;
use mdl_objects::Commit;
use mdl_repo::{Files, Merged};
use mdl_server::api::diff;
use std::collections::{BTreeMap, HashSet};

/// How a file of a commit differs from the first parent's.
#[derive(Clone, Copy, Debug)]
pub struct FileChange {
    pub name: &'static str,
    /// Only the executable bit differs.
    pub mode_only: bool,
}

/// Returns the paths that differ from the first parent.
pub fn changed_files(repo: &Repo, id: &Id, commit: &Commit) -> Result<BTreeMap<String, FileChange>> {
    let (before, after) = match commit.parents.first() {
        Some(parent) => mdl_repo::files_beside(repo, parent, id)?,
        None => (Files::new(), mdl_repo::files(repo, id)?),
    };
    let changes = diff::changed_files(&before, &after).map(|(path, change, old, new)| {
        let mode_only = old.zip(new).is_some_and(|(old, new)| diff::same(old, new));
        (path.clone(), FileChange { name: change.name(), mode_only })
    });
    Ok(changes.collect())
}

pub fn tell_merged(context: &mut Context, merged: &Merged) -> Result<()> {
    match merged {
        Merged::UpToDate => writeln!(context.out, "Already up to date")?,
        Merged::FastForward { from, to } => {
            let from = from.map_or_else(|| "nothing".to_owned(), |id| id.short());
            writeln!(context.out, "Fast-forward {from} -> {}", to.short())?;
        }
    }
    Ok(())
}

/// Deletes several refs, each even if others fail; `what` is their field in JSON.
pub fn delete_each(
    context: &mut Context,
    what: &str,
    names: &[&str],
    delete: impl Fn(&str, &Bars) -> Result<Id>,
) -> Result<()> {
    let (mut gone, mut failed, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for &name in names {
        match delete(name, &context.bars) {
            Ok(id) => {
                if context.chatty() && !context.global.json {
                    writeln!(context.out, "Deleted {what} {name} (was {})", id.short())?;
                }
                gone.push(json!({what: name, "was": id.to_hex()}));
            }
            Err(e) if names.len() == 1 => return Err(e),
            Err(e) => {
                failed.push(json!({what: name, "kind": e.kind_name(), "message": e.message()}));
                errors.push(e);
            }
        }
    }
    if context.global.json {
        context.json(&json!({"deleted": gone, "failed": failed}))?;
    }
    if errors.is_empty() {
        return Ok(());
    }
    context.finish()?;
    Err(CliError::Some(errors))
}

/// Describes commits that no ref reaches any more, now that HEAD has left them: how many, the last one and its subject.
pub fn left_behind(repo: &Repo, before: &Head) -> Result<Option<String>> {
    let Head::Detached(last) = before else { return Ok(None) };
    let mut tips: Vec<Id> = repo.refs().head_commit()?.into_iter().collect();
    for (_, id) in repo.refs().list(HEADS)?.into_iter().chain(repo.refs().list(TAGS)?) {
        // An unreadable ref keeps nothing; its damage is for fsck to report.
        tips.extend(mdl_repo::peel(repo, &id).ok());
    }
    let mut kept = HashSet::new();
    for step in mdl_repo::history(repo, &tips)? {
        let id = step?.id;
        if id == *last {
            return Ok(None);
        }
        kept.insert(id);
    }
    let mut lost = 0;
    for step in mdl_repo::history(repo, &[*last])? {
        lost += u64::from(!kept.contains(&step?.id));
    }
    let (short, message) = (last.short(), repo.odb().commit(last)?.message);
    Ok(Some(format!(
        "warning: no branch or tag has {} that you leave behind, up to\n  {short} {}\nnote: keep with\n  \
         mdl branch NAME {short}",
        count(lost, "commit"),
        subject(&message)
    )))
}
