//! Maintenance: collection, compaction, checks, retention, statistics, copies.

pub(crate) mod compact;
mod copy;
pub(crate) mod fsck;
pub(crate) mod gc;
mod retention;
mod stats;

pub use compact::{CompactOptions, CompactReport, compact, encode_anew};
pub use copy::copy_to;
pub use fsck::{Affected, FsckReport, Problem, fsck, intact, sound};
pub use gc::{GcOptions, GcReport, gc};
pub use retention::{
    BestMode, Choice, Facts, KeptVersion, PruneOptions, PruneReport, PrunedVersion, Retention, prune, undo_prune,
};
pub use stats::{BranchStats, NameStats, Stats, TensorStats, stats};
