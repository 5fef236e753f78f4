//! Commands about remotes, and what they share: resolving a remote, options, output.

pub mod clone;
pub mod fetch;
pub mod ls_remote;
pub mod pull;
mod pull_merge;
pub mod push;
mod refspecs;
pub mod remote;
mod remote_url;

use crate::commands::prelude::*;
use mdl_remote::{
    Advertised, Peer,
    fetch::Received,
    sync::RefMove,
    tracking::{Choice, note_wanted, receive_wanted, wanted},
};
use mdl_repo::{REMOTES, Remote};
use remote_url::{elsewhere, is_url, named, named_or_url, peer};
use std::env;

/// Directory for temporary files of a transfer.
pub fn scratch(repo: &Repo) -> PathBuf {
    repo.dir().map_or_else(env::temp_dir, PathBuf::from)
}

/// What came of it.
#[derive(Debug)]
pub struct Fetched {
    pub received: Received,
    pub moves: Vec<RefMove>,
}

impl Fetched {
    /// For programs; `name` is the remote's.
    pub fn json(&self, name: &str) -> Value {
        json!({"remote": name, "received": received_json(&self.received), "refs": moves_json(&self.moves)})
    }

    pub fn tell(&self, context: &mut Context, remote: &Remote) -> Result<()> {
        writeln!(context.out, "From {}: {}", remote.url, carried(&self.received))?;
        tell_moves(context, &self.moves)
    }
}

/// Fetches what is wanted, then moves the remote-tracking branches.
pub fn fetch_into(
    context: &Context,
    repo: &Repo,
    named: (&str, &Remote),
    peer: &dyn Peer,
    there: &Advertised,
    choice: Choice,
) -> Result<Fetched> {
    let (name, remote) = named;
    let moves = wanted(repo, named, there, choice).map_err(elsewhere(name))?;
    let received = receive_wanted(repo, remote, peer, &moves, &context.bars).map_err(elsewhere(name))?;
    let moves = note_wanted(repo, named, moves, &context.bars)?;
    // Versions are here, whatever becomes of the notes on them.
    if let Err(e) = mdl_remote::notes::fetch_notes(repo, peer, there, &context.bars) {
        context.note(&format!("warning: the notes on versions of {name} were not taken in: {e}"));
    }
    Ok(Fetched { received, moves })
}

/// Fetches from a remote that is noted here.
pub fn fetch_from(context: &Context, repo: &Repo, name: &str, remote: &Remote, choice: Choice) -> Result<Fetched> {
    let peer = peer(context, repo, remote, None)?;
    let there = peer.refs().map_err(elsewhere(name))?;
    fetch_into(context, repo, (name, remote), &*peer, &there, choice)
}

/// One line for each ref that moved, as git shows them.
pub fn tell_moves(context: &mut Context, moves: &[RefMove]) -> Result<()> {
    for m in moves {
        let short = m.name.strip_prefix(REMOTES).or(m.name.strip_prefix(TAGS)).or(m.name.strip_prefix(HEADS));
        let short = short.unwrap_or(&m.name);
        let what = match (m.expected, m.new) {
            (None, Some(_)) if m.name.starts_with(TAGS) => "[new tag]".to_owned(),
            (None, Some(_)) => "[new branch]".to_owned(),
            (_, None) => "[deleted]".to_owned(),
            (Some(old), Some(new)) => format!("{}..{}", old.short(), new.short()),
        };
        writeln!(context.out, "  {what:<26} {short}")?;
    }
    Ok(())
}

/// What was carried, in words.
pub fn carried(received: &Received) -> String {
    format!("{} received ({})", count(received.objects, "object"), size(received.carried))
}

pub fn moves_json(moves: &[RefMove]) -> Vec<Value> {
    let hex = |id: Option<Id>| id.map(|id| id.to_hex());
    moves.iter().map(|m| json!({"name": m.name, "old": hex(m.expected), "new": hex(m.new)})).collect()
}

pub fn received_json(received: &Received) -> Value {
    json!({"carried_bytes": received.carried, "objects": received.objects, "bytes": received.bytes})
}
