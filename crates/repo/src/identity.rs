//! A repository's unique id: made once, kept in its own storage, and never sent: what a server keeps for one repository
//! it must not show to the next one of the same name.

use crate::config::FORMAT_KEY;
use mdl_store::{
    RepoError, Result,
    storage::{Key, Storage, Swap},
};
use std::{fmt, fs, io, os::unix::fs::MetadataExt, path::Path, str::FromStr};

const KEY: Key = Key::fixed("identity");
const BYTES: usize = 16;
const CONTEXT: &str = "mdl 2026-11-22 repository identity v1";

/// A repository's identity, whatever its name. No two have the same, unless one is a copy of the other's files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity([u8; BYTES]);

impl Identity {
    fn random() -> Result<Identity> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|e| RepoError::io("no random bytes")(io::Error::other(e.to_string())))?;
        Ok(Identity(bytes))
    }

    /// An identity derived from bytes, for a storage that cannot store one.
    pub fn derived_from(bytes: &[u8]) -> Identity {
        let mut hash = [0; BYTES];
        blake3::Hasher::new_derive_key(CONTEXT).update(bytes).finalize_xof().fill(&mut hash);
        Identity(hash)
    }

    /// The identity of a local repository from before there were identities: from the file that made it a repository.
    /// It is the same whether or not it can be stored.
    fn of_directory(dir: &Path) -> Option<Identity> {
        let made = fs::metadata(dir.join(FORMAT_KEY.as_str())).ok()?;
        let facts = [made.dev(), made.ino(), made.mtime() as u64, made.mtime_nsec() as u64];
        Some(Identity::derived_from(&facts.map(u64::to_le_bytes).concat()))
    }

    fn text(self) -> Vec<u8> {
        format!("{self}\n").into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Identity> {
        let text = std::str::from_utf8(bytes).ok().and_then(|t| t.strip_suffix('\n'));
        let damaged = || RepoError::corrupt(KEY.as_str(), "not 32 hexadecimal digits and a line feed");
        text.ok_or_else(damaged)?.parse().map_err(|()| damaged())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Identity, ()> {
        let mut bytes = [0; BYTES];
        let is_lower = !text.bytes().any(|b| b.is_ascii_uppercase());
        hex::decode_to_slice(text, &mut bytes).ok().filter(|()| is_lower).map(|()| Identity(bytes)).ok_or(())
    }
}

/// Gives a new repository its identity.
pub(crate) fn make(storage: &dyn Storage) -> Result<()> {
    storage.put(&KEY, &Identity::random()?.text())
}

/// The identity that a storage holds; `first` is stored if there is none. Where several processes do that at once, one
/// wins.
fn load(storage: &dyn Storage, first: Identity) -> Result<Identity> {
    if let Some(bytes) = storage.get(&KEY)? {
        return Identity::parse(&bytes);
    }
    match storage.swap(&KEY, None, Some(&first.text()))? {
        Swap::Done => Ok(first),
        Swap::Lost(Some(bytes)) => Identity::parse(&bytes),
        Swap::Lost(None) => Err(RepoError::corrupt(KEY.as_str(), "it comes and goes")),
    }
}

fn is_refused(error: &RepoError) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error, RepoError::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
}

/// The identity of the repository in a storage. One from before there were identities is given one, now and for good;
/// one that cannot be written to has the same each time as long as the files of its directory stay where they are.
///
/// # Errors
/// The identity is damaged; an I/O error, or refuses where nothing else tells the repository from others.
pub(crate) fn identify(storage: &dyn Storage, dir: Option<&Path>) -> Result<Identity> {
    let derived = dir.and_then(Identity::of_directory);
    let first = derived.map_or_else(Identity::random, Ok)?;
    match (load(storage, first), derived) {
        (Err(e), Some(derived)) if is_refused(&e) => Ok(derived),
        (found, _) => found,
    }
}

/// The directory's identity where none is stored, so that none is written.
pub(crate) fn derive(storage: &dyn Storage, dir: Option<&Path>) -> Result<Option<Identity>> {
    let stored = storage.get(&KEY)?;
    Ok(dir.filter(|_| stored.is_none()).and_then(Identity::of_directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::Repo;
    use mdl_codec::CpuEngine;
    use mdl_store::storage::MemoryStorage;
    use std::{fs, sync::Arc};

    fn open(path: &Path) -> Repo {
        Repo::open(path, Arc::new(CpuEngine::new())).expect("a repository")
    }

    fn init(path: &Path) -> Repo {
        Repo::init(path, true, "main", Arc::new(CpuEngine::new())).expect("a repository").0
    }

    #[test]
    fn one_that_is_only_read_is_given_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, index) = (dir.path().join("r"), dir.path().join("index"));
        init(&path);
        fs::remove_file(path.join(KEY.as_str())).expect("removed");
        let read = || Repo::open_with_index(&path, Arc::new(CpuEngine::new()), index.clone()).expect("a repository");
        let first = read().identity().expect("an identity");
        assert!(!path.join(KEY.as_str()).exists());
        assert_eq!(read().identity().expect("an identity"), first);
        assert_eq!(open(&path).identity().expect("an identity"), first, "the one that is written down is the same");
    }

    #[test]
    fn an_identity_stays_and_a_repository_in_the_same_place_has_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r");
        let first = init(&path).identity().expect("an identity");
        assert_eq!(open(&path).identity().expect("an identity"), first);
        assert_eq!(first.to_string().parse(), Ok(first));
        fs::remove_dir_all(&path).expect("removed");
        assert_ne!(init(&path).identity().expect("an identity"), first);
    }

    #[test]
    fn a_repository_from_before_is_given_one_for_good() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r");
        drop(init(&path));
        fs::remove_file(path.join(KEY.as_str())).expect("as it was before");
        let (one, other) = (open(&path), open(&path));
        let first = one.identity().expect("an identity");
        assert_eq!(other.identity().expect("an identity"), first);
        assert_eq!(fs::read(path.join(KEY.as_str())).expect("a file"), first.text());
    }

    #[test]
    fn of_many_that_make_one_at_once_all_have_the_same() {
        let storage = Arc::new(MemoryStorage::default());
        Repo::init_storage(storage.clone(), "main", Arc::new(CpuEngine::new())).expect("a repository");
        storage.delete(&KEY).expect("deleted");
        let one = |_| load(&*storage, Identity::random().expect("bytes")).expect("an identity");
        let found: Vec<Identity> = std::thread::scope(|s| {
            let all: Vec<_> = (0..8).map(|n| s.spawn(move || one(n))).collect();
            all.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
    }

    #[test]
    fn what_cannot_be_written_has_the_same_one_each_time_and_keeps_it_when_it_can() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r");
        drop(init(&path));
        fs::remove_file(path.join(KEY.as_str())).expect("as it was before");
        let derived = Identity::of_directory(&path).expect("a file");
        let refused = RepoError::io("x")(io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(is_refused(&refused) && !is_refused(&RepoError::io("x")(io::ErrorKind::StorageFull.into())));
        assert_eq!(open(&path).identity().expect("an identity"), derived);
    }

    #[test]
    fn a_damaged_identity_is_told_of() {
        for bad in ["", "0123", "zz", "0123456789abcdef0123456789ABCDEF\n", "0123456789abcdef0123456789abcdef"] {
            assert!(Identity::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
