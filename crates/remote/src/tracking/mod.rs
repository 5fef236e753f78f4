//! Fetches what a noted remote has: which of its branches and tags are wanted, and where they are noted here.

pub mod notes;

use crate::{
    fetch::{Received, note_refs, receive},
    peer::{Advertised, Peer},
    sync::{Filter, RefMove, Want},
};
use mdl_objects::Id;
use mdl_repo::{HEADS, Missing, Progress, REMOTES, RefName, Remote, Repo, RepoError, Result, TAGS};

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
            found.ok_or_else(|| RepoError::not_found(Missing::Branch, format!("{short} at {name}")))
        };
        self.branches.iter().map(full).collect()
    }
}

/// The refs of a remote that are wanted, as they are to be noted here; those that are as noted are left out.
///
/// # Errors
/// A branch or tag that is not there; refs that cannot be read.
pub fn wanted(
    repo: &Repo,
    (name, remote): (&str, &Remote),
    there: &Advertised,
    choice: Choice,
) -> Result<Vec<RefMove>> {
    let choice = choice.within(remote);
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

/// Receives what the refs in `moves` need, as much of it as the remote's depth and patterns say.
///
/// # Errors
/// As [`receive`].
pub fn receive_wanted(
    repo: &Repo,
    remote: &Remote,
    peer: &dyn Peer,
    moves: &[RefMove],
    progress: &dyn Progress,
) -> Result<Received> {
    let mut tips: Vec<Id> = moves.iter().filter_map(|m| m.new).collect();
    tips.sort();
    tips.dedup();
    let only = (!remote.only.is_empty()).then(|| Filter::new(&remote.only)).transpose()?;
    let want = Want { tips, depth: remote.depth, only, partial: remote.partial, ..Want::default() };
    if want.tips.is_empty() { Ok(Received::default()) } else { receive(repo, peer, want, progress) }
}

/// Notes where the remote's refs stand, once what they need is here; returns the moves.
///
/// # Errors
/// A ref that was moved here meanwhile; something that it needs is not here; an I/O error.
pub fn note_wanted(
    repo: &Repo,
    (name, remote): (&str, &Remote),
    moves: Vec<RefMove>,
    progress: &dyn Progress,
) -> Result<Vec<RefMove>> {
    let done = note_refs(repo, moves, remote.partial, &format!("fetch {name}"), progress)?;
    done.into_iter().map(|(m, outcome)| outcome.map(|()| m)).collect()
}
