//! Pushes the objects that another repository is missing, then moves its refs.

use crate::{
    direct::read_stored,
    partial_pack,
    peer::{Advertised, Peer},
    sync::{Piece, RefMove, TransferPlan, Want},
};
use mdl_objects::Id;
use mdl_repo::{
    NOTES, Progress, Repo, RepoError, Result, WriteTransaction,
    pack::PackId,
    storage::{LocalStorage, Storage},
};
use std::collections::HashSet;
use tempfile::TempDir;

/// Commits that the other side is asked about at once.
const BATCH: usize = 256;

/// A ref that is to be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Full name there.
    pub name: String,
    /// The object it is to point at; none: it is deleted.
    pub new: Option<Id>,
    /// Whether it may leave commits behind.
    pub force: bool,
    /// Its expected value there; none: whatever is seen there. `Some(None)`: it must not exist.
    pub lease: Option<Option<Id>>,
}

/// A ref update, and its outcome.
pub type Outcome = (RefMove, Result<()>);

/// What was sent.
#[derive(Debug, Default)]
pub struct Pushed {
    /// Bytes of objects sent by this call; those of an earlier, interrupted one are not counted.
    pub sent: u64,
    /// Objects that the other side was missing.
    pub objects: u64,
    /// Refs and their outcomes: refused here or there, or moved. Those already up to date are left out.
    pub refs: Vec<Outcome>,
}

/// Sends versions and moves refs. A move that would leave commits behind and is not forced is refused alone: nothing is
/// sent for it.
///
/// # Errors
/// The other side is still missing something, cannot be reached, or refuses; an I/O error; `Stopped`. What has arrived
/// there need not be sent again.
pub fn push(repo: &Repo, peer: &dyn Peer, pushes: &[Push], message: &str, progress: &dyn Progress) -> Result<Pushed> {
    let there = peer.refs()?;
    let (moves, refused) = moves(repo, &there, pushes)?;
    let mut out = Pushed { refs: refused, ..Pushed::default() };
    if moves.is_empty() {
        return Ok(out);
    }
    let tips: Vec<Id> = moves.iter().filter_map(|m| m.new).collect();
    let mut want = Want { haves: haves(repo, peer, &there, &tips)?, tips, ..Want::default() };
    let done = match send_and_move(repo, peer, &want, &moves, message, progress, &mut out) {
        // Of versions pruned there the commits are haves, but not all their contents are there.
        Err(RepoError::NotFound { .. }) if !want.haves.is_empty() => {
            want.partial = true;
            send_and_move(repo, peer, &want, &moves, message, progress, &mut out)
        }
        done => done,
    };
    out.refs.extend(moves.into_iter().zip(done?));
    Ok(out)
}

fn send_and_move(
    repo: &Repo,
    peer: &dyn Peer,
    want: &Want,
    moves: &[RefMove],
    message: &str,
    progress: &dyn Progress,
    out: &mut Pushed,
) -> Result<Vec<Result<()>>> {
    if !want.tips.is_empty() {
        // What is being sent must stay.
        let _held = WriteTransaction::begin(repo)?;
        let plan = crate::sync::plan_transfer(repo, want, progress)?;
        let pruned = plan.pruned.clone();
        send(repo, peer, plan, progress, out)?;
        if !pruned.is_empty() {
            peer.note_pruned(&pruned)?;
        }
    }
    peer.move_refs(moves, message)
}

fn send(repo: &Repo, peer: &dyn Peer, mut plan: TransferPlan, progress: &dyn Progress, out: &mut Pushed) -> Result<()> {
    let ids: Vec<Id> = plan.ids().collect();
    let missing = peer.missing(&ids)?;
    let mut needed = plan.needed(&missing)?;
    let mut anew = None;
    if !needed.heavy.is_empty() {
        progress.begin("encoding tensors to stand alone", 0);
        let (made, offered) = Anew::encode(repo, &needed.heavy, progress)?;
        progress.end();
        anew = Some(made);
        plan = plan.with_whole(offered);
        needed = plan.needed(&missing)?;
    }
    out.objects += needed.records.len() as u64;
    let bundles = needed.bundles(peer.bundle_bytes());
    let read = |pieces: &[Piece]| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match (piece, &anew) {
                (Piece::Stored { pack, offset, len }, Some(anew)) if anew.packs.contains(pack) => {
                    let start = bytes.len();
                    bytes.resize(start + *len as usize, 0);
                    anew.storage.read_at(&pack.key(), *offset, &mut bytes[start..])?;
                }
                (piece, _) => bytes.extend(read_stored(repo, std::slice::from_ref(piece))?),
            }
        }
        Ok(bytes)
    };
    out.sent += peer.send(&bundles, &read, progress)?;
    Ok(())
}

/// Tensors encoded anew, for as long as they are being sent.
struct Anew {
    packs: HashSet<PackId>,
    storage: LocalStorage,
    _dir: TempDir,
}

impl Anew {
    fn encode(repo: &Repo, tensors: &[Id], progress: &dyn Progress) -> Result<(Anew, TransferPlan)> {
        let dir =
            TempDir::new_in(partial_pack::dir(repo)?).map_err(RepoError::io("cannot make a temporary directory"))?;
        let storage = LocalStorage::new(dir.path());
        let offered = crate::sync::plan_standalone(repo, tensors, &storage, progress)?;
        let anew = Anew { packs: offered.offers.iter().map(|o| o.pack).collect(), storage, _dir: dir };
        Ok((anew, offered))
    }
}

/// What is to be asked of the other side, and what is refused here already.
fn moves(repo: &Repo, there: &Advertised, pushes: &[Push]) -> Result<(Vec<RefMove>, Vec<Outcome>)> {
    let (mut out, mut refused) = (Vec::new(), Vec::new());
    for push in pushes {
        let found = there.get(&push.name);
        let made = RefMove {
            name: push.name.clone(),
            expected: found,
            new: push.new,
            force: push.force || push.lease.is_some(),
        };
        match refusal(repo, push, &made)? {
            Some(why) => refused.push((made, Err(why))),
            None if made.expected == made.new => {}
            None => out.push(made),
        }
    }
    Ok((out, refused))
}

/// Why a move is not to be asked for: the ref is not where it was last seen, or would leave commits behind.
fn refusal(repo: &Repo, push: &Push, made: &RefMove) -> Result<Option<RepoError>> {
    let found = made.expected;
    if let Some(expected) = push.lease.filter(|lease| *lease != found) {
        return Ok(Some(RepoError::Conflict { name: made.name.clone(), expected, found }));
    }
    let (Some(old), Some(new), false) = (found, made.new, made.force || found == made.new) else {
        return Ok(None);
    };
    crate::sync::loss(repo, &made.name, old, new, "exists there")
}

/// Commits of ours that the other side has: its refs, and where those say nothing, our history from the tips back to
/// the first that it knows.
fn haves(repo: &Repo, peer: &dyn Peer, there: &Advertised, tips: &[Id]) -> Result<Vec<Id>> {
    let mut out = Vec::new();
    let versions = || there.refs.iter().filter(|(name, _)| name != NOTES);
    for (_, id) in versions() {
        if repo.odb().has(id)? {
            out.push(mdl_repo::peel(repo, id)?);
        }
    }
    out.sort();
    out.dedup();
    if versions().count() == 0 || out.len() == versions().count() {
        return Ok(out);
    }
    // Another client has moved refs there; what they stand on may be ours.
    let starts = tips.iter().map(|t| mdl_repo::peel(repo, t)).collect::<Result<Vec<Id>>>()?;
    let mut history = mdl_repo::history(repo, &starts)?;
    loop {
        let batch = history.by_ref().take(BATCH).map(|s| s.map(|s| s.id));
        let batch = batch.collect::<Result<Vec<Id>>>()?;
        let known = peer.known(&batch)?;
        if let Some(first) = batch.iter().find(|id| known.contains(*id)) {
            out.push(*first);
            return Ok(out);
        }
        if batch.len() < BATCH {
            return Ok(out);
        }
    }
}
