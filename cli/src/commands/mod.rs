//! The commands, one file each. Commands do not call each other; what several need is in `shared`.

mod attest;
pub mod bisect;
pub mod blame;
pub mod branch;
pub mod cat;
mod changes;
pub mod checkout;
pub mod commit;
mod commit_fields;
pub mod compact;
pub mod compare;
pub mod completions;
pub mod config;
pub mod diff;
pub mod doctor;
mod editor;
pub mod free;
pub mod fsck;
pub mod gc;
pub mod grep_metric;
pub mod import;
pub mod init;
pub mod log;
mod log_filter;
mod lossy_options;
pub mod ls;
pub mod man;
pub mod merge;
mod merge_options;
pub mod notes;
pub mod plan;
pub mod policy;
pub mod prelude;
mod provenance_options;
pub mod prune;
pub mod reflog;
pub mod remotes;
pub mod replay;
pub mod reset;
mod retention_options;
pub mod serve;
pub mod shard;
pub mod shared;
pub mod show;
mod signing_options;
pub mod soup;
pub mod stats;
pub mod status;
pub mod switch;
pub mod tag;
pub mod token;
pub mod verify;
mod verify_commit;
mod verify_tag;
pub mod watch;
mod worktree;

pub use shared::refused;

use crate::{context::Context, errors::Result};
use clap::Subcommand;

/// The verbs, in the order of the help, each with the module that has its `Args` and `run`.
macro_rules! verbs {
    ($($verb:ident $($module:ident)::+;)*) => {
        #[derive(Debug, Subcommand)]
        pub enum Verb {
            $($verb($($module)::+::Args),)*
        }

        pub fn run(context: &mut Context, verb: Verb) -> Result<()> {
            match verb {
                $(Verb::$verb(args) => $($module)::+::run(context, &args),)*
            }
        }
    };
}

verbs! {
    Init init;
    Config config;
    Status status;
    Commit commit;
    Watch watch;
    Import import;
    Plan plan;
    Policy policy;
    Log log;
    GrepMetric grep_metric;
    Show show;
    Notes notes;
    Ls ls;
    Cat cat;
    Diff diff;
    Bisect bisect;
    Blame blame;
    Checkout checkout;
    Switch switch;
    Worktree worktree;
    Branch branch;
    Tag tag;
    Reset reset;
    Reflog reflog;
    Merge merge;
    Soup soup;
    Rebase replay::rebase;
    CherryPick replay::cherry_pick;
    Revert replay::revert;
    Remote remotes::remote;
    Clone remotes::clone;
    Fetch remotes::fetch;
    Pull remotes::pull;
    Push remotes::push;
    LsRemote remotes::ls_remote;
    Shard shard;
    Verify verify;
    VerifyCommit verify_commit;
    VerifyTag verify_tag;
    Attest attest;
    Fsck fsck;
    Prune prune;
    Free free;
    Gc gc;
    Compact compact;
    Compare compare;
    Stats stats;
    Serve serve;
    Token token;
    Doctor doctor;
    Completions completions;
    Man man;
}
