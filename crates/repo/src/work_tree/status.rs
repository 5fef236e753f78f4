//! Differences between the work tree and a version.

use crate::{
    history::Change,
    pruned::files,
    repo::Repo,
    work_tree::{base::work_tree_base, survey_work_tree},
};
use mdl_objects::Entry;
use mdl_store::{
    Progress, RepoError, Result,
    object_db::Files,
    write::{Chains, DiskFile, Hints, Ingest, Policy, Report, Sink, cached::ingest_cached},
};
use std::path::Path;

/// The state of a work tree.
#[derive(Debug)]
pub struct Survey {
    /// Differences to the work-tree base (`work_tree_base`: HEAD's version, unless another user moved it), by
    /// path.
    pub changes: Vec<(String, Change)>,
    /// Why some of its files cannot be committed.
    pub problems: Vec<RepoError>,
}

/// Differences of the work tree to its base, by path.
pub fn status(repo: &Repo, progress: &dyn Progress) -> Result<Vec<(String, Change)>> {
    Ok(survey(repo, false, progress)?.changes)
}

/// As [`status`](crate::work_tree::status), with what could not be committed. Links are followed if asked for here or
/// by the settings.
pub fn survey(repo: &Repo, follow_symlinks: bool, progress: &dyn Progress) -> Result<Survey> {
    let (list, problems) = survey_work_tree(repo.need_work()?, follow_symlinks || repo.config.follow_symlinks())?;
    let head = match work_tree_base(repo)? {
        Some(id) => files(repo, &id)?,
        None => Files::new(),
    };
    progress.begin("hashing", list.iter().map(|f| f.size).sum());
    let mut out = Vec::new();
    for f in &list {
        match head.get(&f.rel) {
            None => out.push((f.rel.clone(), Change::Added)),
            Some(e) if differs(repo, f, e, progress)? => out.push((f.rel.clone(), Change::Modified)),
            Some(_) => {}
        }
    }
    progress.end();
    let there = |rel: &str| list.binary_search_by(|f| f.rel.as_str().cmp(rel)).is_ok();
    out.extend(head.keys().filter(|rel| !there(rel)).map(|rel| (rel.clone(), Change::Deleted)));
    out.sort();
    Ok(Survey { changes: out, problems })
}

/// Whether a file's bytes or executable bit are not those of an entry.
pub(crate) fn differs(repo: &Repo, f: &DiskFile, e: &Entry, progress: &dyn Progress) -> Result<bool> {
    if f.size != e.size || f.executable != e.executable {
        progress.advance(f.size);
        return Ok(true);
    }
    // A damaged container can only equal a version that was committed as plain bytes.
    let policy = Policy { chains: Chains::NONE, allow_damaged: true };
    let sink = Sink::Ids;
    let mut ingest =
        Ingest { odb: repo.odb(), sink, policy, hints: &Hints::default(), progress, report: Report::default() };
    let found = ingest_cached(&mut ingest, &f.path, &f.rel, None)?;
    Ok((found.mode, found.id) != (e.mode, e.id))
}

/// Whether a file on disk holds exactly the bytes of an entry.
pub fn file_equals(repo: &Repo, path: &Path, entry: &Entry, progress: &dyn Progress) -> Result<bool> {
    let meta = std::fs::metadata(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let f = DiskFile {
        rel: name.unwrap_or_default(),
        path: path.to_owned(),
        size: meta.len(),
        executable: entry.executable,
    };
    Ok(!differs(repo, &f, entry, progress)?)
}
