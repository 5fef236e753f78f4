//! Copies a repository from one storage into another: packs first, then refs.

use crate::{config::FORMAT_KEY, identity, repo::Repo};
use mdl_store::{
    Progress, RepoError, Result,
    pack::PACK_DIR,
    refs::REFS,
    storage::{Key, Storage, StoredKey},
    transaction::WriteTransaction,
};

/// Bytes that are copied at once.
const PART: u64 = 8 << 20;
/// Single values that come along. Reflogs and what is under repair are the original's own.
const VALUES: [Key; 3] = [Key::fixed("config"), Key::fixed("HEAD"), Key::fixed("pruned")];

/// Copies all versions, branches, tags, settings and policies into an empty storage. That is a repository when this
/// is done, and none if it is cut off.
///
/// # Errors
/// The target is a repository already; an I/O error on either side.
pub fn copy_to(repo: &Repo, target: &dyn Storage, progress: &dyn Progress) -> Result<()> {
    if target.get(&FORMAT_KEY)?.is_some() {
        return Err(RepoError::user("there is a repository already", "name another directory"));
    }
    // Keeps collectors out: what is listed stays. Refs are read before packs are listed, so that these hold what
    // those point at.
    let transaction = WriteTransaction::begin(repo)?;
    let named: Vec<Key> = repo.storage().list(&REFS)?.into_iter().map(|s| s.key).collect();
    let keys = VALUES.into_iter().chain(named);
    let values: Vec<(Key, Option<Vec<u8>>)> =
        keys.map(|key| repo.storage().get(&key).map(|value| (key, value))).collect::<Result<_>>()?;
    let packs = repo.storage().list(&PACK_DIR)?;
    progress.begin("copying", packs.iter().map(|p| p.size).sum());
    for pack in &packs {
        copy(repo.storage(), target, pack, progress)?;
    }
    transaction.revalidate()?;
    for (key, value) in &values {
        if let Some(value) = value {
            target.put(key, value)?;
        }
    }
    // A copy is another repository.
    identity::make(target)?;
    if let Some(format) = repo.storage().get(&FORMAT_KEY)? {
        target.put(&FORMAT_KEY, &format)?;
    }
    progress.end();
    Ok(())
}

fn copy(from: &dyn Storage, to: &dyn Storage, file: &StoredKey, progress: &dyn Progress) -> Result<()> {
    let mut upload = to.upload()?;
    let mut part = vec![0; file.size.min(PART) as usize];
    let mut at = 0;
    while at < file.size {
        let len = (file.size - at).min(PART) as usize;
        from.read_at(&file.key, at, &mut part[..len])?;
        upload.write(&part[..len])?;
        at += len as u64;
        progress.advance(len as u64);
    }
    upload.finish(&file.key)
}
