//! Tensors out of the cache of decoded ones, where they are there, else out of the packs.
//!
//! Only what a commit codes new versions against and what a checkout writes is read like this: both verify it. A check
//! of the repository has to read the packs.

use super::TensorReader;
use crate::{Result, cache::CachedTensor};
use mdl_codec::SEGMENT_BYTES;
use mdl_objects::Id;

impl TensorReader<'_> {
    /// The bytes that the cache has for this tensor, verified.
    fn in_cache(&self) -> Option<Vec<u8>> {
        let header = self.header();
        self.odb.cache()?.read(&self.id, header.dtype, &header.shape, self.len)
    }

    /// The base that the cache has for this tensor, verified.
    fn base_in_cache(&self) -> Option<Vec<u8>> {
        let header = &self.levels.get(self.base_level()?)?.header;
        self.odb.cache()?.read(header_base(self)?, header.dtype, &header.shape, self.len)
    }

    /// As `read`, from the cache if it is there; what has to be decoded is kept.
    pub(crate) fn read_cached(&self) -> Result<Vec<u8>> {
        if let Some(bytes) = self.in_cache() {
            return Ok(bytes);
        }
        let bytes = self.read()?;
        self.keep_own(&bytes);
        Ok(bytes)
    }

    /// As `read_pair`, from the cache if both are there; what has to be decoded is kept.
    pub(crate) fn read_pair_cached(&self) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        if let Some(own) = self.in_cache() {
            match self.header().base {
                None => return Ok((own, None)),
                Some(_) => {
                    if let Some(base) = self.base_in_cache() {
                        return Ok((own, Some(base)));
                    }
                }
            }
        }
        let (own, base) = self.read_pair()?;
        self.keep_own(&own);
        if let (Some(id), Some(base)) = (header_base(self), &base) {
            self.keep(id, base);
        }
        Ok((own, base))
    }

    /// Keeps this tensor, unless it is stored without a base: one step to decode, it would only take room.
    fn keep_own(&self, bytes: &[u8]) {
        if self.header().base.is_some() {
            self.keep(&self.id, bytes);
        }
    }

    fn keep(&self, id: &Id, bytes: &[u8]) {
        if let Some(cache) = self.odb.cache() {
            cache.put(id, bytes);
        }
    }

    /// As `stream`, from the cache if it is there.
    pub(crate) fn stream_cached(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if let Some(bytes) = self.in_cache() {
            return bytes.chunks(SEGMENT_BYTES).try_for_each(sink);
        }
        let header = self.header();
        let large = self.odb.cache().and_then(|c| c.open_verified(&self.id, header.dtype, &header.shape, self.len));
        let Some(found) = large else { return self.stream(sink) };
        // Verified once, and again by what is handed on: another program may write to the file meanwhile.
        let mut own = self.verified();
        for index in 0..self.segments() {
            let bytes = found.segment(index).ok_or_else(|| self.changed())?;
            own.update(&bytes);
            sink(&bytes)?;
        }
        if own.is_sound() { Ok(()) } else { Err(self.changed()) }
    }

    /// The tensor in the cache, and its base there if `with_base`; not verified. For callers that hash every segment.
    pub(crate) fn open_cached(&self, with_base: bool) -> Option<(CachedTensor, Option<CachedTensor>)> {
        let cache = self.odb.cache()?;
        let own = cache.open(&self.id, self.len)?;
        match header_base(self).filter(|_| with_base) {
            Some(base) => Some((own, Some(cache.open(base, self.len)?))),
            None => Some((own, None)),
        }
    }
}

fn header_base<'r>(reader: &'r TensorReader<'_>) -> Option<&'r Id> {
    reader.header().base.as_ref()
}
