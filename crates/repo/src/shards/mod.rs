//! Sharded commits: ranks on many hosts each put their own files, one finishing call joins them into one version.
//!
//! A session is a name that the ranks agree on. Under `shards/<session>/` are a record for each rank, written when all
//! that it names is durable, and `state`, which decides: it changes by compare-and-swap only, and goes
//!
//! ```text
//! absent, or collecting(token)  --join-->  decided(commit, ref, where it stood)  --the ref moves-->  settled(commit)
//! ```
//!
//! What a kill leaves, step by step:
//! - `put` before its record: packs that nothing names, garbage once their time of grace is over. After it: the rank
//!   has put.
//! - `join` before it swaps `state` to decided: a pack with a commit that nothing names, garbage; the session is as it
//!   was.
//! - after that swap, before the ref moves: every later `join` reads which commit it is, and moves the ref for the dead
//!   one.
//! - after the ref moved: `state` does not say so yet, but the ref or its log does; a later `join` only notes it.
//! - once `state` says that it is settled the records are deleted; those that a kill leaves are swept by `gc`.
//!
//! Two `join`s at once make two commits, and one swap wins; the other one takes the winner's. A `put` that comes
//! between a `join`'s reading of the records and its swap changes the token, so that the swap loses and the `join`
//! reads again: a rank that was told "done" is in the version with what it put last. Where another writer moved the ref
//! meanwhile, the commit is given up (`state` goes back to collecting, and names it), and the next `join` makes one
//! that follows what is there now. It first looks whether one that was given up got onto the ref after all, by the hand
//! of a finisher that had been asleep: at most one is on it.

mod finish;
mod join;
mod list;
mod put;
mod record;
mod state;
mod sweep;

pub use join::join_shards;
pub use list::sessions;
pub use put::put_shard;

pub use join::JoinRequest;
pub use list::Session;
pub use put::{Shard, ShardRequest};
pub(crate) use sweep::{roots, sweep};

use mdl_store::{
    RepoError, Result,
    refs::check_ref_name,
    storage::{Key, Prefix},
};

/// Prefix of all that sessions keep.
const SHARDS: Prefix = Prefix::fixed("shards/");
const STATE: &str = "state";

/// The keys of one session.
#[derive(Clone, Debug)]
struct Keys {
    /// `shards/<session>/`, with `/` in the name written `%2F`, so that `a` and `a/0` do not meet.
    prefix: Prefix,
    /// `shards/<session>/state`.
    state: Key,
}

impl Keys {
    fn for_session(session: &str) -> Result<Keys> {
        check_ref_name(session).map_err(|e| {
            RepoError::user(format!("{session:?} is not a valid name for a session"), e.hint().unwrap_or_default())
        })?;
        let prefix = SHARDS.key(&session.replace('/', "%2F"))?.below();
        let state = prefix.key(STATE)?;
        Ok(Keys { prefix, state })
    }

    fn rank(&self, rank: u32) -> Result<Key> {
        self.prefix.key(&rank.to_string())
    }
}

/// The session and the name in it of a key; `None` for a key that belongs to no session.
fn parts(key: &str) -> Option<(String, &str)> {
    let (session, name) = key.strip_prefix(SHARDS.as_str())?.split_once('/')?;
    Some((session.replace("%2F", "/"), name))
}
