//! The repository: storage, packs, refs, index, transactions, checkout, compaction, collection, checks. Neighbours: joins
//! `mdl-codec`, `mdl-files` and `mdl-objects`, which do not know each other; the CLI builds on it. It must not know how
//! anything is shown or asked for.

mod branches;
mod chain;
mod checkout;
mod commit;
mod compact;
pub mod compare;
mod config;
mod contents;
mod diff;
mod duplicate;
mod elements;
mod error;
mod evaluator;
mod fsck;
mod gc;
mod guard;
mod history;
mod identify;
mod identity;
mod index;
mod ingest;
mod listing;
mod lossy;
mod metrics;
mod move_ref;
mod odb;
pub mod pack;
mod payload;
mod pour;
mod progress;
mod range;
mod reach;
mod refs;
mod repo;
mod restore;
mod resume;
mod retain;
mod revision;
mod room;
mod shards;
mod source;
mod stage;
mod standing;
mod stats;
mod status;
pub mod storage;
pub mod sync;
mod tensor;
mod transaction;
mod tree;
mod values;
mod verify;
mod work;

pub use branches::Merged;
pub use chain::TensorReader;
pub use checkout::{CheckedOut, CheckoutOptions, check_path};
pub use commit::{CommitRequest, Committed};
pub use compact::{CompactOptions, CompactReport};
pub use config::{Config, KNOWN as KNOWN_SETTINGS, OnFull, Remote, user_file};
pub use contents::{Content, NewFile, Stored};
pub use diff::{FileDiff, TensorDiff};
pub use elements::{Axis, Elements, Slice, most_shown, npy_header, safetensors_header, shape_of};
pub use error::{ErrorKind, RepoError, Result};
pub use evaluator::CommandEvaluator;
pub use fsck::{Affected, FsckReport, Problem};
pub use gc::{GcOptions, GcReport};
pub use guard::WriteGuard;
pub use history::{History, Listed, Step};
pub use identity::Identity;
pub use index::Digests;
pub use ingest::{Hints, Report, TensorReport};
pub use listing::{StoredTensor, format_name};
pub use lossy::{
    BUILT_IN, DEFAULT, Direction, Evaluator, Family, Gate, LossyRequest, Moments, Policy, Quality, Shelved,
    TensorTreatment, Trial,
};
pub use odb::{Location, Odb, Supplier};
pub use progress::{Progress, Silent};
pub use refs::{HEADS, Head, LogEntry, REMOTES, RefName, Refs, TAGS, check_ref_name};
pub use repo::{DIR, Repo};
pub use restore::WriteAt;
pub use retain::{
    BestMode, Choice, Facts, KeptVersion, PruneOptions, PruneReport, Pruned, PrunedMark, PrunedVersion, Retention,
};
pub use shards::{JoinRequest, Session, Shard, ShardRequest};
pub use source::Source;
pub use stats::{BranchStats, NameStats, Stats, TensorStats};
pub use status::{Change, Survey};
pub use tensor::TensorHeader;
pub use tree::Files;
pub use values::to_f64;
pub use verify::{Difference, Verified};
pub use work::{FileState, WorkTreeLock, remove as removal};
