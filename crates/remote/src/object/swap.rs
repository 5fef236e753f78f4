//! Compare-and-swap by conditional put, and recovery when the store's answer is lost.
//!
//! A put goes out through the client that never retries by itself: were a put that succeeded repeated, the refusal of
//! the repetition would look like another writer's move. Each swap signs its value with a nonce. Whatever the answer
//! was, unless it was a plain yes, the object is read back: our nonce there, or named by the value after it, means that
//! it happened.
//!
//! Object stores remove unconditionally only, so a value that is removed becomes a tombstone by the same conditional
//! put.

use super::{
    bucket::{Bucket, Value, fresh_nonce, signed, unsupported},
    failure::failed,
};
use bytes::Bytes;
use mdl_repo::{
    RepoError, Result,
    storage::{Swap, too_large},
};
use object_store::{Error, ObjectStore, PutMode, PutOptions};
use std::{io, time::Duration};

/// The tombstone, stored where a value was removed. No value is ever these bytes.
pub(super) const TOMBSTONE: &[u8; 16] = b"\0mdl\xff removed \n\0";

/// How often a put that did not happen is sent again.
const TRIES: u32 = 10;

/// The value that readers see, of at most so many bytes; none for a tombstone.
pub(super) async fn live_within(bucket: &Bucket, key: &str, most: u64) -> Result<Option<Bytes>> {
    let found = bucket.value_within(key, most.max(TOMBSTONE.len() as u64)).await?;
    match found.map(|v| v.bytes).filter(|b| b[..] != TOMBSTONE[..]) {
        Some(bytes) if bytes.len() as u64 > most => Err(too_large(key, most)),
        found => Ok(found),
    }
}

fn same(a: &Option<Value>, b: &Option<Value>) -> bool {
    match (a, b) {
        // The nonce as well: an ETag is often a checksum, and a value that went and came back has the same.
        (Some(a), Some(b)) => {
            a.version.e_tag == b.version.e_tag && a.version.version == b.version.version && a.nonce == b.nonce
        }
        (None, None) => true,
        _ => false,
    }
}

/// Whether the store says that it did nothing (a 409 among them), so that the value is as it was or another writer's.
fn refused(error: &Error) -> bool {
    use Error::{AlreadyExists, NotFound, Precondition};
    matches!(error, Precondition { .. } | AlreadyExists { .. } | NotFound { .. })
}

struct Attempt<'a> {
    bucket: &'a Bucket,
    key: &'a str,
    new: Bytes,
    nonce: String,
    /// The store keeps no metadata.
    plain: bool,
    /// The failure after which our value may have been set.
    lost: Option<Error>,
}

/// Sets `new` (or removes the value) if the present one is `expected`.
pub(super) async fn swap(bucket: &Bucket, key: &str, expected: Option<Bytes>, new: Option<Bytes>) -> Result<Swap> {
    let removing = new.is_none();
    let mut attempt = Attempt {
        bucket,
        key,
        new: new.unwrap_or_else(|| Bytes::from_static(TOMBSTONE)),
        nonce: fresh_nonce()?,
        plain: false,
        lost: None,
    };
    let mut before = bucket.value(key).await?;
    for tried in 0..TRIES {
        let found = before.as_ref().map(|v| &v.bytes).filter(|b| b[..] != TOMBSTONE[..]);
        if found != expected.as_ref() {
            return Ok(Swap::Lost(found.map(|b| b.to_vec())));
        }
        if removing && found.is_none() {
            return Ok(Swap::Done);
        }
        if attempt.put(&before).await? {
            return Ok(Swap::Done);
        }
        wait(tried).await;
        let now = bucket.value(key).await.map_err(|e| attempt.unknown(&e.to_string()))?;
        if attempt.happened(&now) {
            return Ok(Swap::Done);
        }
        if !same(&before, &now) {
            if let Some(e) = &attempt.lost {
                return Err(attempt.unknown(&e.to_string()));
            }
            before = now;
        }
    }
    let last = attempt.lost.as_ref().map(ToString::to_string);
    Err(attempt.unknown(&last.unwrap_or_else(|| "the store was busy with others' puts each time".to_owned())))
}

impl Attempt<'_> {
    /// Sends the put; whether the store said yes.
    async fn put(&mut self, before: &Option<Value>) -> Result<bool> {
        let options = PutOptions {
            mode: before.as_ref().map_or(PutMode::Create, |v| PutMode::Update(v.version.clone())),
            attributes: match self.plain {
                true => Default::default(),
                false => signed(&self.nonce, before.as_ref().and_then(|v| v.nonce.as_deref())),
            },
            ..PutOptions::default()
        };
        let path = self.bucket.path(self.key)?;
        match self.bucket.once.put_opts(&path, self.new.clone().into(), options).await {
            Ok(_) => return Ok(true),
            Err(e) if refused(&e) => {}
            Err(e) if unsupported(&e) && !self.plain => self.plain = true,
            Err(e) if unsupported(&e) => return Err(self.no_conditions()),
            Err(e @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) if self.lost.is_none() => {
                return Err(failed("write", &self.bucket.at(self.key), &e));
            }
            Err(e) => self.lost = Some(e),
        }
        Ok(false)
    }

    /// Whether what is there now shows that our put took place.
    fn happened(&self, now: &Option<Value>) -> bool {
        let Some(now) = now else { return false };
        let nonce = Some(self.nonce.as_str());
        if now.nonce.as_deref() == nonce || now.after.as_deref() == nonce {
            return true;
        }
        // All writers here sign: a value without a signature lies in a store that keeps none, and is all there is to go
        // by.
        now.nonce.is_none() && self.lost.is_some() && now.bytes == self.new
    }

    fn unknown(&self, why: &str) -> RepoError {
        let context = format!("cannot tell whether {} was written, and by whom it was since", self.bucket.at(self.key));
        RepoError::io(context)(io::Error::other(why.to_owned()))
    }

    fn no_conditions(&self) -> RepoError {
        let hint = "use a store that honours If-Match and If-None-Match, such as S3, GCS, Azure or SeaweedFS";
        RepoError::user(format!("{}: this store has no conditional puts", self.bucket.at(self.key)), hint)
    }
}

/// Longer with each try, and by a random part, so that writers do not meet again.
async fn wait(tried: u32) {
    let mut random = [0u8; 1];
    // Without randomness they only meet more often.
    let _ = getrandom::fill(&mut random);
    let longest = 10u64 << tried.min(6);
    let millis = longest / 2 + longest * u64::from(random[0]) / 512;
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
