//! A bucket: keys become paths below a prefix, values are put and got whole.

use super::failure::{absent, cut_short, failed};
use bytes::Bytes;
use futures_util::TryStreamExt;
use mdl_repo::{
    Missing, RepoError, Result,
    storage::{MAX_VALUE, too_large},
};
use object_store::{
    Attribute, Attributes, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
    path::Path,
};
use std::{fmt, io, ops::Range, sync::Arc};

/// How often a read is asked again whose reply was cut short. The client below has retried what it could notice itself.
const TRIES: usize = 4;

/// Metadata key of a value's nonce, which names its writer. Azure takes letters only.
const NONCE: &str = "mdlnonce";
/// The nonce of the value that it replaced.
const AFTER: &str = "mdlafter";

/// Two clients of one bucket, and where in it the keys begin.
#[derive(Clone)]
pub(super) struct Bucket {
    /// Retries by itself where that can do no harm.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Never retries.
    pub(super) once: Arc<dyn ObjectStore>,
    /// The prefix: empty, or without a `/` at its ends.
    root: Arc<str>,
    /// The URL as users know it.
    shown: Arc<str>,
}

/// The URL only: a client would show its credentials.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.shown)
    }
}

/// A whole value and which of its key's values it is.
pub(super) struct Value {
    pub(super) bytes: Bytes,
    pub(super) version: UpdateVersion,
    pub(super) nonce: Option<String>,
    pub(super) after: Option<String>,
}

pub(super) fn fresh_nonce() -> Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| RepoError::io("cannot get random bytes")(io::Error::other(e)))?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

fn metadata(attributes: &Attributes, name: &'static str) -> Option<String> {
    attributes.get(&Attribute::Metadata(name.into())).map(|v| v.to_string())
}

/// The metadata of a value that is about to be written.
pub(super) fn signed(nonce: &str, after: Option<&str>) -> Attributes {
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::Metadata(NONCE.into()), nonce.to_owned().into());
    if let Some(after) = after {
        attributes.insert(Attribute::Metadata(AFTER.into()), after.to_owned().into());
    }
    attributes
}

/// Whether the store cannot keep metadata beside the value, or has no such call.
pub(super) fn unsupported(error: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};
    matches!(error, NotSupported { .. } | NotImplemented { .. })
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>, once: Arc<dyn ObjectStore>, prefix: &str, shown: &str) -> Bucket {
        Bucket { store, once, root: prefix.trim_matches('/').into(), shown: shown.trim_end_matches('/').into() }
    }

    /// A key as users know it.
    pub(super) fn at(&self, key: &str) -> String {
        format!("{}/{key}", self.shown)
    }

    pub(super) fn path(&self, key: &str) -> Result<Path> {
        let separator = if self.root.is_empty() { "" } else { "/" };
        Path::parse(format!("{}{separator}{key}", self.root))
            .map_err(|e| RepoError::usage(format!("{}: {e}", self.at(key)), ""))
    }

    /// The key of an object below the prefix.
    pub(super) fn key(&self, path: &Path) -> Option<String> {
        let path = path.as_ref();
        if self.root.is_empty() {
            return Some(path.to_owned());
        }
        let below = path.strip_prefix(&*self.root)?.strip_prefix('/')?;
        Some(below.to_owned())
    }

    pub(super) async fn value(&self, key: &str) -> Result<Option<Value>> {
        self.value_within(key, MAX_VALUE).await
    }

    /// A whole value of at most so many bytes: of a larger one none are asked for.
    pub(super) async fn value_within(&self, key: &str, most: u64) -> Result<Option<Value>> {
        let path = self.path(key)?;
        for _ in 0..TRIES {
            let got = match self.store.get(&path).await {
                Err(e) if absent(&e) => return Ok(None),
                other => other.map_err(|e| failed("read", &self.at(key), &e))?,
            };
            let (meta, attributes) = (got.meta.clone(), got.attributes.clone());
            if meta.size > most {
                return Err(too_large(key, most));
            }
            let bytes = got.bytes().await.map_err(|e| failed("read", &self.at(key), &e))?;
            if bytes.len() as u64 == meta.size {
                return Ok(Some(Value {
                    bytes,
                    version: UpdateVersion { e_tag: meta.e_tag, version: meta.version },
                    nonce: metadata(&attributes, NONCE),
                    after: metadata(&attributes, AFTER),
                }));
            }
        }
        Err(cut_short(&self.at(key)))
    }

    /// What there is of a range that begins within the value: all of it, or as far as the value goes.
    pub(super) async fn range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(key)?;
        for _ in 0..TRIES {
            let options = GetOptions::new().with_range(Some(range.clone()));
            let got = match self.store.get_opts(&path, options).await {
                Err(e) if absent(&e) => return Err(RepoError::not_found(Missing::StoredFile, key)),
                Err(e) => return Err(self.why_no_range(key, range.start, &e).await),
                Ok(got) => got,
            };
            let there = range.end.min(got.meta.size).saturating_sub(range.start);
            let bytes = got.bytes().await.map_err(|e| failed("read", &self.at(key), &e))?;
            if bytes.len() as u64 == there {
                return Ok(bytes);
            }
        }
        Err(cut_short(&self.at(key)))
    }

    /// Stores answer alike whether a range lies behind the end or something broke: the size tells.
    async fn why_no_range(&self, key: &str, start: u64, error: &object_store::Error) -> RepoError {
        match self.meta(key).await {
            Ok(Some(meta)) if meta.size <= start => RepoError::corrupt(key, "shorter than it should be"),
            _ => failed("read", &self.at(key), error),
        }
    }

    pub(super) async fn meta(&self, key: &str) -> Result<Option<ObjectMeta>> {
        match self.store.head(&self.path(key)?).await {
            Err(e) if absent(&e) => Ok(None),
            other => other.map(Some).map_err(|e| failed("look at", &self.at(key), &e)),
        }
    }

    /// Every object below a prefix that ends in `/` or is empty.
    pub(super) async fn objects(&self, prefix: &str) -> Result<Vec<(String, ObjectMeta)>> {
        let path = self.path(prefix)?;
        let all = self.store.list((!path.is_root()).then_some(&path));
        let all: Vec<ObjectMeta> = all.try_collect().await.map_err(|e| failed("list", &self.at(prefix), &e))?;
        let keyed = all.into_iter().filter_map(|m| Some((self.key(&m.location)?, m)));
        Ok(keyed.collect())
    }

    /// Sets a small value, whatever was there.
    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(key)?;
        let mut attributes = signed(&fresh_nonce()?, None);
        loop {
            let options = PutOptions {
                mode: PutMode::Overwrite,
                attributes: std::mem::take(&mut attributes),
                ..PutOptions::default()
            };
            let plain = options.attributes.is_empty();
            match self.store.put_opts(&path, bytes.clone().into(), options).await {
                // Attributes are empty from here on: a store without them.
                Err(e) if !plain && unsupported(&e) => {}
                other => return other.map(drop).map_err(|e| failed("write", &self.at(key), &e)),
            }
        }
    }

    /// Removes an object; absent is fine.
    pub(super) async fn remove(&self, key: &str) -> Result<()> {
        match self.store.delete(&self.path(key)?).await {
            Err(e) if absent(&e) => Ok(()),
            other => other.map_err(|e| failed("remove", &self.at(key), &e)),
        }
    }
}
