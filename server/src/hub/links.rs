//! Signed upload URLs, one per LFS object: the Hugging Face clients upload without a token.

use crate::{
    app::App,
    auth::{Caller, Scope},
    problem::{Problem, Result, storage_failed},
    process::state,
    registry::RepoKey,
};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::Sha256;
use std::{fmt, fs, path::Path};

const FILE: &str = "links.key";
const KEY_BYTES: usize = 32;
/// Lifetime of a link: an upload of hundreds of files takes long, and its last link is as old as its first.
pub(super) const SECONDS: i64 = 24 * 3600;

/// Signs and checks links. The key is stored, so that links stay valid after a restart.
pub(crate) struct Links {
    key: Vec<u8>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Links")
    }
}

/// The query parameters of a link.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Grant {
    /// Length of the object.
    pub(super) size: Option<u64>,
    /// When it ends: seconds since 1970.
    until: Option<i64>,
    /// Id of the token it was made for.
    pub(super) by: Option<String>,
    /// Signature of this server.
    pub(super) sig: Option<String>,
}

impl Links {
    /// With the key in the server's directory, made if there is none.
    pub(crate) fn new(state_dir: &Path) -> Result<Links> {
        let path = state_dir.join(FILE);
        let _lock = state::lock(&path)?;
        match fs::read(&path) {
            Ok(key) if key.len() == KEY_BYTES => return Ok(Links { key }),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Problem::internal(format!("{FILE}: {e}"))),
        }
        let mut key = vec![0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|e| Problem::internal(format!("no random bytes: {e}")))?;
        state::write_private(&path, &key).map_err(storage_failed)?;
        Ok(Links { key })
    }

    fn mac(&self, repo: &RepoKey, oid: &str, grant: &Grant) -> Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).map_err(Problem::internal)?;
        let (size, until) = (grant.size.unwrap_or(0), grant.until.unwrap_or(0));
        let by = grant.by.as_deref().unwrap_or_default();
        let identity = repo.identity;
        mac.update(format!("put\n{repo}\n{identity}\n{oid}\n{size}\n{until}\n{by}").as_bytes());
        Ok(mac)
    }

    /// Returns the parameters of a link that allows uploading an object with this caller's rights.
    pub(super) fn grant(&self, caller: &Caller, repo: &RepoKey, oid: &str, size: u64) -> Result<String> {
        let mut text = format!("?size={size}");
        if let Some(id) = caller.id() {
            let until = Timestamp::now().as_second().saturating_add(SECONDS);
            let grant = Grant { size: Some(size), until: Some(until), by: Some(id.to_owned()), sig: None };
            let sig = self.mac(repo, oid, &grant)?.finalize().into_bytes();
            text.push_str(&format!("&until={until}&by={id}&sig={}", hex::encode(sig)));
        }
        Ok(text)
    }

    /// Returns the token of a link that allows this upload: validly signed, neither link nor token expired.
    pub(super) fn allows(&self, app: &App, repo: &RepoKey, oid: &str, grant: &Grant) -> Result<Option<String>> {
        let now = Timestamp::now();
        let (Some(until), Some(by), Some(sig)) = (grant.until, &grant.by, &grant.sig) else {
            return Ok(None);
        };
        let Some(sig) = super::sha256_of(sig) else { return Ok(None) };
        // Compared in constant time.
        if self.mac(repo, oid, grant)?.verify_slice(&sig).is_err() || until <= now.as_second() {
            return Ok(None);
        }
        let token = app.tokens().by_id(by)?;
        let allowed = token.filter(|t| Caller::Bearer(t.clone()).may(Scope::Write, &repo.name, false));
        Ok(allowed.map(|t| t.id.clone()))
    }
}
