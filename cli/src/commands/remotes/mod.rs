//! Commands about remotes, and what they share: resolving a remote, options, output.

pub mod clone;
pub mod fetch;
pub mod ls_remote;
pub mod pull;
pub mod push;
mod refspecs;
pub mod remote;
mod remote_url;

use crate::commands::prelude::*;
use mdl_remote::{
    Advertised, Peer,
    fetch::{Received, note_refs, receive},
    sync::{Filter, RefMove, Want},
};
use mdl_repo::{REMOTES, Remote};
use remote_url::{elsewhere, is_url, named, named_or_url, peer};
use std::env;

/// Directory for temporary files of a transfer.
pub fn scratch(repo: &Repo) -> PathBuf {
    repo.dir().map_or_else(env::temp_dir, PathBuf::from)
}

/// What to fetch from a remote.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Branches by their short names, or tags where no branch has the name; none for all branches.
    pub branches: Vec<String>,
    /// Whether tags come too.
    pub tags: bool,
    /// Whether branches that are gone there go from what is noted of it.
    pub prune: bool,
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

impl Choice {
    /// Of a clone of one branch, that one and no tags come where nothing is named.
    fn within(mut self, remote: &Remote) -> Choice {
        if let Some(branch) = &remote.branch {
            self.tags = false;
            if self.branches.is_empty() {
                self.branches.push(branch.clone());
            }
        }
        self
    }

    /// The branches and tags that were named, by their full names there.
    fn named(&self, name: &str, there: &Advertised) -> Result<Vec<String>> {
        let full = |short: &String| {
            let all = [HEADS, TAGS].map(|prefix| format!("{prefix}{short}"));
            let found = all.into_iter().find(|full| there.get(full).is_some());
            found.ok_or_else(|| elsewhere(name)(RepoError::not_found(Missing::Branch, format!("{short} at {name}"))))
        };
        self.branches.iter().map(full).collect()
    }
}

/// The refs there that are wanted, as they are noted here.
fn wanted(repo: &Repo, name: &str, there: &Advertised, choice: &Choice) -> Result<Vec<RefMove>> {
    let mut out = Vec::new();
    let chosen = choice.named(name, there)?;
    let is_chosen = |full: &String| chosen.contains(full);
    // A name that no ref here could have holds nothing; it is refused when it is to be noted.
    let held = |full: &str| RefName::parse(full).map_or(Ok(None), |name| repo.refs().get(&name));
    for (full, id) in &there.refs {
        let (to, force) = match (full.strip_prefix(HEADS), full.strip_prefix(TAGS)) {
            (Some(b), _) if chosen.is_empty() || is_chosen(full) => (format!("{REMOTES}{name}/{b}"), true),
            // A tag that is here stays what it is.
            (_, Some(_)) if (choice.tags || is_chosen(full)) && held(full)?.is_none() => (full.clone(), false),
            _ => continue,
        };
        out.push(RefMove { expected: held(&to)?, name: to, new: Some(*id), force });
    }
    if choice.prune {
        let noted = format!("{REMOTES}{name}/");
        for (branch, id) in repo.refs().list(&noted)? {
            if there.get(&format!("{HEADS}{branch}")).is_none() {
                out.push(RefMove { name: format!("{noted}{branch}"), expected: Some(id), new: None, force: true });
            }
        }
    }
    out.retain(|m| m.expected != m.new);
    Ok(out)
}

/// Fetches what is wanted, then moves the remote-tracking branches.
pub fn fetch_into(
    context: &Context,
    repo: &Repo,
    (name, remote): (&str, &Remote),
    peer: &dyn Peer,
    there: &Advertised,
    choice: Choice,
) -> Result<Fetched> {
    let moves = wanted(repo, name, there, &choice.within(remote))?;
    let mut tips: Vec<Id> = moves.iter().filter_map(|m| m.new).collect();
    tips.sort();
    tips.dedup();
    let only = (!remote.only.is_empty()).then(|| Filter::new(&remote.only)).transpose()?;
    let want = Want { tips, depth: remote.depth, only, partial: remote.partial, ..Want::default() };
    let received = match want.tips.is_empty() {
        true => Received::default(),
        false => receive(repo, peer, want, &context.bars).map_err(elsewhere(name))?,
    };
    let message = format!("fetch {name}");
    let done = note_refs(repo, moves, remote.partial, &message, &context.bars)?.into_iter();
    let moves = done.map(|(m, outcome)| outcome.map(|()| m)).collect::<std::result::Result<_, _>>()?;
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
