//! A version's files and directories as JSON entries of the Hugging Face Hub.
//!
//! All but small text files are shown as LFS: their `oid` is the git blob id of the LFS pointer. Where the digests are
//! not known in time an entry has no `lfs`, and 40 digits of our own id for an `oid`: clients want forty, and compare
//! them only when they are asked to verify.

use crate::{
    content::{self, Digests, Reader},
    problem::Result,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use mdl_objects::{Entry, Id, Mode, Tree};
use mdl_repo::Odb;
use serde::Serialize;
use sha1::{Digest, Sha1};
use std::{
    cmp::Ordering,
    time::{Duration, Instant},
};

/// Files from this size on are shown as LFS, whatever is in them.
pub(super) const LARGE: u64 = 1 << 20;
/// How long a page may wait for all its files' digests.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
/// Files of a page whose digests are asked for at a time.
const AT_A_TIME: usize = 4;
/// Most nested directories, as in `mdl-repo`.
const MAX_DEPTH: usize = 256;

/// A file or directory with its path.
pub(super) type PathEntry = (String, Entry);

/// The LFS part of a file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lfs {
    pub(super) oid: String,
    /// The same, as descriptions of models have it.
    pub(super) sha256: String,
    pub(super) size: u64,
    #[serde(rename = "pointerSize")]
    pub(super) pointer_size: usize,
}

/// A file or directory, as trees list it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Item {
    pub(super) r#type: &'static str,
    pub(super) oid: String,
    pub(super) size: u64,
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lfs: Option<Lfs>,
    #[serde(rename = "lastCommit", skip_serializing_if = "Option::is_none")]
    pub(super) last_commit: Option<super::history::LastCommit>,
}

/// Returns whether a stored file is shown as LFS.
pub(super) fn is_lfs(entry: &Entry) -> bool {
    entry.mode == Mode::Manifest || entry.size >= LARGE
}

/// Returns the git-lfs pointer of a file.
fn pointer(sha256: &str, size: u64) -> String {
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n")
}

fn git_blob(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex::encode(hasher.finalize())
}

/// A digest in 64 lower-case hexadecimal digits, as LFS names objects.
pub(crate) fn sha256_of(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    hex::decode_to_slice(text, &mut out).ok()?;
    (!text.bytes().any(|b| b.is_ascii_uppercase())).then_some(out)
}

/// A file or directory as it is listed, with what is known of it.
fn item((path, entry): PathEntry, digests: Option<Digests>) -> Item {
    let mut item =
        Item { r#type: "file", oid: super::short(&entry.id), size: entry.size, path, lfs: None, last_commit: None };
    match digests {
        _ if entry.mode == Mode::Tree => (item.r#type, item.size) = ("directory", 0),
        Some(digests) if is_lfs(&entry) => {
            let sha256 = hex::encode(digests.sha256);
            let text = pointer(&sha256, entry.size);
            item.oid = git_blob(text.as_bytes());
            item.lfs = Some(Lfs { oid: sha256.clone(), sha256, size: entry.size, pointer_size: text.len() });
        }
        Some(digests) => item.oid = hex::encode(digests.git),
        None => {}
    }
    item
}

/// Describes files and directories; waits a little for digests that are not known yet.
pub(super) async fn describe(reader: &Reader, found: Vec<PathEntry>) -> Result<Vec<Item>> {
    let end = Instant::now() + WAIT_LIMIT;
    let described = stream::iter(found).map(|found| async move {
        let digests = match found.1.mode {
            Mode::Tree => None,
            _ => content::digests(reader, &found.1, end.saturating_duration_since(Instant::now())).await?,
        };
        Ok(item(found, digests))
    });
    described.buffered(AT_A_TIME).try_collect().await
}

/// The file or directory at a path below a tree; none: there is nothing. The empty path is no entry.
pub(crate) fn find(odb: &Odb, tree: &Id, path: &str) -> mdl_repo::Result<Option<Entry>> {
    let (mut tree, mut found) = (*tree, None::<Entry>);
    for part in path.split('/').take(MAX_DEPTH) {
        match found.take() {
            Some(dir) if dir.mode == Mode::Tree => tree = dir.id,
            Some(_) => return Ok(None),
            None => {}
        }
        match odb.tree(&tree)?.get(part) {
            Some(entry) => found = Some(entry.clone()),
            None => return Ok(None),
        }
    }
    Ok(found.filter(|_| path.split('/').count() <= MAX_DEPTH))
}

/// A page of what is below a tree: each directory, then (if `recursive`) what is in it.
pub(super) struct Page<'a> {
    pub(super) odb: &'a Odb,
    pub(super) recursive: bool,
    pub(super) limit: usize,
    pub(super) found: Vec<PathEntry>,
}

impl Page<'_> {
    /// Takes what follows `after` (the parts of a path; none: everything) until the page is full. Returns whether there
    /// is more.
    pub(super) fn fill(&mut self, tree: &Id, prefix: &str, after: Option<&[&str]>) -> mdl_repo::Result<bool> {
        if prefix.bytes().filter(|b| *b == b'/').count() > MAX_DEPTH {
            return Err(mdl_repo::RepoError::corrupt(format!("tree {}", tree.short()), "directories nest too deep"));
        }
        let Tree { entries } = self.odb.tree(tree)?;
        for entry in entries {
            let below = match after.and_then(<[_]>::split_first) {
                Some((first, rest)) => match entry.name.as_str().cmp(first) {
                    Ordering::Less => continue,
                    Ordering::Equal => Some(rest),
                    Ordering::Greater => None,
                },
                None => None,
            };
            let path = format!("{prefix}{}", entry.name);
            let (dir, id) = (entry.mode == Mode::Tree, entry.id);
            if below.is_none() {
                if self.found.len() == self.limit {
                    return Ok(true);
                }
                self.found.push((path.clone(), entry));
            }
            if dir && self.recursive && self.fill(&id, &format!("{path}/"), below)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_git_and_lfs_give() {
        assert_eq!(git_blob(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(git_blob(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
        let sha256 = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
        assert_eq!(pointer(sha256, 12345).len(), 130);
        assert_eq!(hex::encode(sha256_of(sha256).expect("a digest")), sha256);
        for bad in ["", "4d7a", &sha256.to_uppercase(), &format!("{sha256}0"), &"é".repeat(32)] {
            assert!(sha256_of(bad).is_none(), "{bad:?}");
        }
    }
}
