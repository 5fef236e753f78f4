//! Removes original checkpoints once their bytes were compared with the commit.
//!
//! An original is moved aside before it is deleted, so that a listing of the directory never shows half of one. A kill
//! in between leaves it aside: the next run checks it again. It is deleted file by file, and only what was compared: a
//! directory that holds anything else stays.

use super::known::KnownCheckpoints;
use crate::{
    checkpoints::{
        SOURCE_TREE,
        find::{WatchedEntry, stamp},
    },
    commands::prelude::*,
};
use mdl_repo::{
    DIR, Result, WriteAt,
    removal::{Compared, REMOVING, Removal, delete_compared, put_back, remove_compared, states_below},
};
use std::{collections::HashSet, fs};

/// Returns the names to keep: the newest, by step and by time; targets of links; what the framework calls the best.
pub fn staying(committed: &[WatchedEntry], keep: usize, linked: &HashSet<String>) -> HashSet<String> {
    let mut stay = linked.clone();
    let mut by_step: Vec<&WatchedEntry> = committed.iter().filter(|f| f.place.rank().is_some()).collect();
    by_step.sort_by_key(|f| f.order());
    let mut by_time: Vec<&WatchedEntry> = committed.iter().collect();
    by_time.sort_by_key(|f| f.changed());
    stay.extend(by_step.iter().rev().take(keep).map(|f| f.name.clone()));
    stay.extend(by_time.iter().rev().take(keep).map(|f| f.name.clone()));
    stay.extend(by_step.last().and_then(|f| f.place.best.clone()));
    stay
}

/// Removes an original if every byte of it can be had from the commit, and the branch still has that; else says why it
/// stays. After an error it stays too.
pub fn remove(
    context: &Context,
    repo: &Repo,
    branch: &str,
    found: &WatchedEntry,
    commit: &Id,
) -> Result<Option<String>> {
    match stamp(&found.path) {
        Ok(Some(now)) if now == found.stamp => {}
        Ok(None) => return Ok(Some("it is gone already".to_owned())),
        _ => return Ok(Some("it changed since it was committed".to_owned())),
    }
    let compared = states_below(&found.path)?;
    if let Some(why) = unknown(repo, found, commit, &compared)? {
        return Ok(Some(why));
    }
    if let Some(why) = difference(context, repo, found, commit)? {
        return Ok(Some(why));
    }
    let tip = repo.refs().get(&RefName::branch(branch)?)?;
    if !tip.is_some_and(|tip| mdl_repo::reaches(repo, &tip, commit).is_ok_and(|yes| yes)) {
        return Ok(Some(format!("branch {branch} does not hold its version any more")));
    }
    match remove_compared(&found.path, &compared)? {
        Removal::Done => Ok(None),
        Removal::Kept(at) if at == found.path => Ok(Some("it changed while it was compared".to_owned())),
        Removal::Kept(at) => Ok(Some(format!("it changed while it was compared, and is now {}", at.display()))),
    }
}

/// Returns a file of the original that the version does not hold, at any depth.
fn unknown(repo: &Repo, found: &WatchedEntry, commit: &Id, compared: &Compared) -> Result<Option<String>> {
    let files = mdl_repo::files(repo, commit)?;
    let name = |rel: &String| {
        if rel.is_empty() { found.name.clone() } else { rel.clone() }
    };
    let Some(rel) = compared.keys().map(name).find(|rel| !files.contains_key(rel)) else {
        return Ok(None);
    };
    Ok(Some(match rel.split('/').any(|part| part == DIR) {
        true => format!("a repository is in it ({rel}), which its version has nothing of"),
        false => format!("its version has no {rel}"),
    }))
}

/// Discards the bytes: only whether they can be read counts.
struct Nowhere;

impl WriteAt for Nowhere {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Restores every file of the version, compares it with the original, and returns the first difference. Files of a
/// lossy version differ from the original: there every object must match its id, and the original must be what it was
/// when its version was made.
fn difference(context: &Context, repo: &Repo, found: &WatchedEntry, id: &Id) -> Result<Option<String>> {
    let commit = repo.odb().commit(id)?;
    let files = mdl_repo::files(repo, id)?;
    if let Some(rel) = found.stamp.keys().find(|rel| !files.contains_key(*rel)) {
        return Ok(Some(format!("its version has no {rel}")));
    }
    let lossy = commit.meta.get(SOURCE_TREE);
    for (rel, entry) in &files {
        if !found.stamp.contains_key(rel) {
            return Ok(Some(format!("it has no {rel} any more")));
        }
        if lossy.is_some() {
            repo.odb().restore(entry, &Nowhere, &context.bars)?;
        } else if mdl_repo::verify(repo, &found.file(rel), id, Some(rel), &context.bars)?.difference.is_some() {
            return Ok(Some(format!("{rel} is not what its version holds")));
        }
    }
    match lossy {
        Some(tree) if mdl_repo::identify(repo, &found.path, &context.bars)?.to_hex() != *tree => {
            Ok(Some("it changed since it was committed".to_owned()))
        }
        _ => Ok(None),
    }
}

/// Cleans up originals that a killed run left aside: deletes those whose remaining files are all in a version, moves
/// the others back.
pub fn resume(context: &Context, repo: &Repo, known: &KnownCheckpoints, dir: &Path) -> Result<()> {
    let failed = |e| RepoError::io(format!("cannot clear up {}", dir.display()))(e);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let aside = entry.map_err(failed)?.path();
        let Some(name) = aside.file_name().and_then(|n| n.to_str()?.strip_prefix(REMOVING)) else {
            continue;
        };
        let back = dir.join(name);
        // What cannot be read counts as in no version.
        let left = states_below(&aside).unwrap_or_default();
        let held = |id: &Id| held(context, repo, &aside, name, &left, id).is_ok_and(|yes| yes);
        let outcome = match known.versions_of(name).iter().any(|(_, id)| held(id)) {
            true => delete_compared(&aside, &back, &left)?,
            false => put_back(aside.clone(), &back)?,
        };
        if outcome == Removal::Kept(aside.clone()) {
            context.note(&format!("note: {} was left by a removal that was cut off", aside.display()));
        }
    }
    Ok(())
}

/// Returns whether all that is left of an original is in a version, byte for byte.
fn held(context: &Context, repo: &Repo, aside: &Path, name: &str, left: &Compared, id: &Id) -> Result<bool> {
    for rel in left.keys() {
        let (path, inner) = match rel.as_str() {
            "" => (aside.to_owned(), name),
            rel => (aside.join(rel), rel),
        };
        if mdl_repo::verify(repo, &path, id, Some(inner), &context.bars)?.difference.is_some() {
            return Ok(false);
        }
    }
    // An unreadable directory does not count as empty.
    Ok(!left.is_empty() || fs::read_dir(aside).is_ok_and(|mut d| d.next().is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::name::Place;

    fn found(name: &str, time: i128) -> WatchedEntry {
        WatchedEntry {
            name: name.to_owned(),
            path: name.into(),
            stamp: [("w".to_owned(), (1, time))].into(),
            inode: (0, 0),
            temporary: false,
            place: Place::of_name(name),
        }
    }

    #[test]
    fn the_newest_by_step_and_by_time_stay() {
        let mut all =
            vec![found("last.ckpt", 9), found("step=1.ckpt", 7), found("step=2.ckpt", 8), found("step=3.ckpt", 6)];
        let names = |all: &[WatchedEntry], keep, linked: &[&str]| {
            let linked = linked.iter().map(|n| (*n).to_owned()).collect();
            let mut names: Vec<String> = staying(all, keep, &linked).into_iter().collect();
            names.sort();
            names
        };
        assert_eq!(names(&all, 1, &[]), ["last.ckpt", "step=3.ckpt"]);
        assert_eq!(names(&all, 2, &[]), ["last.ckpt", "step=2.ckpt", "step=3.ckpt"]);
        all[3].place.best = Some("step=1.ckpt".to_owned());
        assert_eq!(names(&all[1..], 1, &["other"]), ["other", "step=1.ckpt", "step=2.ckpt", "step=3.ckpt"]);
        assert!(names(&[], 1, &[]).is_empty());
    }
}
