//! Integration tests of mdl-repo: storage, versions, maintenance, lossy commits.

mod aging;
mod digests;
mod elements;
mod elsewhere;
mod given;
mod links;
mod locks;
mod lossy;
mod paging;
mod refs;
mod remote_moves;
mod retention;
mod shards;
mod signing;
mod skip_deltas;
mod stopping;
mod storage_maintenance;
mod stream_files;
mod support;
mod versions;
mod worktrees;
