//! Tensor reader: follows a delta chain to its root, segment by segment.
//!
//! A delta may stand on its base and on the base's base of the time. As a rule the latter is where the base's chain
//! goes anyway; a base that was stored anew since has another chain, and then both are followed. Every tensor is
//! decoded once, from the chain roots up, and kept only while something above still needs it.
//!
//! Moves on a lattice are decoded together with what they stand on, in one call. Memory, for each segment that is being
//! decoded: as a rule three decoded ones and, of every tensor below, one encoded.

mod cached;
mod device;
mod standalone;

use crate::{
    Remedy, RepoError, Result,
    error::bad_object,
    object_db::{Location, Odb},
    pack::{PROBE, PackId, Parsed, TensorHeader, segment_len},
};
use mdl_codec::{Bases, SEGMENT_BYTES, Scheme, quant::lattice::Hint, scheme_of};
use mdl_objects::{Id, IdHasher, Kind, tensor_hasher};
use rayon::prelude::*;
use std::collections::HashMap;

/// Most bases below one tensor. A writer's chains have at most 255, and another 255 for every grandparent left behind
/// by a compaction, which are few; a crafted repository could have as many as it has tensors.
const MOST_BELOW: usize = 1024;
/// Most rounds that a reader takes to find copies whose depths descend. A healed repository needs one or two.
const MOST_ROUNDS: usize = 64;

/// A tensor of the repository, ready to be read in any order.
#[derive(Debug)]
pub struct TensorReader<'a> {
    odb: &'a Odb,
    id: Id,
    /// This tensor first, then everything that it stands on, bases after what stands on them.
    levels: Vec<Level>,
    len: u64,
}

#[derive(Debug)]
struct Level {
    at: Location,
    header: TensorHeader,
    /// Base and grandparent among the levels.
    below: [Option<usize>; 2],
}

/// What levels that are decoded together are stored as, the lowest one's first, and what that one stands on.
type Pending<S> = (Vec<S>, [Option<usize>; 2]);

/// A walk from a tensor down to its chain roots.
enum Chain {
    /// The tensor and all its bases.
    Descends(Vec<Level>),
    /// A copy that was taken is too deep for the delta on it: the limits have it now.
    CopyTooDeep,
    /// No copy is shallow enough, or the chain has no end.
    Broken,
}

impl Odb {
    /// Opens a tensor and its chain of bases.
    pub fn tensor(&self, id: &Id) -> Result<TensorReader<'_>> {
        if let Some(reader) = self.retry_on_repack(|| self.tensor_once(id))? {
            return Ok(reader);
        }
        // The index may name a copy that is not the shallowest: the footers know.
        self.do_without_index();
        let descends = self.retry_on_repack(|| self.tensor_once(id))?;
        descends.ok_or_else(|| RepoError::corrupt(format!("tensor {}", id.short()), "its delta chain does not descend"))
    }

    /// None: its delta chain does not descend, by the copies that were found.
    fn tensor_once(&self, id: &Id) -> Result<Option<TensorReader<'_>>> {
        let mut limits = HashMap::new();
        // Each round takes a shallower copy of one tensor.
        for _ in 0..MOST_ROUNDS {
            match self.levels(id, &mut limits)? {
                Chain::Descends(levels) => return self.reader(id, levels).map(Some),
                Chain::CopyTooDeep => continue,
                Chain::Broken => break,
            }
        }
        Ok(None)
    }

    fn levels(&self, id: &Id, limits: &mut HashMap<Id, u8>) -> Result<Chain> {
        let mut levels = Vec::new();
        // The delta on it states this depth; the tensor itself may have any.
        let mut open = vec![(*id, None)];
        let mut depths = HashMap::new();
        while let Some((next, above)) = open.pop() {
            let depth = match depths.get(&next) {
                Some(&depth) => depth,
                None => {
                    let limit = limits.get(&next).copied().into_iter().chain(above).min();
                    let Some(at) = self.copy_below(&next, limit)? else { return Ok(Chain::Broken) };
                    let (depth, header) = (at.record.depth, self.header(&at)?);
                    open.extend(at.record.bases().map(|below| (below, Some(depth))));
                    depths.insert(next, depth);
                    levels.push(Level { at, header, below: [None; 2] });
                    depth
                }
            };
            if levels.len() > MOST_BELOW {
                return Ok(Chain::Broken);
            }
            // Depth falls strictly from delta to base, so there is an end, whatever copies of an object exist.
            if let Some(above) = above.filter(|above| *above <= depth) {
                limits.insert(next, above);
                return Ok(Chain::CopyTooDeep);
            }
        }
        Ok(Chain::Descends(levels))
    }

    /// The copy of a base that readers take for a delta of a stated depth: the preferred one if it is shallower, else
    /// one that is.
    fn copy_below(&self, id: &Id, depth: Option<u8>) -> Result<Option<Location>> {
        let at = self.find(id, Kind::Tensor)?;
        match depth {
            Some(depth) if at.record.depth >= depth => self.find_below(id, depth),
            _ => Ok(Some(at)),
        }
    }

    fn reader(&self, id: &Id, mut levels: Vec<Level>) -> Result<TensorReader<'_>> {
        // The same order that depth gives: a delta comes before its bases. The first is the deepest.
        levels.sort_by_key(|l: &Level| std::cmp::Reverse(l.at.record.depth));
        let places: HashMap<Id, usize> = levels.iter().enumerate().map(|(i, l)| (l.at.record.id, i)).collect();
        for level in &mut levels {
            let place = |id: Option<Id>| id.and_then(|id| places.get(&id).copied());
            level.below = [place(level.header.base), place(level.header.grandparent)];
        }
        let top = &levels[0];
        let len = top.at.record.logical;
        if levels.iter().any(|l| l.at.record.logical != len || l.header.dtype != top.header.dtype) {
            return Err(RepoError::corrupt(format!("tensor {}", id.short()), "its base has another length or dtype"));
        }
        Ok(TensorReader { odb: self, id: *id, levels, len })
    }

    /// Header of a stored tensor.
    pub fn header(&self, at: &Location) -> Result<TensorHeader> {
        let record = &at.record;
        let bad = |why: &str| RepoError::corrupt(format!("tensor {}", record.id.short()), why);
        let mut want = record.len.min(PROBE as u64);
        for _ in 0..2 {
            let mut bytes = vec![0; usize::try_from(want).map_err(|_| bad("too large"))?];
            at.pack.payload_range(self.storage(), record, record.len - want, &mut bytes)?;
            match TensorHeader::decode(&bytes, record.len) {
                Parsed::Header(h)
                    if h.byte_len() != Some(record.logical)
                        || (h.base, h.grandparent) != (record.base, record.grandparent) =>
                {
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

/// A tensor's id, and the hash of its bytes so far.
#[derive(Debug)]
pub struct Verified {
    pub id: Id,
    hasher: IdHasher,
}

impl Verified {
    fn new(id: Id, header: &TensorHeader) -> Verified {
        let hasher = tensor_hasher(header.dtype, &header.shape);
        Verified { id, hasher }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub fn is_sound(&self) -> bool {
        self.hasher.finish() == self.id
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

    /// The depth its record states: its place since a version that is stored whole, or another number that is more than
    /// its bases state. A delta to this tensor must state more still.
    pub fn stated_depth(&self) -> u8 {
        self.levels[0].at.record.depth
    }

    /// The tensor.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The tensor, its base, that one's base and so on, each with the depth that its record states.
    pub(crate) fn chain(&self) -> impl Iterator<Item = (Id, u8)> {
        let below = |level: &&Level| self.levels.get(level.below[0]?);
        std::iter::successors(self.levels.first(), below).map(|l| (l.at.record.id, l.at.record.depth))
    }

    /// Deltas to follow to what is stored whole, by the longest way.
    pub fn chain_len(&self) -> usize {
        let mut lengths = vec![0; self.levels.len()];
        for (i, level) in self.levels.iter().enumerate().rev() {
            let below = level.below.into_iter().flatten().filter_map(|b| lengths.get(b));
            lengths[i] = below.max().map_or(0, |l| l + 1);
        }
        lengths.first().copied().unwrap_or(0)
    }

    /// The pack that its payload is in.
    pub(crate) fn pack(&self) -> &PackId {
        &self.levels[0].at.pack.id
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.levels[0].header.segments.len()
    }

    fn encoded(&self, level: usize, index: usize) -> Result<Vec<u8>> {
        let Level { at, header, .. } = &self.levels[level];
        let (offset, len) = *header.segments.get(index).ok_or_else(|| self.no_segment(index))?;
        let mut bytes = self.odb.spare.take(len as usize);
        at.pack.payload_range(self.odb.storage(), &at.record, offset, &mut bytes)?;
        Ok(bytes)
    }

    fn no_segment(&self, index: usize) -> RepoError {
        let what = format!("tensor {}", self.id.short());
        RepoError::user(format!("{what} has no segment {index}"), "")
    }

    /// How segment `index` is stored.
    pub fn scheme(&self, index: usize) -> Result<Scheme> {
        self.retry_on_repack(|reader| {
            let Level { at, header, .. } = &reader.levels[0];
            let (offset, _) = *header.segments.get(index).ok_or_else(|| self.no_segment(index))?;
            let mut first = [0];
            at.pack.payload_range(self.odb.storage(), &at.record, offset, &mut first)?;
            scheme_of(&first).map_err(bad_object(&self.id))
        })
    }

    /// The lattice that segment `index` is stored on, if any, as a hint for encoding it anew.
    pub fn hint(&self, index: usize) -> Result<Option<Hint>> {
        let bytes = self.encoded(0, index)?;
        Hint::from_encoded(self.header().dtype, &bytes, segment_len(self.len, index)).map_err(bad_object(&self.id))
    }

    /// Decodes segment `index` (not verified against the tensor's id, which covers the whole).
    pub fn segment(&self, index: usize) -> Result<Vec<u8>> {
        self.retry_on_repack(|reader| {
            let [own, _] = reader.decode(index, [Some(0), None])?;
            own.ok_or_else(|| self.no_segment(index))
        })
    }

    /// Reads; if a collector or compaction replaced a pack of the chain, from where the tensor is now.
    fn retry_on_repack<T>(&self, read: impl Fn(&TensorReader<'_>) -> Result<T>) -> Result<T> {
        match read(self) {
            Err(RepoError::NotFound { .. }) => {
                self.odb.reopen();
                self.odb.retry_on_repack(|| read(&self.odb.tensor(&self.id)?))
            }
            done => done,
        }
    }

    /// The base that the tensor was stored with, if a delta to this tensor could gain by it: a quantised one, that is.
    pub(crate) fn grandparent(&self) -> Option<Id> {
        let gains = |s| {
            use Scheme::{LatticeDelta, LatticeDelta2, PaletteDelta, PaletteDelta2};
            // Not moves: a delta to one is moves, too, as a rule, and has no use for it.
            matches!(s, PaletteDelta | PaletteDelta2 | LatticeDelta | LatticeDelta2) || s.is_overlay() && s.needs_base()
        };
        self.header().base.filter(|_| self.scheme(0).is_ok_and(gains))
    }

    /// Whether the tensor is stored as levels of a lattice or a palette: what a quantiser has made, as a rule.
    pub fn is_quantised(&self) -> bool {
        use Scheme::{Lattice, LatticeDelta, LatticeDelta2, LatticeMoves, Palette, PaletteDelta, PaletteDelta2};
        let is_levels = |s: Scheme| {
            let levels =
                [Lattice, LatticeDelta, LatticeDelta2, LatticeMoves, Palette, PaletteDelta, PaletteDelta2].contains(&s);
            levels || s.is_overlay()
        };
        self.scheme(0).is_ok_and(is_levels)
    }

    fn base_level(&self) -> Option<usize> {
        self.levels.first().and_then(|top| top.below[0])
    }

    /// Decodes segment `index` of the wanted levels and of what they stand on.
    fn decode(&self, index: usize, wanted: [Option<usize>; 2]) -> Result<[Option<Vec<u8>>; 2]> {
        let (len, dtype) = (segment_len(self.len, index), self.header().dtype);
        let bad = |level: usize| bad_object(&self.levels[level].at.record.id);
        let read = |level| {
            let bytes = self.encoded(level, index)?;
            let bases = scheme_of(&bytes).map_err(bad(level))?.bases();
            Ok((vec![bytes], bases))
        };
        let joins =
            |chain: &[Vec<u8>]| chain.first().is_some_and(|first| matches!(scheme_of(first), Ok(Scheme::LatticeMoves)));
        let decode = |level, chain: Vec<Vec<u8>>, [base, grandparent]: [Option<&Vec<u8>>; 2]| {
            let bases = Bases { base: base.map(Vec::as_slice), grandparent: grandparent.map(Vec::as_slice) };
            let encoded: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
            let mut out = self.odb.spare.take(len);
            self.odb.engine().decode_chain(dtype, &encoded, bases, &mut out).map_err(bad(level))?;
            chain.into_iter().for_each(|bytes| self.odb.spare.give(bytes));
            Ok(out)
        };
        let let_go = |bytes| self.odb.spare.give(bytes);
        let mut done = self.decode_levels::<_, _, RepoError>(wanted, read, joins, (decode, let_go))?;
        Ok(wanted.map(|level| done.get_mut(level?)?.take()))
    }

    /// Decodes the wanted levels and what they stand on, from the chain roots up. `read` says what a level is stored
    /// as, and how many of its bases that needs; `decode` makes the level of it and them. What is decoded is kept
    /// while something above still needs it, then let go of; the wanted levels are there at the end.
    ///
    /// A level that `joins` its base, and is all that needs it, is decoded together with it, in one call: what both
    /// are stored as is then one list, the base's first.
    fn decode_levels<S, D, E>(
        &self,
        wanted: [Option<usize>; 2],
        read: impl Fn(usize) -> Result<(Vec<S>, u8), E>,
        joins: impl Fn(&[S]) -> bool,
        (decode, let_go): (impl Fn(usize, Vec<S>, [Option<&D>; 2]) -> Result<D, E>, impl Fn(D)),
    ) -> Result<Vec<Option<D>>, E> {
        // How many above still need a level.
        let mut users = vec![0usize; self.levels.len()];
        wanted.into_iter().flatten().for_each(|level| users[level] += 1);
        let mut pending: Vec<Option<Pending<S>>> = self.levels.iter().map(|_| None).collect();
        for (i, level) in self.levels.iter().enumerate() {
            if users[i] == 0 {
                continue;
            }
            let (stored, bases) = read(i)?;
            let [base, grandparent] = level.below;
            let below = [base.filter(|_| bases > 0), grandparent.filter(|_| bases > 1)];
            below.into_iter().flatten().for_each(|b| users[b] += 1);
            pending[i] = Some((stored, below));
        }
        for i in (0..pending.len()).rev() {
            let Some((stored, [Some(base), None])) = &pending[i] else { continue };
            let (base, joins) = (*base, joins(stored));
            if joins && users[base] == 1 {
                let (Some((own, _)), Some((mut both, below))) = (pending[i].take(), pending[base].take()) else {
                    continue;
                };
                both.extend(own);
                pending[i] = Some((both, below));
            }
        }
        let mut done: Vec<Option<D>> = self.levels.iter().map(|_| None).collect();
        for (i, level) in pending.into_iter().enumerate().rev() {
            let Some((stored, below)) = level else { continue };
            let decoded = decode(i, stored, below.map(|b| done[b?].as_ref()))?;
            for b in below.into_iter().flatten() {
                users[b] -= 1;
                if users[b] == 0 {
                    done[b].take().into_iter().for_each(&let_go);
                }
            }
            done[i] = Some(decoded);
        }
        Ok(done)
    }

    /// All bytes, and those of the base where there is one, both verified: what a delta to this tensor needs. A base
    /// that is damaged without harm to this tensor is none.
    pub(crate) fn read_pair(&self) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let (mut own, mut below) = (Verified::new(self.id, self.header()), self.below());
        let (mut bytes, mut base) = (Vec::new(), Vec::new());
        for index in 0..self.segments() {
            let (segment, under) = self.segments_for_delta(index)?;
            own.update(&segment);
            bytes.extend(segment);
            if let (Some(v), Some(under)) = (&mut below, under) {
                v.update(&under);
                base.extend(under);
            }
        }
        if !own.is_sound() {
            return Err(self.changed());
        }
        let sound = below.is_some_and(|v| v.is_sound());
        Ok((bytes, sound.then_some(base)))
    }

    /// Decoded segment `index`, and the base's if there is one: what a delta to this tensor needs. Not verified.
    pub(crate) fn segments_for_delta(&self, index: usize) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        self.retry_on_repack(|reader| {
            let [own, base] = reader.decode(index, [Some(0), reader.base_level()])?;
            Ok((own.ok_or_else(|| self.no_segment(index))?, base))
        })
    }

    /// For segments in order, whether they are what the base's id says.
    pub fn below(&self) -> Option<Verified> {
        let level = self.levels.get(self.base_level()?)?;
        Some(Verified::new(level.at.record.id, &level.header))
    }

    /// For segments in order, whether they are what this tensor's id says.
    pub(crate) fn verified(&self) -> Verified {
        Verified::new(self.id, self.header())
    }

    /// Makes sure, once in a process, that what the tensor is stored as is what was written: to be asked before parts
    /// are used.
    pub(crate) fn check_stored(&self) -> Result<()> {
        self.retry_on_repack(|reader| reader.levels.iter().try_for_each(|l| self.odb.check_payload(&l.at)))
    }

    fn changed(&self) -> RepoError {
        RepoError::corrupt(format!("tensor {}", self.id.short()), "its content is not what its id says")
    }

    /// Passes every segment in order to `sink`, decoding a few ahead in parallel, and verifies the whole by its id.
    pub fn stream(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut own = self.verified();
        let ahead = rayon::current_num_threads().clamp(1, 8);
        for start in (0..self.segments()).step_by(ahead) {
            let end = (start + ahead).min(self.segments());
            let decoded: Vec<Vec<u8>> = (start..end).into_par_iter().map(|i| self.segment(i)).collect::<Result<_>>()?;
            for bytes in decoded {
                own.update(&bytes);
                sink(&bytes)?;
                self.odb.spare.give(bytes);
            }
        }
        if own.is_sound() { Ok(()) } else { Err(self.changed()) }
    }

    /// All bytes, verified. For tensors the caller knows to be small enough.
    pub fn read(&self) -> Result<Vec<u8>> {
        // Grown by what was decoded: a lying length earns no memory.
        let mut out = Vec::new();
        self.stream(|bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    /// Bytes `start..start + len` of the tensor, decoding only the segments that hold them. They cannot be verified by
    /// the id; the payloads are, once in a process, by their checksums.
    pub fn range(&self, start: u64, len: u64) -> Result<Vec<u8>> {
        let end = start.checked_add(len).filter(|&e| e <= self.len);
        let end = end.ok_or_else(|| RepoError::user("the range leaves the tensor", Remedy::ShowShape))?;
        self.check_stored()?;
        let mut out = Vec::new();
        let mut at = start;
        while at < end {
            let index = at / SEGMENT_BYTES as u64;
            let segment_start = index * SEGMENT_BYTES as u64;
            let bytes = self.segment(index as usize)?;
            let (from, to) = ((at - segment_start) as usize, (end - segment_start).min(bytes.len() as u64) as usize);
            out.extend_from_slice(&bytes[from..to]);
            at = segment_start + to as u64;
        }
        Ok(out)
    }
}
