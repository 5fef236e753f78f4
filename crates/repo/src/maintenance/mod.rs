//! Maintenance: collection, compaction, checks, retention, statistics, copies.

pub(crate) mod compact;
mod copy;
mod free;
pub(crate) mod fsck;
pub(crate) mod gc;
mod retention;
mod stats;

pub use compact::{CompactOptions, CompactReport, compact, encode_anew};
pub use copy::copy_to;
pub use free::{FreeOptions, FreeReport, Wanted, free};
pub use fsck::{Affected, ClosureReport, FsckReport, Problem, check_version, fsck, intact, sound};
pub use gc::{GcOptions, GcReport, IMPORT_DIR, gc};
pub use retention::{
    BestMode, Choice, Facts, KeptVersion, LevelReport, PruneOptions, PruneReport, PrunedVersion, Retention, prune,
    undo_prune,
};
pub use stats::{BranchStats, NameStats, Stats, TensorStats, stats};

use mdl_store::{
    RepoError, Result,
    reachability::{Catalog, Marks, OnDamage, Root, Slot},
    storage::Storage,
};

/// Refuses a pack that cannot be read: it may hold anything, commits that refer to the rest among them. `so` is what
/// follows for the user.
fn undamaged(mut catalog: Catalog, so: &str) -> Result<Catalog> {
    match catalog.damaged.pop() {
        None => Ok(catalog),
        Some((key, e)) => Err(RepoError::corrupt(key, format!("{e}; {so}"))),
    }
}

/// Adds what the roots reach. A reflog may name what an earlier collection, told to, has deleted.
fn marked(catalog: &Catalog, storage: &dyn Storage, roots: &[Root], mut marks: Marks) -> Result<Marks> {
    for root in roots.iter().filter(|r| r.firm || catalog.find(&r.id).is_some()) {
        marks.mark(catalog, storage, (root.id, None), OnDamage::Refuse)?;
    }
    Ok(marks)
}

/// Copies in a pack that readers take, in the order they lie in it.
fn taken(catalog: &Catalog, pack: usize) -> Vec<Slot> {
    let mut out: Vec<Slot> = catalog.slots(pack).filter(|s| catalog.is_taken(*s)).collect();
    out.sort_by_key(|s| catalog.record(*s).offset);
    out
}

/// Whether a copy that could not be read, and that something stands on all the same, is among these: it cannot be
/// moved, since that verifies it.
fn is_unmovable(catalog: &Catalog, slots: &[Slot]) -> bool {
    slots.iter().any(|s| catalog.best(catalog.number_of(*s)) != *s)
}
