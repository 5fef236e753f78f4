//! Integration tests of mdl-repo: storage, versions, maintenance, lossy commits.

mod aging;
mod bisect;
mod blame;
mod digests;
mod elements;
mod elsewhere;
mod given;
mod locks;
mod lossy;
mod merging;
mod notes;
mod paging;
mod refs;
mod remote_moves;
mod retention;
mod sequencer;
mod shards;
mod signing;
mod skip_deltas;
mod stopping;
mod storage_maintenance;
mod stream_files;
mod support;
mod touched;
mod versions;
mod worktrees;
