//! Responses with bytes, and those of stored files.
//!
//! A file that is asked for as a whole is decoded once into a cache on disk, and all requests read it from there, also
//! while it is being decoded. Small ranges are decoded by themselves, unless the file is cached already.

mod body;
mod byte_response;
mod cache;
mod decoders;
mod disk_buffer;
mod fill;
mod kinds;
mod range;

pub(crate) use body::stream_body;
pub use byte_response::Asked;
pub(crate) use byte_response::ByteResponse;
pub(crate) use decoders::{Decoders, PART, STREAM_UNITS};
pub(crate) use disk_buffer::Sink;
pub(crate) use fill::Hashes;
pub use fill::digests;

use crate::{
    app::App,
    options::Options,
    problem::{Problem, Result},
    tasks::{fair::Party, keyed_mutex::KeyedMutex},
};
use axum::response::Response;
use cache::{Cache, Key};
use disk_buffer::{DiskBuffer, WaitLimits};
use kinds::{disposition, media_type};
use mdl_objects::Entry;
use mdl_repo::Repo;
use std::{path::Path, sync::Arc, time::Duration};

pub use mdl_repo::Digests;

/// How long a client is kept waiting for a hash: the Hugging Face clients give up after ten seconds.
const WAIT: Duration = Duration::from_secs(8);
/// Hashes kept in memory, for repositories whose index another process has.
const DIGESTS: usize = 1 << 16;
/// How long one slow client may keep others waiting for the memory that its bytes are produced in.
const WAIT_LIMIT: Duration = Duration::from_secs(1);
/// The time over which a slow client's rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Kind of ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validator {
    /// The id of what is stored: known at once.
    Id,
    /// SHA-256 of the bytes, as the Hugging Face clients want it: the file is decoded once for it.
    Sha256,
}

/// A repository, and the client that it is read for.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The server.
    pub app: App,
    /// The repository.
    pub repo: Arc<Repo>,
    /// The client and repository that decoding memory is counted to.
    pub party: Party,
}

/// Decoded files, hashes, and how much is decoded at a time.
#[derive(Debug)]
pub struct Content {
    cache: Cache,
    pub(crate) decoders: Decoders,
    disk_buffer: Arc<DiskBuffer>,
    digests: quick_cache::sync::Cache<Key, Digests>,
    /// Held while a file's hashes are computed.
    hashing: KeyedMutex<Key>,
}

impl Content {
    /// Nothing decoded yet but what an earlier run left in the state directory.
    pub fn new(state: &Path, options: &Options) -> Result<Content> {
        let decoders = Decoders::new(options.memory);
        let limits = WaitLimits { wait: WAIT_LIMIT, least_rate: options.min_download_rate, window: RATE_WINDOW };
        let disk_buffer = DiskBuffer::new(state.join("overflow"), options.cache, limits, decoders.clone())?;
        Ok(Content {
            cache: Cache::new(state.join("decoded"), options.cache)?,
            decoders,
            disk_buffer: Arc::new(disk_buffer),
            digests: quick_cache::sync::Cache::new(DIGESTS),
            hashing: KeyedMutex::default(),
        })
    }

    /// Remembers a file's SHA-256 and git blob id.
    pub fn remember(&self, repo: &Repo, entry: &Entry, digests: Digests) {
        repo.odb().put_digest(&entry.id, &digests);
        self.digests.insert(cache::key(entry), digests);
    }
}

/// Answers GET or HEAD of a file as `ByteResponse::answer` does. 503 where the ETag is still being computed and cannot
/// be done without, or too many wait. The caller adds headers of its own.
pub async fn respond(reader: &Reader, path: &str, entry: &Entry, asked: &Asked, by: Validator) -> Result<Response> {
    let response = ByteResponse {
        noun: "file",
        len: entry.size,
        etag: etag(reader, entry, asked, by).await?,
        ranges: true,
        media_type: media_type(path),
        disposition: disposition(path),
    };
    response.answer(asked, async |bytes| body::from_range(reader, entry, bytes.start, bytes.end).await).await
}

async fn etag(reader: &Reader, entry: &Entry, asked: &Asked, by: Validator) -> Result<Option<String>> {
    if by == Validator::Id {
        return Ok(Some(entry.id.to_hex()));
    }
    let needed = asked.needs_etag();
    let wait = if needed { WAIT } else { Duration::ZERO };
    match digests(reader, entry, wait).await? {
        Some(digests) => Ok(Some(hex::encode(digests.sha256))),
        None if needed => Err(Problem::busy("the file is being decoded for the first time: ask again", 2)),
        None => Ok(None),
    }
}
