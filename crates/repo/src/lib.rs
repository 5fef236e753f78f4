//! Versions of checkpoint files: work tree, commit, checkout, history, branches, shards, maintenance.
//!
//! A [`Repo`] is a handle: it finds, makes and opens a repository, and has its settings. It derefs to the
//! [`Store`] below, which has the objects and the refs. What one does with a repository is a function over it:
//! [`commit()`], [`checkout()`], [`resolve()`], [`diff()`], [`gc()`], [`fsck()`] and the others listed here.
//!
//! ```
//! use mdl_codec::CpuEngine;
//! use mdl_repo::{CheckoutOptions, CommitRequest, Repo, Silent, checkout_to, commit, resolve};
//! use std::{fs, sync::Arc};
//!
//! let dir = tempfile::tempdir()?;
//! let (repo, _) = Repo::init(&dir.path().join("run"), false, "main", Arc::new(CpuEngine::new()))?;
//! fs::write(dir.path().join("run/notes.txt"), "the first")?;
//! let first = commit(&repo, &CommitRequest { message: "one".to_owned(), ..CommitRequest::default() }, &Silent)?;
//! assert_eq!(resolve(&repo, "main")?, first.id);
//!
//! checkout_to(&repo, &first.id, &dir.path().join("copy"), &CheckoutOptions::default(), &Silent)?;
//! assert_eq!(fs::read_to_string(dir.path().join("copy/notes.txt"))?, "the first");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aging;
mod bisect;
mod branches;
mod checkout;
mod commit;
mod config;
mod history;
mod identity;
mod in_progress;
mod linked;
pub mod maintenance;
mod merge;
mod notes;
mod protection;
pub mod provenance;
pub mod pruned;
mod repo;
mod sealed;
mod sequencer;
mod shards;
mod signing;
mod work_tree;
mod worktrees;

pub use aging::age_arrived;
pub use bisect::{
    Bisection, Mark, Measured, Noise, Outlook, Threshold, Verdict, bisect_mark, bisect_metric, bisect_next,
    bisect_reset, bisect_start, bisect_visit, bisect_with_noise, bisection,
};
pub use branches::{
    Merged, create_branch, create_signed_tag, create_tag, delete_branch, delete_tag, merge, move_ref, rename_branch,
    reset, store_tag,
};
pub use checkout::{CheckedOut, CheckoutOptions, attach, check_path, checkout, checkout_to, files_matching};
pub use commit::{
    CommitRequest, Committed, Content, NewFile, PlannedCommit, StoredFile, check_policy, commit, commit_lossy,
    identify, identify_linked, plan, remove_policy, room, set_policy, stage, stored, stored_file, treatments,
};
pub use config::{Config, KNOWN as KNOWN_SETTINGS, OnFull, Remote, UNKNOWN, user_file};
pub use history::{
    Amounts, Blame, BlameQuery, BlamedChange, BlamedTensor, BlamedVersion, Change, Difference, Expression,
    ExpressionError, FileDiff, Filtering, History, LaneEdge, LaneRow, Lanes, Listed, LogFilter, LogPage, PageBounds,
    Selection, Step, StoredTensor, TensorDiff, Verified, blame, diff, format_name, full_ref, history, layer_of,
    log_page, merge_bases, metric_of, parse_time, peel, reaches, resolve, tensors_in, tensors_of, verify,
};
pub use identity::Identity;
pub use in_progress::{
    FileConflict, InProgress, Operation, Phase, Reason, ReplayedVersion, StoppedVersion, TensorRule, in_progress,
    refuse_in_progress,
};
pub use maintenance::{
    Affected, BestMode, BranchStats, Choice, ClosureReport, CompactOptions, CompactReport, Facts, FreeOptions,
    FreeReport, FsckReport, GcOptions, GcReport, IMPORT_DIR, KeptVersion, LevelReport, NameStats, Problem,
    PruneOptions, PruneReport, PrunedVersion, Retention, Stats, TensorStats, Wanted, check_version, compact, copy_to,
    free, fsck, gc, prune, stats, undo_prune,
};
pub use mdl_merge::{Method, Strategy};
pub use merge::{
    FastForward, Measure, Measured as MeasuredSoup, MergeConflict, MergeOutcome, MergeReason, MergeRequest,
    MergedVersion, Override, RECIPE_KEY, Recipe, Rule, Side, SoupKind, SoupRequest, VerifiedMerge, merge_versions,
    soup, verify_merge,
};
pub use notes::{
    Note, NoteValue, VersionNotes, check_notes, merge_notes, note_value, notes, notes_at, remove_notes, set_notes,
    shown_notes,
};
pub use protection::Protection;
pub use pruned::{
    Fidelity, LeftOut, LeftOutFiles, Level, Pruned, PrunedMark, Standing, comparable, files, files_beside,
    is_collected, pruned, standing, standing_tree,
};
pub use repo::{DIR, Repo};
pub use sequencer::{
    Aborted, GoOn, Outcome, ReplayDone, ReplayOptions, ReplayStop, abort, cherry_pick, forget, go_on_with, parted,
    range, rebase, revert,
};
pub use shards::{JoinRequest, Session, Shard, ShardRequest, join_shards, put_shard, sessions};
pub use signing::{
    AllowedSigner, AllowedSigners, NAMESPACE as SIGNATURE_NAMESPACE, RevokedKeys, SignatureStatus, Signer, Signers,
    Signing, Verdict as SignatureVerdict, sign_statement, signing_key, verify_commit, verify_tag,
};
pub use work_tree::{
    Survey, WorkTree, clear_work_tree_base, file_equals, refuse_moved, remove as removal, status, survey, walk,
    work_tree_base, work_trees,
};
pub use worktrees::{add_work_tree, lock_linked_work_tree, prune_work_trees, remove_work_tree};

pub use mdl_lossy::{
    BUILT_IN, BoundCost, Bounds, BoundsRecord, CommandEvaluator, DEFAULT, Direction, Evaluator, Family, Gate,
    LossyRequest, Moments, Policy, Quality, ReplacedTensor, StoredPolicy, TensorTreatment, Trial, policies, policy,
};
pub use mdl_store::{
    ErrorKind, Missing, Progress, RefGuard, Refusal, Remedy, RepoError, Result, Silent, Store, Unchanged,
    object_db::{Digests, Files, Location, Odb, Promisor},
    pack::{self, TensorHeader},
    read::{Axis, Elements, Slice, TensorReader, WriteAt, most_shown, npy_header, safetensors_header, shape_of},
    refs::{HEADS, Head, LogEntry, NOTES, REMOTES, RefName, Refs, TAGS, check_ref_name},
    storage,
    transaction::{PackApart, WriteTransaction},
    values::to_f64,
    write::{DiskFile, FileState, Hints, Report, Source, TensorReport},
};
