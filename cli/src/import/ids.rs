//! Ids by which other systems know contents: SHA-256 (git-lfs), MD5 (DVC, W&B), and git's of blobs.

use super::bad;
use crate::commands::prelude::*;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::{collections::HashSet, fs::File, io::Read, time::SystemTime};

const BUFFER: usize = 1 << 20;

/// How an id is made of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    Sha256,
    Md5,
    /// Of `blob LENGTH\0` and the bytes, by SHA-1 or, where a repository says so, SHA-256.
    GitBlob,
}

/// Contents that were checked, so that one that many versions have is read once.
#[derive(Debug, Default)]
pub struct Verified(HashSet<VerifiedFile>);

/// A file as it looked when it had an id.
type VerifiedFile = (PathBuf, u64, SystemTime, String);

impl Verified {
    /// Checks that a file has an id (in hexadecimal digits), and returns its length.
    ///
    /// # Errors
    /// It has another one; it is not there; an I/O error.
    pub fn check(&mut self, path: &Path, hash: Hash, id: &str, what: &str) -> Result<u64> {
        let meta = std::fs::metadata(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let known = (path.to_owned(), meta.len(), changed, id.to_owned());
        if self.0.contains(&known) {
            return Ok(meta.len());
        }
        let found = of_file(path, hash, id.len())?;
        if !found.eq_ignore_ascii_case(id) {
            let message = format!("{what} is damaged: {} has the id {found}, not {id}", path.display());
            return Err(bad(message, "fetch it again with the tool that it is from; what was imported so far stays"));
        }
        self.0.insert(known);
        Ok(meta.len())
    }
}

fn of_file(path: &Path, hash: Hash, digits: usize) -> Result<String> {
    let failed = || RepoError::io(format!("cannot read {}", path.display()));
    let mut file = File::open(path).map_err(failed())?;
    let head = match hash {
        Hash::GitBlob => format!("blob {}\0", file.metadata().map_err(failed())?.len()),
        Hash::Sha256 | Hash::Md5 => String::new(),
    };
    let done = match hash {
        Hash::Md5 => feed::<Md5>(&mut file, &head),
        Hash::GitBlob if digits == 40 => feed::<Sha1>(&mut file, &head),
        Hash::Sha256 | Hash::GitBlob => feed::<Sha256>(&mut file, &head),
    };
    Ok(done.map_err(failed())?)
}

fn feed<D: Digest>(file: &mut File, head: &str) -> std::io::Result<String> {
    let mut hasher = D::new();
    hasher.update(head);
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// MD5 of bytes, in hexadecimal digits.
pub fn md5_hex(bytes: &[u8]) -> String {
    hex::encode(Md5::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_other_tools() {
        let dir = tempfile::TempDir::new().expect("temp");
        let path = dir.path().join("hello");
        std::fs::write(&path, "hello\n").expect("write");
        let ids = [
            (Hash::Sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"),
            (Hash::Md5, "b1946ac92492d2347c6235b4d2611184"),
            // `git hash-object hello`
            (Hash::GitBlob, "ce013625030ba8dba906f756967f9e9ca394464a"),
        ];
        let mut verified = Verified::default();
        for (hash, id) in ids {
            assert_eq!(verified.check(&path, hash, id, "it").expect("the same"), 6);
            let other = id.replace(['0', '1'], "2");
            let error = verified.check(&path, hash, &other, "it").expect_err("another one");
            assert!(error.message().contains(id), "{}", error.message());
        }
    }
}
