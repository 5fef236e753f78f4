//! Idempotency keys: a commit request that is sent again because its answer was lost makes no second commit.
//!
//! The key is in the commit itself, next to hashes of what was sent with it: whatever happens to the server, a version
//! that is there has its key, and one that is not there has none. Only the last commits of a branch are looked at.

use crate::{
    api::commits::{
        meta::{IDEMPOTENCY, Meta},
        receive::Received,
    },
    registry::RepoKey,
    request::prelude::*,
    tasks::keyed_mutex::{KeyedGuard, KeyedMutex},
};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Semaphore;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY: usize = 255;
/// Latest commits of a branch that are searched for the key.
const RECENT: usize = 1000;
/// Commits that are made at a time.
const AT_ONCE: usize = 4;
const VERSION: &str = "v1";
/// Hexadecimal digits of a hash.
const DIGITS: usize = 32;

/// Commits that are being made.
#[derive(Debug)]
pub(crate) struct Commits {
    keys: KeyedMutex<(RepoKey, String)>,
    pub(super) turns: Arc<Semaphore>,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits { keys: KeyedMutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// A client's idempotency key, hashed with the commit's destination. Held exclusively as long as it lives.
#[derive(Debug)]
pub(super) struct Key {
    hash: String,
    /// Hashes of the request that has it.
    pub print: Fingerprint,
    _held: KeyedGuard,
}

/// Hashes of the request: its fields, and the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub meta: String,
    pub files: String,
}

/// A commit that was made with the key before.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub id: Id,
    pub print: Fingerprint,
}

/// Hashes parts, each with its length, so that they cannot run together.
fn hash<'a>(context: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex().chars().take(DIGITS).collect()
}

/// Returns the `Idempotency-Key` of a request.
pub(super) fn shown(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|v| !v.is_empty() && v.len() <= MAX_KEY);
    match (text, values.next()) {
        (Some(text), None) => Ok(Some(text.to_owned())),
        _ => Err(Problem::usage(format!("Idempotency-Key wants 1 to {MAX_KEY} visible characters, once"))),
    }
}

impl Commits {
    /// Claims a key that no other request has.
    pub(super) fn key(&self, shown: &str, repo: &RepoKey, branch: &str, meta: &Meta) -> Result<Key> {
        let parts = [repo.to_string(), branch.to_owned(), shown.to_owned()];
        let hash = hash("mdl 2026 idempotency key", parts.iter().map(String::as_bytes));
        let held = self.keys.try_lock((repo.clone(), hash.clone())).ok_or_else(|| {
            Problem::conflict("another request with this Idempotency-Key is under way")
                .hint("try again in a moment")
                .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        })?;
        let print = Fingerprint { meta: Fingerprint::of_meta(meta)?, files: String::new() };
        Ok(Key { hash, print, _held: held })
    }
}

impl Fingerprint {
    /// Hash of the fields.
    fn of_meta(meta: &Meta) -> Result<String> {
        let json = serde_json::to_vec(meta).map_err(Problem::internal)?;
        Ok(hash("mdl 2026 idempotency meta", [json.as_slice()]))
    }

    /// Hash of the files.
    pub(super) fn of_files(files: &BTreeMap<String, Received>) -> String {
        let parts =
            files.iter().flat_map(|(path, f)| [path.as_bytes(), &f.sha256, if f.executable { b"x" } else { b"-" }]);
        hash("mdl 2026 idempotency files", parts)
    }
}

impl Key {
    /// Returns the value that the commit holds under [`IDEMPOTENCY`].
    pub(super) fn record(&self) -> String {
        [VERSION, &self.hash, &self.print.meta, &self.print.files].join(" ")
    }

    fn read(&self, record: &str) -> Option<Fingerprint> {
        let mut words = record.split(' ');
        if words.next() != Some(VERSION) || words.next() != Some(&self.hash) {
            return None;
        }
        let (meta, files) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Fingerprint { meta, files })
    }

    /// Finds the commit that was made with this key among the last of the branch.
    pub(super) fn find(&self, repo: &Repo, branch: &str) -> Result<Option<Earlier>> {
        let Some(tip) = repo.refs().get(&RefName::branch(branch)?)? else {
            return Ok(None);
        };
        for step in mdl_repo::history(repo, &[tip])?.take(RECENT) {
            let step = step?;
            if let Some(print) = step.commit.meta.get(IDEMPOTENCY).and_then(|r| self.read(r)) {
                return Ok(Some(Earlier { id: step.id, print }));
            }
        }
        Ok(None)
    }
}

impl Earlier {
    /// Refuses a different commit with the same key.
    pub(super) fn refuse_other(&self, same: bool) -> Result<()> {
        if same {
            return Ok(());
        }
        Err(Problem::refused("this Idempotency-Key was used for another commit")
            .hint("take a new key for each commit, and the same one only to send the same again"))
    }
}
