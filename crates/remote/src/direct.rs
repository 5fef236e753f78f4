//! Direct peer: a repository whose storage can be read and written from here, in another directory or a bucket.

use crate::{
    partial_pack,
    peer::{Advertised, Peer, ReadPart, Take, nonsense},
    sync::{Arrived, Bundle, Piece, RefMove, TransferPlan, WHAT, Want, groups},
};
use mdl_objects::Id;
use mdl_repo::{HEADS, NOTES, Progress, PrunedMark, RefName, Repo, RepoError, Result, TAGS, pack::PackId};
use mdl_store::progress::go_on;
use rayon::prelude::*;
use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

/// A bundle becomes a pack of its own, and a transfer that was cut off goes on with the next one: about as much is sent
/// twice.
const BUNDLE: u64 = 64 << 20;
/// Bytes of bundles that are checked together: what their deltas stand on is decoded once for all of them.
const TOGETHER: u64 = 1 << 30;
/// Bytes of a bundle that are in memory at once.
const PART: u64 = 8 << 20;

/// A repository over a storage.
#[derive(Debug)]
pub struct DirectPeer {
    repo: Repo,
    /// Where bundles are put together before they are stored.
    scratch: PathBuf,
}

impl DirectPeer {
    /// A repository, with a local directory for bundles on their way there.
    pub fn new(repo: Repo, scratch: &Path) -> DirectPeer {
        DirectPeer { repo, scratch: scratch.to_owned() }
    }

    /// The repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    fn write(&self, bundle: &Bundle, read: &ReadPart<'_>, progress: &dyn Progress) -> Result<Arrived> {
        let path = partial_pack::dir_below(&self.scratch)?.join(format!("{}.bundle", bundle.id));
        let failed = || RepoError::io(format!("cannot write {}", path.display()));
        let mut file = File::create(&path).map_err(failed())?;
        let mut at = 0;
        while at < bundle.size {
            go_on(progress, WHAT)?;
            let bytes = read(&bundle.pieces(at..at + PART))?;
            if bytes.is_empty() {
                return Err(nonsense("a bundle ends before its end"));
            }
            file.write_all(&bytes).map_err(failed())?;
            at += bytes.len() as u64;
            progress.advance(bytes.len() as u64);
        }
        Ok(Arrived { id: bundle.id, path })
    }
}

impl Peer for DirectPeer {
    fn refs(&self) -> Result<Advertised> {
        let refs = self.repo.refs();
        let head = refs.head()?.branch().map(str::to_owned);
        let mut all = Vec::new();
        for prefix in [HEADS, TAGS] {
            all.extend(refs.list(prefix)?.into_iter().map(|(short, id)| (format!("{prefix}{short}"), id)));
        }
        let notes = refs.get(&RefName::parse(NOTES)?)?;
        all.extend(notes.map(|id| (NOTES.to_owned(), id)));
        all.sort();
        Ok(Advertised { head, refs: all })
    }

    fn plan(&self, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
        crate::sync::plan_transfer(&self.repo, want, progress)
    }

    fn plan_standalone(&self, _tensors: &[Id], _progress: &dyn Progress) -> Result<Option<TransferPlan>> {
        // There is no server at the other side: encoding anew would want the same bytes here first.
        Ok(None)
    }

    fn read(&self, pieces: &[Piece], take: &mut Take<'_>) -> Result<()> {
        take(&read_stored(&self.repo, pieces)?)
    }

    fn missing(&self, ids: &[Id]) -> Result<HashSet<Id>> {
        missing_here(&self.repo, ids)
    }

    fn known(&self, commits: &[Id]) -> Result<HashSet<Id>> {
        crate::sync::held_of(&self.repo, commits)
    }

    fn bundle_bytes(&self) -> u64 {
        BUNDLE
    }

    fn send(&self, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
        progress.begin("sending", bundles.iter().map(|b| b.size).sum());
        let mut left = Vec::new();
        for bundle in bundles {
            let ids: Vec<Id> = bundle.records.iter().map(|r| r.id).collect();
            // As a rule nothing of it is there, or, after a transfer that was cut off, all of it.
            if self.missing(&ids)?.is_empty() { progress.advance(bundle.size) } else { left.push(bundle) }
        }
        for group in groups(&left, TOGETHER, |b| b.size) {
            let arrived = group.iter().map(|bundle| self.write(bundle, read, progress));
            crate::sync::receive_pack(&self.repo, &arrived.collect::<Result<Vec<_>>>()?, None, &mdl_repo::Silent)?;
        }
        let sent = left.iter().map(|b| b.size).sum();
        progress.end();
        Ok(sent)
    }

    fn note_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()> {
        crate::sync::receive_pruned(&self.repo, pruned)
    }

    fn move_refs(&self, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>> {
        crate::sync::receive_refs(&self.repo, moves, false, None, message, &mdl_repo::Silent)
    }
}

/// Pieces of a bundle, end to end, those in packs read from a repository.
pub fn read_stored(repo: &Repo, pieces: &[Piece]) -> Result<Vec<u8>> {
    let total: u64 = pieces.iter().map(Piece::byte_len).sum();
    let mut out = vec![0; usize::try_from(total).map_err(|_| nonsense("a part is too large"))?];
    let mut rest = out.as_mut_slice();
    let mut jobs = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (here, later) = rest.split_at_mut(piece.byte_len() as usize);
        rest = later;
        jobs.push((piece, here));
    }
    jobs.into_par_iter().try_for_each(|(piece, buf)| match piece {
        Piece::Bytes(bytes) => {
            buf.copy_from_slice(bytes);
            Ok(())
        }
        Piece::Stored { pack, offset, .. } => repo.storage().read_at(&PackId::key(pack), *offset, buf),
    })?;
    Ok(out)
}

/// Which of these objects a repository is missing.
pub fn missing_here(repo: &Repo, ids: &[Id]) -> Result<HashSet<Id>> {
    repo.odb().refresh();
    let lacks = |id: &Id| -> Result<Option<Id>> { Ok((!repo.odb().contains(id)?).then_some(*id)) };
    ids.iter().filter_map(|id| lacks(id).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_full_and_hold_everything_in_its_order() {
        let cut = |sizes: &[u64]| -> Vec<Vec<u64>> { groups(sizes, 10, |n| *n).iter().map(|g| g.to_vec()).collect() };
        assert!(cut(&[]).is_empty());
        assert_eq!(cut(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(cut(&[11, 3, 12, u64::MAX, 10]), [vec![11], vec![3], vec![12], vec![u64::MAX], vec![10]]);
    }
}
