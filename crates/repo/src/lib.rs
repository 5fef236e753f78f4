//! The repository: storage, packs, refs, index, transactions, checkout, compaction, garbage collection, fsck.

mod branches;
mod checkout;
mod commit;
mod compact;
pub mod compare;
mod config;
mod contents;
mod diff;
mod duplicate;
mod evaluator;
mod fsck;
mod gc;
mod history;
mod identify;
mod identity;
mod listing;
mod lossy;
mod metrics;
mod move_ref;
mod repo;
mod resume;
mod retention;
mod revision;
mod room;
mod shards;
mod stage;
mod stats;
mod status;
pub mod sync;
mod verify;
mod work;
mod work_tree_base;

pub use branches::Merged;
pub use checkout::{CheckedOut, CheckoutOptions, check_path};
pub use commit::{CommitRequest, Committed};
pub use compact::{CompactOptions, CompactReport};
pub use config::{Config, KNOWN as KNOWN_SETTINGS, OnFull, Remote, user_file};
pub use contents::{Content, NewFile, Stored};
pub use diff::{FileDiff, TensorDiff};
pub use evaluator::CommandEvaluator;
pub use fsck::{Affected, FsckReport, Problem};
pub use gc::{GcOptions, GcReport};
pub use history::{History, Listed, Step};
pub use identity::Identity;
pub use listing::{StoredTensor, format_name};
pub use lossy::{
    BUILT_IN, DEFAULT, Direction, Evaluator, Family, Gate, LossyRequest, Moments, Policy, Quality, StoredPolicy,
    TensorTreatment, Trial,
};
pub use repo::{DIR, Repo};
pub use retention::{
    BestMode, Choice, Facts, KeptVersion, PruneOptions, PruneReport, Pruned, PrunedMark, PrunedVersion, Retention,
};
pub use shards::{JoinRequest, Session, Shard, ShardRequest};
pub use stats::{BranchStats, NameStats, Stats, TensorStats};
pub use status::{Change, Survey};
pub use verify::{Difference, Verified};
pub use work::{FileState, WorkTreeLock, remove as removal};

pub use mdl_store::{
    ErrorKind, Missing, Progress, RepoError, Result, Silent, Store,
    lock::WriteGuard,
    object_db::{Digests, Files, Location, Odb, Promisor},
    pack::{self, TensorHeader},
    read::{Axis, Elements, Slice, TensorReader, WriteAt, most_shown, npy_header, safetensors_header, shape_of},
    refs::{HEADS, Head, LogEntry, REMOTES, RefName, Refs, TAGS, check_ref_name},
    storage,
    values::to_f64,
    write::{Hints, Report, Source, TensorReport},
};
