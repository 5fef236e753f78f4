//! Merge bases: the best common ancestors of versions.

use crate::{history::history, repo::Repo};
use mdl_objects::Id;
use mdl_store::Result;
use std::collections::HashSet;

/// The common ancestors of all these versions that are in the history of no other one, the newest first (by their own
/// clocks, then by id); a version is an ancestor of itself. More than one: the histories have crossed. None: they have
/// nothing in common.
///
/// # Errors
/// Absent or damaged commits; an I/O error.
pub fn merge_bases(repo: &Repo, versions: &[Id]) -> Result<Vec<Id>> {
    let Some((first, others)) = versions.split_first() else { return Ok(Vec::new()) };
    let others = others.iter().map(|id| ancestors(repo, id)).collect::<Result<Vec<_>>>()?;
    let (mut bases, mut below) = (Vec::new(), HashSet::new());
    let mut common = Vec::new();
    for step in history(repo, &[*first])? {
        let step = step?;
        if others.iter().all(|ids| ids.contains(&step.id)) {
            common.push(step);
        }
    }
    for step in &common {
        below.extend(step.commit.parents.iter().copied());
    }
    bases.extend(common.iter().map(|step| step.id).filter(|id| !below.contains(id)));
    Ok(bases)
}

fn ancestors(repo: &Repo, id: &Id) -> Result<HashSet<Id>> {
    history(repo, &[*id])?.map(|step| Ok(step?.id)).collect()
}
