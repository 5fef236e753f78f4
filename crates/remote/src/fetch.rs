//! Fetches missing objects from another repository.
//!
//! Order: parts into partial packs; each object checked, decoded and hashed; packs stored; marks of pruned versions
//! noted; refs moved. A kill between any two leaves the old refs, and parts that need not be fetched again.

use crate::{
    direct::missing_here,
    partial_pack::{self, PartialPack},
    peer::Peer,
    streams,
    sync::{Arrived, Bundle, RefMove, TransferPlan, WHAT, Want},
};
use mdl_repo::{ErrorKind, Progress, Repo, RepoError, Result};
use mdl_store::progress::go_on;
use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

/// Longest pack that is received: collections and transfers later handle packs one by one.
const BUNDLE: u64 = 1 << 30;
/// Most commits that are named to the other side as haves.
const HAVES: usize = 512;

/// What a fetch received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes transferred by this call; those of an earlier, interrupted one are not counted.
    pub carried: u64,
    /// Objects that were not here before.
    pub objects: u64,
    /// Their encoded bytes.
    pub bytes: u64,
}

/// Fetches everything that `want` names and this repository is missing. Its `haves` are filled in here.
///
/// # Errors
/// The other side lacks a tip, cannot be reached, or refuses; what came is not what it says it is; an I/O error;
/// `Stopped`. No ref has moved; what came whole need not come again.
pub fn receive(repo: &Repo, peer: &dyn Peer, mut want: Want, progress: &dyn Progress) -> Result<Received> {
    if want.haves.is_empty() && !want.tips.is_empty() {
        want.haves = crate::sync::haves(repo, HAVES)?;
    }
    match receive_once(repo, peer, &want, progress) {
        // Of versions pruned here the commits are haves, but not all their contents are here; or a collection there has
        // replaced the packs that the plan named.
        Err(RepoError::NotFound { .. }) => {
            want.partial = want.partial || !want.haves.is_empty();
            receive_once(repo, peer, &want, progress)
        }
        done => done,
    }
}

fn receive_once(repo: &Repo, peer: &dyn Peer, want: &Want, progress: &dyn Progress) -> Result<Received> {
    let plan = peer.plan(want, progress)?;
    let pruned = plan.pruned.clone();
    let received = receive_plan(repo, peer, plan, progress)?;
    // Only now it shows which contents are really not here.
    crate::sync::receive_pruned(repo, &pruned)?;
    let hollow = want.depth.is_some() || want.only.is_some();
    crate::sync::check_connected(repo, &want.tips, hollow, progress)?;
    Ok(received)
}

fn receive_plan(repo: &Repo, peer: &dyn Peer, mut plan: TransferPlan, progress: &dyn Progress) -> Result<Received> {
    let missing = missing_here(repo, &plan.ids().collect::<Vec<_>>())?;
    let mut needed = plan.needed(&missing)?;
    if !needed.heavy.is_empty()
        && let Some(whole) = peer.plan_standalone(&needed.heavy, progress)?
    {
        plan = plan.with_whole(whole);
        needed = plan.needed(&missing)?;
    }
    let bundles = needed.bundles(BUNDLE);
    let dir = partial_pack::dir(repo)?;
    progress.begin("receiving", bundles.iter().map(|b| b.size).sum());
    let carried = AtomicU64::new(0);
    let packs = bundles.iter().map(|b| complete(&dir, peer, b, &carried, progress)).collect::<Result<Vec<_>>>()?;
    progress.end();
    let arrived: Vec<Arrived> = packs.iter().filter_map(PartialPack::arrived).collect();
    let taken = crate::sync::receive_pack(repo, &arrived, None, progress);
    // What is kept to go on with must not be what is wrong: it would be wrong every time.
    let of_no_use = taken.as_ref().err().is_some_and(|e| e.kind() == ErrorKind::Corrupt);
    if taken.is_ok() || of_no_use {
        packs.into_iter().for_each(PartialPack::clear);
    }
    partial_pack::tidy(&dir);
    let taken = taken?;
    Ok(Received { carried: carried.into_inner(), objects: taken.objects, bytes: taken.bytes })
}

/// Brings over what is not here yet of a bundle.
fn complete(
    dir: &Path,
    peer: &dyn Peer,
    bundle: &Bundle,
    carried: &AtomicU64,
    progress: &dyn Progress,
) -> Result<PartialPack> {
    let pack = PartialPack::open(dir, bundle.id, bundle.size)?;
    let gaps = pack.missing();
    let lacks: u64 = gaps.iter().map(|gap| pack.lacks(*gap)).sum();
    progress.advance(bundle.size - lacks);
    streams::each(&gaps, |gap| {
        let range = pack.range(gap.part);
        let mut at = gap.from;
        peer.read(&bundle.pieces(range.start + at..range.end), &mut |bytes| {
            go_on(progress, WHAT)?;
            pack.put(gap.part, at, bytes)?;
            let n = bytes.len() as u64;
            at += n;
            carried.fetch_add(n, Ordering::Relaxed);
            progress.advance(n);
            Ok(())
        })
    })?;
    Ok(pack)
}

/// Moves what this repository notes of another place: `refs/remotes/NAME/...`, and tags. What became of each is
/// returned with it.
pub fn note_refs(
    repo: &Repo,
    moves: Vec<RefMove>,
    partial: bool,
    message: &str,
    progress: &dyn Progress,
) -> Result<Vec<(RefMove, Result<()>)>> {
    let who = repo.config().signature();
    let done = crate::sync::receive_refs(repo, &moves, partial, Some(&who), message, progress)?;
    Ok(moves.into_iter().zip(done).collect())
}
