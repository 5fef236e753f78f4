//! Reads tensors: follows a delta chain to its foot, segment by segment. Neighbours: `odb` finds the payloads, the engine
//! decodes them. It must not know files or commits.
//!
//! Memory, for each segment that is being decoded: two decoded ones and, of every level of its chain, one encoded.

use crate::{
    RepoError, Result,
    error::bad_encoding,
    odb::{Location, Odb},
    tensor::{PROBE, Parsed, TensorHeader, segment_len},
};
use mdl_codec::{SEGMENT_BYTES, Scheme, quant::lattice::Hint, scheme_of};
use mdl_objects::{Id, Kind, tensor_hasher};
use rayon::prelude::*;

const NOT_DESCENDING: &str = "its delta chain does not descend";

/// A tensor of the repository, ready to be read in any order.
#[derive(Debug)]
pub struct TensorReader<'a> {
    odb: &'a Odb,
    id: Id,
    /// This tensor first, then each level's base.
    levels: Vec<Level>,
    len: u64,
}

#[derive(Debug)]
struct Level {
    at: Location,
    header: TensorHeader,
}

impl Odb {
    /// Opens a tensor and its chain of bases.
    ///
    /// # Errors
    /// Absent or damaged; the medium failed.
    pub fn tensor(&self, id: &Id) -> Result<TensorReader<'_>> {
        match self.again(|| self.tensor_once(id)) {
            // The index may name a copy that is not the shallowest: the footers know.
            Err(RepoError::Corrupt { reason, .. }) if reason == NOT_DESCENDING => {
                self.do_without_index();
                self.again(|| self.tensor_once(id))
            }
            done => done,
        }
    }

    fn tensor_once(&self, id: &Id) -> Result<TensorReader<'_>> {
        let mut levels: Vec<Level> = Vec::new();
        let mut next = Some(*id);
        while let Some(id) = next {
            let at = self.find(&id, Kind::Tensor)?;
            // Depth falls strictly along a chain, so it ends, whatever copies of an object exist.
            if levels
                .last()
                .is_some_and(|upper| at.record.depth >= upper.at.record.depth)
            {
                return Err(RepoError::corrupt(format!("tensor {}", id.short()), NOT_DESCENDING));
            }
            let header = self.header(&at)?;
            next = header.base;
            levels.push(Level { at, header });
        }
        let top = &levels[0];
        let len = top.at.record.logical;
        if levels
            .iter()
            .any(|l| l.at.record.logical != len || l.header.dtype != top.header.dtype)
        {
            return Err(RepoError::corrupt(
                format!("tensor {}", id.short()),
                "its base has another length or dtype",
            ));
        }
        Ok(TensorReader {
            odb: self,
            id: *id,
            levels,
            len,
        })
    }

    /// Header of a stored tensor.
    ///
    /// # Errors
    /// Damaged; the medium failed.
    pub fn header(&self, at: &Location) -> Result<TensorHeader> {
        let record = &at.record;
        let bad = |why: &str| RepoError::corrupt(format!("tensor {}", record.id.short()), why);
        let mut want = record.len.min(PROBE as u64);
        for _ in 0..2 {
            let mut bytes = vec![0; usize::try_from(want).map_err(|_| bad("too large"))?];
            at.pack
                .payload_range(self.storage(), record, record.len - want, &mut bytes)?;
            match TensorHeader::decode(&bytes, record.len) {
                Parsed::Header(h) if h.byte_len() != Some(record.logical) || h.base != record.base => {
                    return Err(bad("header and record disagree"));
                }
                Parsed::Header(h) => return Ok(h),
                Parsed::NeedBytes(n) => want = n,
                Parsed::Bad(why) => return Err(bad(why)),
            }
        }
        Err(bad("header does not end"))
    }
}

impl TensorReader<'_> {
    /// Header of the stored tensor.
    pub fn header(&self) -> &TensorHeader {
        &self.levels[0].header
    }

    /// Decoded length in bytes.
    pub fn byte_len(&self) -> u64 {
        self.len
    }

    /// The depth its record states: at least the length of its chain, more where a base was stored anew since. A delta to
    /// this tensor must state more still.
    pub fn stated_depth(&self) -> u8 {
        self.levels[0].at.record.depth
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.levels[0].header.segments.len()
    }

    fn encoded(&self, level: usize, index: usize) -> Result<Vec<u8>> {
        let Level { at, header } = &self.levels[level];
        let (offset, len) = *header.segments.get(index).ok_or_else(|| self.no_segment(index))?;
        let mut bytes = vec![0; len as usize];
        at.pack
            .payload_range(self.odb.storage(), &at.record, offset, &mut bytes)?;
        Ok(bytes)
    }

    fn no_segment(&self, index: usize) -> RepoError {
        let what = format!("tensor {}", self.id.short());
        RepoError::user(format!("{what} has no segment {index}"), "")
    }

    /// How segment `index` is stored.
    ///
    /// # Errors
    /// No such segment; damaged; the medium failed.
    pub fn scheme(&self, index: usize) -> Result<Scheme> {
        let Level { at, header } = &self.levels[0];
        let (offset, _) = *header.segments.get(index).ok_or_else(|| self.no_segment(index))?;
        let mut first = [0];
        at.pack
            .payload_range(self.odb.storage(), &at.record, offset, &mut first)?;
        scheme_of(&first).map_err(bad_encoding(&self.id))
    }

    /// The lattice that segment `index` is stored on, if it is; what the engine is to be told when it is encoded anew.
    ///
    /// # Errors
    /// No such segment; damaged; the medium failed.
    pub(crate) fn hint(&self, index: usize) -> Result<Option<Hint>> {
        let bytes = self.encoded(0, index)?;
        Hint::of(self.header().dtype, &bytes, segment_len(self.len, index)).map_err(bad_encoding(&self.id))
    }

    /// Decodes segment `index` (not verified against the tensor's id, which covers the whole).
    ///
    /// # Errors
    /// No such segment; damaged; the medium failed.
    pub fn segment(&self, index: usize) -> Result<Vec<u8>> {
        match self.segment_once(index) {
            // A collector or compaction replaced a pack of the chain: find the tensor where it is now.
            Err(RepoError::NotFound { .. }) => {
                self.odb.renew();
                self.odb.tensor(&self.id)?.segment_once(index)
            }
            done => done,
        }
    }

    fn segment_once(&self, index: usize) -> Result<Vec<u8>> {
        let len = segment_len(self.len, index);
        let dtype = self.header().dtype;
        let mut pending = Vec::new();
        for level in 0..self.levels.len() {
            let bytes = self.encoded(level, index)?;
            let scheme = scheme_of(&bytes).map_err(bad_encoding(&self.levels[level].at.record.id))?;
            pending.push((level, bytes));
            if !scheme.needs_base() {
                break;
            }
        }
        let mut base: Option<Vec<u8>> = None;
        for (level, bytes) in pending.into_iter().rev() {
            let mut out = vec![0; len];
            let id = &self.levels[level].at.record.id;
            self.odb
                .engine()
                .decode(dtype, &bytes, base.as_deref().into(), &mut out)
                .map_err(bad_encoding(id))?;
            base = Some(out);
        }
        base.ok_or_else(|| self.no_segment(index))
    }

    /// Hands every segment in order to `sink`, decoding a few ahead in parallel, and verifies the whole by its id.
    ///
    /// # Errors
    /// Damaged; the medium failed; whatever `sink` returns.
    pub fn stream(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let header = self.header();
        let mut hasher = tensor_hasher(header.dtype, &header.shape);
        let ahead = rayon::current_num_threads().clamp(1, 8);
        for start in (0..self.segments()).step_by(ahead) {
            let end = (start + ahead).min(self.segments());
            let decoded: Vec<Vec<u8>> = (start..end)
                .into_par_iter()
                .map(|i| self.segment(i))
                .collect::<Result<_>>()?;
            for bytes in &decoded {
                hasher.update(bytes);
                sink(bytes)?;
            }
        }
        if hasher.finish() == self.id {
            Ok(())
        } else {
            Err(RepoError::corrupt(
                format!("tensor {}", self.id.short()),
                "its content is not what its id says",
            ))
        }
    }

    /// All bytes, verified. For tensors the caller knows to be small enough.
    ///
    /// # Errors
    /// As `stream`.
    pub fn read(&self) -> Result<Vec<u8>> {
        // Grown by what was decoded: a lying length earns no memory.
        let mut out = Vec::new();
        self.stream(|bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    /// Bytes `start..start + len` of the tensor, decoding only the segments that hold them. Not verified by the id.
    ///
    /// # Errors
    /// The range leaves the tensor; damaged; the medium failed.
    pub fn range(&self, start: u64, len: u64) -> Result<Vec<u8>> {
        let end = start.checked_add(len).filter(|&e| e <= self.len);
        let end =
            end.ok_or_else(|| RepoError::user("the range leaves the tensor", "look at its shape with `mdl ls`"))?;
        let mut out = Vec::new();
        let mut at = start;
        while at < end {
            let index = at / SEGMENT_BYTES as u64;
            let segment_start = index * SEGMENT_BYTES as u64;
            let bytes = self.segment(index as usize)?;
            let (from, to) = (
                (at - segment_start) as usize,
                (end - segment_start).min(bytes.len() as u64) as usize,
            );
            out.extend_from_slice(&bytes[from..to]);
            at = segment_start + to as u64;
        }
        Ok(out)
    }
}
