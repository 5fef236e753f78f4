//! Uploads: buffered until their name is known, then sent as one put or in parts.
//!
//! An upload that dies with its process leaves nothing here (the temporary file has no name) and perhaps parts in the
//! bucket, which no listing shows; a lifecycle rule of the bucket removes those.

use super::{bucket::Bucket, failure::failed, logs, read::immutable};
use crate::runtime::block_on;
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use mdl_repo::{
    RepoError, Result,
    storage::{Key, Upload},
};
use object_store::{MultipartUpload, ObjectMeta, ObjectStoreExt};
use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Up to here an upload stays in memory and goes out as one put; also the least size of a part.
const SMALL: u64 = 8 << 20;
/// Most parts of an upload to S3.
const PARTS: u64 = 10_000;
/// Bytes of parts that may be on their way at once, and how many parts these are at most.
const ON_THE_WAY: u64 = 64 << 20;
const AT_ONCE: u64 = 4;
/// An object that came to its name by now is not sent again. An older one is: a collector may have doomed it, and
/// goes by the time of the last write.
const RECENT: Duration = Duration::from_secs(3600);

/// Bytes that wait for their name.
pub(super) struct BufferedUpload {
    bucket: Bucket,
    small: Vec<u8>,
    file: Option<File>,
    len: u64,
}

fn buffer_failed(e: io::Error) -> RepoError {
    RepoError::io("cannot keep an upload in a temporary file")(e)
}

impl BufferedUpload {
    pub(super) fn new(bucket: Bucket) -> BufferedUpload {
        BufferedUpload { bucket, small: Vec::new(), file: None, len: 0 }
    }

    fn spill(&mut self) -> Result<&mut File> {
        if self.file.is_none() {
            let mut file = tempfile::tempfile().map_err(buffer_failed)?;
            file.write_all(&self.small).map_err(buffer_failed)?;
            self.small = Vec::new();
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| buffer_failed(io::ErrorKind::NotFound.into()))
    }
}

impl Upload for BufferedUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        if self.len <= SMALL {
            self.small.extend_from_slice(bytes);
            return Ok(());
        }
        self.spill()?.write_all(bytes).map_err(buffer_failed)
    }

    fn finish(self: Box<Self>, key: &Key) -> Result<()> {
        let BufferedUpload { bucket, small, file, len } = *self;
        let key = key.clone();
        block_on(async move {
            if immutable(&key) && was_just_stored(&bucket, &key, len).await? {
                return Ok(());
            }
            match file {
                Some(file) => in_parts(&bucket, &key, Arc::new(file), len).await,
                None if logs::is_log(&key) => logs::replace(&bucket, &key, small.into()).await,
                None => bucket.put(&key, small.into()).await,
            }
        })?
    }
}

/// Whether an object of that length is there since not long ago.
async fn was_just_stored(bucket: &Bucket, key: &str, len: u64) -> Result<bool> {
    // A clock ahead of ours: just now.
    let age = |meta: &ObjectMeta| SystemTime::from(meta.last_modified).elapsed().unwrap_or_default();
    Ok(bucket.meta(key).await?.is_some_and(|meta| meta.size == len && age(&meta) < RECENT))
}

async fn in_parts(bucket: &Bucket, key: &str, file: Arc<File>, len: u64) -> Result<()> {
    let path = bucket.path(key)?;
    let failed = |e| failed("write", &bucket.at(key), &e);
    let mut upload = bucket.store.put_multipart(&path).await.map_err(failed)?;
    let sent = match send(&mut *upload, file, len, &failed).await {
        Ok(()) => upload.complete().await.map(drop).map_err(failed),
        broken => broken,
    };
    let Err(e) = sent else { return Ok(()) };
    // The completion may have happened all the same: asked for twice, it fails the second time.
    if immutable(key) && was_just_stored(bucket, key, len).await.unwrap_or(false) {
        return Ok(());
    }
    // Best effort: the bucket's lifecycle rule removes what stays.
    let _ = upload.abort().await;
    Err(e)
}

/// The least length of parts that are few enough, in whole mebibytes.
fn part_len(len: u64) -> u64 {
    len.div_ceil(PARTS).next_multiple_of(1 << 20).max(SMALL)
}

async fn send(
    upload: &mut dyn MultipartUpload,
    file: Arc<File>,
    len: u64,
    failed: &(impl Fn(object_store::Error) -> RepoError + Sync),
) -> Result<()> {
    let part = part_len(len);
    let at_once = (ON_THE_WAY / part).clamp(1, AT_ONCE) as usize;
    let mut on_the_way = FuturesUnordered::new();
    for start in (0..len).step_by(part as usize) {
        if on_the_way.len() >= at_once {
            on_the_way.next().await.unwrap_or(Ok(())).map_err(failed)?;
        }
        let bytes = read(file.clone(), start, part.min(len - start)).await.map_err(buffer_failed)?;
        on_the_way.push(upload.put_part(bytes.into()));
    }
    while let Some(done) = on_the_way.next().await {
        done.map_err(failed)?;
    }
    Ok(())
}

async fn read(file: Arc<File>, start: u64, len: u64) -> io::Result<Bytes> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    });
    reading.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_never_too_many() {
        for len in [1, SMALL + 1, 80 << 30, 5 << 40] {
            let part = part_len(len);
            assert!(part >= SMALL && len.div_ceil(part) <= PARTS, "{len}: {part}");
        }
    }
}
