//! Fsck of one version: everything that its id covers, its history included, and nothing else.

use crate::{
    config::is_partial,
    maintenance::fsck::{Problem, WHAT, blame, damaged, decode, packs, problem, still_unreadable, trace::Trace},
    pruned,
    repo::Repo,
};
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    Progress, Result,
    object_db::unreadable,
    progress::go_on,
    reachability::{Catalog, Marks, OnDamage, PrunedContents, Root, Slot, roots},
};
use std::collections::HashSet;

/// What a check of a version found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosureReport {
    /// The version and those in its history.
    pub versions: u64,
    /// Of these, such as gave up contents: pruned ones, and ones that an approximation stands for.
    pub left_out: u64,
    /// Objects that were decoded and hashed.
    pub objects: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Of a partial repository: objects that are not here, since they were not fetched.
    pub not_fetched: u64,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<Problem>,
}

/// Decodes and hashes every object that a version's id covers: its trees, files, tensors and blobs, and those of its
/// history. A byte that was changed anywhere in it is found. What a version gave up (pruned, aged) is counted.
///
/// # Errors
/// The packs or refs cannot be listed; `Stopped`.
pub fn check_version(repo: &Repo, id: &Id, progress: &dyn Progress) -> Result<ClosureReport> {
    let storage = repo.storage();
    let _guard = storage.lock_shared().ok();
    let roots = roots(repo.refs(), Some(i64::MIN))?;
    let catalog = Catalog::read(storage, is_partial(storage), |_| ())?;
    let mut problems: Vec<Problem> = catalog.damaged.iter().map(|(key, e)| problem(key.clone(), e)).collect();
    let torn = (0..problems.len()).collect();
    let pruned = pruned::pruned(repo)?;
    let gone =
        pruned::pruned_contents(repo, &catalog, &roots.all, &pruned, i64::MIN, &HashSet::new()).unwrap_or_default();
    let mut marks = Marks::new(&catalog, &gone);
    marks.mark(&catalog, storage, (*id, Some(Kind::Commit)), OnDamage::PassOver)?;
    let slots = slots(&catalog, &marks);
    let sizes = |of: fn(&Catalog, Slot) -> u64| slots.iter().map(|s| of(&catalog, *s)).fold(0, u64::saturating_add);
    progress.begin("checking stored bytes", sizes(|c, s| c.record(s).len));
    let mut bad = packs::intact(&catalog, storage, slots.clone(), progress);
    progress.end();
    go_on(progress, WHAT)?;
    progress.begin("decoding objects", sizes(|c, s| c.record(s).logical));
    let broken: HashSet<Slot> = bad.iter().map(|b| b.slot).collect();
    let sound = slots.iter().copied().filter(|s| !broken.contains(s)).collect();
    bad.extend(decode::check(&catalog, repo.odb(), sound, progress));
    progress.end();
    go_on(progress, WHAT)?;
    let by_object = blame(&catalog, &bad, &mut problems);
    let mut list = damaged(&catalog, &bad);
    list.extend(still_unreadable(repo, &catalog, &bad, true, progress));
    // A repository that cannot be written to can still be checked.
    let _ = unreadable::write(storage, &list);
    let history = history(repo, &catalog, &marks);
    let mut trace = Trace::new(&catalog, repo.odb(), by_object, torn, &mut problems, progress);
    trace.gone = gone.clone();
    trace.root(&Root { name: "the version".to_owned(), id: *id, firm: true });
    let not_fetched = trace.not_fetched.len() as u64;
    go_on(progress, WHAT)?;
    // Damage of packs that no version here needs is another check's.
    problems.retain(|p| !p.affected.is_empty());
    Ok(ClosureReport {
        versions: history.len() as u64,
        left_out: history.iter().filter(|id| has_less(&gone, id)).count() as u64,
        objects: marks.count() as u64,
        bytes: sizes(|c, s| c.record(s).len),
        not_fetched,
        problems,
    })
}

fn has_less(gone: &PrunedContents, id: &Id) -> bool {
    use mdl_store::reachability::Left;
    gone.get(id).is_some_and(|left| !matches!(left, Left::Waiting { now: None, .. }))
}

/// The copies of marked objects that readers take, and those that their deltas are decoded with.
fn slots(catalog: &Catalog, marks: &Marks) -> Vec<Slot> {
    let taken = marks.iter().flat_map(|n| [Some(catalog.best(n)), catalog.leaned_on(n)]).flatten();
    catalog.with_chains(&taken.collect::<Vec<_>>())
}

/// Marked commits that can be read.
fn history(repo: &Repo, catalog: &Catalog, marks: &Marks) -> Vec<Id> {
    let commits = marks.iter().map(|n| catalog.best(n)).filter(|s| catalog.record(*s).kind == Kind::Commit);
    let readable =
        |slot: &Slot| catalog.content(repo.storage(), *slot).is_ok_and(|bytes| Commit::decode(&bytes).is_ok());
    commits.filter(readable).map(|s| catalog.record(s).id).collect()
}
