//! The commands, one file each. Commands do not call each other; what several need is in `shared`.

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
pub mod fsck;
pub mod gc;
pub mod init;
pub mod log;
mod lossy_options;
pub mod ls;
pub mod man;
pub mod merge;
pub mod plan;
pub mod policy;
pub mod prune;
pub mod reflog;
pub mod remotes;
pub mod reset;
pub mod serve;
pub mod shard;
mod shared;
pub mod show;
pub mod stats;
pub mod status;
pub mod switch;
pub mod tag;
pub mod token;
pub mod verify;
pub mod watch;

pub use shared::refused;

use crate::{args::Verb, context::Context, errors::Result};

pub fn run(context: &mut Context, verb: Verb) -> Result<()> {
    match verb {
        Verb::Init(args) => init::run(context, &args),
        Verb::Config(args) => config::run(context, &args),
        Verb::Status(args) => status::run(context, &args),
        Verb::Commit(args) => commit::run(context, args),
        Verb::Watch(args) => watch::run(context, args),
        Verb::Plan(args) => plan::run(context, args),
        Verb::Policy(args) => policy::run(context, &args),
        Verb::Log(args) => log::run(context, &args),
        Verb::Show(args) => show::run(context, &args),
        Verb::Ls(args) => ls::run(context, &args),
        Verb::Cat(args) => cat::run(context, &args),
        Verb::Diff(args) => diff::run(context, &args),
        Verb::Checkout(args) => checkout::run(context, &args),
        Verb::Switch(args) => switch::run(context, &args),
        Verb::Branch(args) => branch::run(context, &args),
        Verb::Tag(args) => tag::run(context, &args),
        Verb::Reset(args) => reset::run(context, &args),
        Verb::Reflog(args) => reflog::run(context, &args),
        Verb::Merge(args) => merge::run(context, &args),
        Verb::Remote(args) => remotes::remote::run(context, &args),
        Verb::Clone(args) => remotes::clone::run(context, &args),
        Verb::Fetch(args) => remotes::fetch::run(context, &args),
        Verb::Pull(args) => remotes::pull::run(context, &args),
        Verb::Push(args) => remotes::push::run(context, &args),
        Verb::LsRemote(args) => remotes::ls_remote::run(context, &args),
        Verb::Shard(args) => shard::run(context, args),
        Verb::Verify(args) => verify::run(context, &args),
        Verb::Fsck(args) => fsck::run(context, &args),
        Verb::Prune(args) => prune::run(context, &args),
        Verb::Gc(args) => gc::run(context, &args),
        Verb::Compact(args) => compact::run(context, &args),
        Verb::Compare(args) => compare::run(context, &args),
        Verb::Stats(args) => stats::run(context, &args),
        Verb::Serve(args) => serve::run(context, args),
        Verb::Token(args) => token::run(context, &args),
        Verb::Doctor(args) => doctor::run(context, &args),
        Verb::Completions(args) => completions::run(context, &args),
        Verb::Man(args) => man::run(context, &args),
    }
}
