//! Ingests tensors: read, hashed, and where new encoded against the parent's tensor of the same name.
//!
//! Small tensors go through memory in batches, read once; a large one is read twice (hashed, then encoded and hashed
//! again), so that memory stays bounded and unchanged tensors cost only their hash.

use crate::{
    RepoError, Result,
    object_db::Odb,
    pack::{NewObject, PackWriter, TensorHeader, segment_count, segment_len},
    progress::go_on,
    write::{
        BaseTensors, Chains, Ingest, STORING, Sink, Source, TensorReport,
        base::{Base, BaseRef, base_of},
        device::span_of,
    },
};
use mdl_codec::{
    Bases, Encoded, SEGMENT_BYTES, Scheme, Span,
    quant::lattice::{Hint, Lattice},
};
use mdl_files::{Extent, Layout};
use mdl_objects::{Id, Kind, TensorRef, tensor_hasher, tensor_id};
use rayon::prelude::*;
use std::{collections::HashSet, iter, sync::Arc};

/// Bytes of small tensors that are in memory at once.
const BATCH: u64 = 64 << 20;

/// Bytes of tensors in a device's memory that are worked on at once: their bases are decoded beside them.
const DEVICE_BATCH: u64 = 512 << 20;

impl Ingest<'_> {
    /// Ingests every extent, in order.
    pub(super) fn tensors(
        &mut self,
        source: &dyn Source,
        layout: &Layout,
        rel: &str,
        bases: &BaseTensors,
    ) -> Result<Vec<TensorRef>> {
        let mut out = Vec::with_capacity(layout.extents.len());
        let spans: Vec<Option<Span>> = layout.extents.iter().map(|e| span_of(source, e)).collect();
        let mut rest = (&layout.extents[..], &spans[..]);
        let device = |s: &Option<Span>| s.map(|s| s.device());
        while let Some(place) = rest.1.first().map(device) {
            let run = rest.1.iter().take_while(|s| device(s) == place).count();
            let ((batch, extents), (places, spans)) = (rest.0.split_at(run), rest.1.split_at(run));
            rest = (extents, spans);
            let places: Vec<Span> = places.iter().copied().flatten().collect();
            let ids = match place {
                Some(_) => self.on_device(source, batch, &places, rel, bases)?,
                None => self.on_host(source, batch, rel, bases)?,
            };
            out.extend(batch.iter().zip(ids).map(|(e, id)| TensorRef {
                name: e.name.clone(),
                offset: e.offset,
                dtype: e.dtype,
                shape: e.shape.clone(),
                id,
            }));
        }
        // Training needs the device memory that this took.
        let mut devices: Vec<u32> = spans.iter().flatten().map(|s| s.device()).collect();
        devices.dedup();
        devices.iter().filter_map(|&d| self.odb.engine().device(d)).for_each(|d| d.release_memory());
        self.odb.spare.clear();
        self.report.total += out.len() as u64;
        Ok(out)
    }

    /// Ingests tensors in a device's memory, some at a time; those that the device cannot do are done on the host.
    fn on_device(
        &mut self,
        source: &dyn Source,
        list: &[Extent],
        spans: &[Span],
        rel: &str,
        bases: &BaseTensors,
    ) -> Result<Vec<Id>> {
        let mut ids = Vec::with_capacity(list.len());
        for batch in batches(list, DEVICE_BATCH) {
            go_on(self.progress, STORING)?;
            let places = &spans[ids.len()..ids.len() + batch.len()];
            ids.extend(match self.batch_on_device(batch, places, rel, bases)? {
                Some(done) => done,
                None => self.on_host(source, batch, rel, bases)?,
            });
        }
        Ok(ids)
    }

    /// Ingests tensors that are read from a file or memory.
    fn on_host(&mut self, source: &dyn Source, list: &[Extent], rel: &str, bases: &BaseTensors) -> Result<Vec<Id>> {
        let mut ids = Vec::with_capacity(list.len());
        for batch in batches(list, BATCH) {
            match batch {
                [one] if one.byte_len().unwrap_or(0) > BATCH => ids.push(self.large(source, one, rel, bases)?),
                _ => ids.extend(self.batch(source, batch, rel, bases)?),
            }
        }
        Ok(ids)
    }

    fn batch(&mut self, source: &dyn Source, batch: &[Extent], rel: &str, bases: &BaseTensors) -> Result<Vec<Id>> {
        let (odb, progress, chains) = (self.odb, self.progress, self.policy.chains);
        let hints = self.hints;
        let wanted = matches!(self.sink, Sink::Pack(_));
        let failed = |e| RepoError::io(format!("cannot read {rel}"))(e);
        let known: Vec<Option<Id>> = batch.iter().map(|e| self.stored_id(source, e)).collect::<Result<_>>()?;
        let read: Vec<(Id, Vec<u8>)> = batch
            .par_iter()
            .zip(known)
            .map(|(e, known)| {
                go_on(progress, STORING)?;
                if let Some(id) = known {
                    return Ok((id, Vec::new()));
                }
                let mut bytes = vec![0; e.byte_len().unwrap_or(0) as usize];
                source.read_at(e.offset, &mut bytes).map_err(failed)?;
                let id = tensor_id(e.dtype, &e.shape, &bytes);
                source.hashed(e, id);
                Ok((id, bytes))
            })
            .collect::<Result<_>>()?;
        let mut seen = HashSet::new();
        let mut work = Vec::with_capacity(read.len());
        for (e, (id, bytes)) in batch.iter().zip(read) {
            let new = wanted && seen.insert(id) && !self.has(&id)?;
            work.push((e, id, if new { Some(bytes) } else { None }));
        }
        let new = work.iter().filter(|(.., bytes)| bytes.is_some());
        self.bring_bases(new.map(|(e, id, _)| (*e, id)), bases);
        let ready: Vec<(Id, Option<Whole>)> = work
            .into_par_iter()
            .map(|(e, id, bytes)| {
                go_on(progress, STORING)?;
                let encoded = bytes
                    .map(|b| {
                        let base = base_of(odb, bases, e, &id, chains);
                        let had_base = base.is_some();
                        let lattice = hints.lattice(rel, e);
                        // Without a base there is one encoding of it.
                        let alone = base.is_none() && lattice.is_none();
                        let encoded = match alone.then(|| source.encoded(e)).flatten() {
                            Some(segments) => (segments, None),
                            None => encode_whole(odb, e, &b, base, lattice.as_ref())?,
                        };
                        if let Some(cache) = odb.cache().filter(|_| is_worth_caching(had_base, &encoded.0)) {
                            cache.put(&id, &b);
                        }
                        Ok(encoded)
                    })
                    .transpose()?;
                progress.advance(e.byte_len().unwrap_or(0));
                Ok((id, encoded))
            })
            .collect::<Result<_>>()?;
        let ids = ready.iter().map(|(id, _)| *id).collect();
        for (e, (id, encoded)) in batch.iter().zip(ready) {
            if let Some((segments, base)) = encoded {
                self.append(e, id, rel, &segments, base)?;
            }
        }
        Ok(ids)
    }

    /// Appends a tensor's payload to the pack.
    pub(super) fn append(
        &mut self,
        e: &Extent,
        id: Id,
        rel: &str,
        segments: &[Encoded],
        base: Option<BaseRef>,
    ) -> Result<()> {
        for s in segments {
            self.pack()?.append(&s.bytes)?;
        }
        let parts: Parts = segments.iter().map(|s| (s.scheme, s.bytes.len() as u32)).collect();
        self.place(e, id, rel, &parts, base)
    }

    fn large(&mut self, source: &dyn Source, e: &Extent, rel: &str, bases: &BaseTensors) -> Result<Id> {
        let len = e.byte_len().unwrap_or(0);
        if let Some(id) = self.stored_id(source, e)? {
            self.progress.advance(len);
            return Ok(id);
        }
        let segments = segment_count(len) as usize;
        let mut hasher = tensor_hasher(e.dtype, &e.shape);
        for i in 0..segments {
            go_on(self.progress, STORING)?;
            hasher.update(&read_segment(source, e, i, rel)?);
        }
        let id = hasher.finish();
        source.hashed(e, id);
        if matches!(self.sink, Sink::Ids) || self.has(&id)? {
            self.progress.advance(len);
            return Ok(id);
        }
        self.bring_bases(iter::once((e, &id)), bases);
        let mut base = base_of(self.odb, bases, e, &id, self.policy.chains);
        base.iter_mut().for_each(Base::open_cached);
        let mut parts = self.encode_large(source, e, id, rel, base.as_ref())?;
        if parts.is_none() && base.as_mut().is_some_and(Base::close_cached) {
            // What the cache has is damaged: packs may be sound.
            parts = self.encode_large(source, e, id, rel, base.as_ref())?;
        }
        if parts.is_none() {
            // The base turned out to be damaged: store this tensor without one.
            base = None;
            parts = self.encode_large(source, e, id, rel, None)?;
        }
        let parts = parts.ok_or_else(|| changed(rel))?;
        self.place(e, id, rel, &parts, base.map(|b| b.at))?;
        Ok(id)
    }

    /// Fetches the parent's tensors into a partial repository, all at once and before threads of the pool look for
    /// them: the promisor works on that pool, and would wait for ever for threads that wait for it. A tensor that
    /// cannot be fetched is no base.
    fn bring_bases<'e>(&self, tensors: impl Iterator<Item = (&'e Extent, &'e Id)>, bases: &BaseTensors) {
        let others = tensors.filter_map(|(e, own)| bases.get(&e.name).filter(|id| *id != own));
        let _ = self.odb.prefetch(others.copied());
    }

    /// Appends the segments of a large tensor to the pack, a few at a time. `None`: the base is not what its id says.
    fn encode_large(
        &mut self,
        source: &dyn Source,
        e: &Extent,
        id: Id,
        rel: &str,
        base: Option<&Base<'_>>,
    ) -> Result<Option<Parts>> {
        let mut hasher = tensor_hasher(e.dtype, &e.shape);
        let mut sound = base.map(|b| (b.reader.verified(), b.at.grandparent.and_then(|_| b.reader.below())));
        let mut parts = Parts::new();
        let cache = self.odb.cache();
        let mut kept = cache.and_then(|c| c.begin(&id, e.byte_len()?));
        let lattice = self.hints.lattice(rel, e);
        let mut ready = if base.is_none() && lattice.is_none() { source.encoded(e) } else { None };
        let segments = segment_count(e.byte_len().unwrap_or(0)) as usize;
        let ahead = rayon::current_num_threads().clamp(1, 8);
        for start in (0..segments).step_by(ahead) {
            go_on(self.progress, STORING)?;
            let now = start..segments.min(start + ahead);
            let mut done: Vec<Option<Encoded>> = vec![None; now.len()];
            if let Some(ready) = &mut ready {
                done = ready.drain(..now.len().min(ready.len())).map(Some).collect();
                done.resize(now.len(), None);
            }
            let work: Vec<(Vec<u8>, Option<Pair>, Encoded)> = now
                .into_par_iter()
                .zip(done)
                .map(|(i, done)| {
                    let raw = read_segment(source, e, i, rel)?;
                    if let Some(done) = done {
                        return Ok((raw, None, done));
                    }
                    let below = base.map(|b| b.segment(i)).transpose().ok().flatten();
                    let bases = below.as_ref().map_or(Bases::NONE, |(base, grandparent)| Bases {
                        base: Some(base),
                        grandparent: grandparent.as_deref(),
                    });
                    let encoded = encode_segment(self.odb, e, (i, &raw), bases, lattice.as_ref())?;
                    Ok((raw, below, encoded))
                })
                .collect::<Result<_>>()?;
            for (raw, below, encoded) in work {
                hasher.update(&raw);
                kept.iter_mut().for_each(|k| k.append(&raw));
                if let (Some((own, under)), Some((base, grandparent))) = (&mut sound, &below) {
                    own.update(base);
                    under.iter_mut().zip(grandparent).for_each(|(v, bytes)| v.update(bytes));
                }
                self.pack()?.append(&encoded.bytes)?;
                parts.push((encoded.scheme, encoded.bytes.len() as u32));
                self.progress.advance(raw.len() as u64);
            }
        }
        if hasher.finish() != id {
            return Err(changed(rel));
        }
        if sound.is_some_and(|(own, under)| !own.is_sound() || under.is_some_and(|v| !v.is_sound())) {
            self.pack()?.discard();
            return Ok(None);
        }
        if let (Some(cache), Some(kept)) = (cache, kept)
            && (base.is_none() || parts.iter().any(|(scheme, _)| scheme.needs_base()))
        {
            kept.finish(cache);
        }
        Ok(Some(parts))
    }

    fn pack(&mut self) -> Result<&mut PackWriter> {
        match &mut self.sink {
            Sink::Pack(pack) => Ok(pack),
            Sink::Ids => Err(RepoError::user("nothing is to be stored here", "")),
        }
    }

    /// The id that the source says a tensor has, where nothing is left to be done for it.
    fn stored_id(&self, source: &dyn Source, e: &Extent) -> Result<Option<Id>> {
        match source.known_id(e) {
            Some(id) if self.has(&id)? => Ok(Some(id)),
            _ => Ok(None),
        }
    }

    pub(super) fn has(&self, id: &Id) -> Result<bool> {
        let in_pack = matches!(&self.sink, Sink::Pack(pack) if pack.get(id).is_some());
        Ok(in_pack || self.odb.contains(id)?)
    }

    /// Ends the payload of a tensor whose segments were appended, and reports it.
    fn place(&mut self, e: &Extent, id: Id, rel: &str, parts: &[(Scheme, u32)], base: Option<BaseRef>) -> Result<()> {
        // A base that no segment needed is left out.
        let most = parts.iter().map(|(s, _)| s.bases()).max().unwrap_or(0);
        let base = base.filter(|_| most > 0);
        let grandparent = base.and_then(|b| b.grandparent).filter(|_| most > 1);
        let lengths: Vec<u32> = parts.iter().map(|p| p.1).collect();
        let header = TensorHeader::encode(e.dtype, &e.shape, [base.map(|b| b.id), grandparent], &lengths);
        let logical = e.byte_len().unwrap_or(0);
        let place = base.map_or(0, |b| b.place);
        let pack = self.pack()?;
        pack.append(&header)?;
        pack.place(NewObject { id, kind: Kind::Tensor, depth: place, base: base.map(|b| b.id), grandparent, logical });
        self.report.tensors.push(TensorReport {
            path: rel.to_owned(),
            name: e.name.clone(),
            dtype: e.dtype.name().to_owned(),
            scheme: scheme_name(parts.iter().map(|p| p.0)).to_owned(),
            logical,
            stored: lengths.iter().map(|&n| u64::from(n)).sum::<u64>() + header.len() as u64,
            depth: base.map_or(0, |b| b.depth),
            max_abs: None,
            rel_l2: None,
            worst_row: None,
            update_error: None,
            worst_row_update: None,
        });
        Ok(())
    }
}

/// The file was written to while it was read.
pub fn changed(rel: &str) -> RepoError {
    RepoError::FileChanged { file: rel.to_owned() }
}

/// One word for the schemes of a tensor's segments.
pub fn scheme_name(mut schemes: impl Iterator<Item = Scheme>) -> &'static str {
    match schemes.next() {
        None => Scheme::Stored.name(),
        Some(first) if schemes.all(|s| s == first) => first.name(),
        Some(_) => "mixed",
    }
}

/// Runs of extents that fit a batch; a larger extent is a batch of its own.
fn batches(extents: &[Extent], most: u64) -> Vec<&[Extent]> {
    let mut out = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (i, e) in extents.iter().enumerate() {
        let len = e.byte_len().unwrap_or(0);
        if i > start && sum + len > most {
            out.push(&extents[start..i]);
            (start, sum) = (i, 0);
        }
        sum += len;
    }
    if start < extents.len() {
        out.push(&extents[start..]);
    }
    out
}

/// Scheme and stored length of each segment.
type Parts = Vec<(Scheme, u32)>;

fn read_segment(source: &dyn Source, e: &Extent, i: usize, rel: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![0; segment_len(e.byte_len().unwrap_or(0), i)];
    let offset = e.offset + (i * SEGMENT_BYTES) as u64;
    source.read_at(offset, &mut bytes).map_err(RepoError::io(format!("cannot read {rel}")))?;
    Ok(bytes)
}

fn encode_segment(
    odb: &Odb,
    e: &Extent,
    (index, raw): (usize, &[u8]),
    bases: Bases<'_>,
    lattice: Option<&Arc<Lattice>>,
) -> Result<Encoded> {
    let refused = |why| RepoError::user(format!("the engine refused tensor {}: {why}", e.name), "");
    let hint = lattice.map(|l| Hint::new(l.clone(), index * SEGMENT_BYTES / e.dtype.size()));
    odb.engine().encode(e.dtype, raw, bases, hint.as_ref()).map_err(refused)
}

/// A base's segment, and that of its own base; or the whole of both.
pub type Pair = (Vec<u8>, Option<Vec<u8>>);

/// A tensor's segments, and what they were encoded against.
type Whole = (Vec<Encoded>, Option<BaseRef>);

/// Whether the next version's base is better read from the cache than decoded. Where a base did not help, as with the
/// first moments of Adam, it will hardly help next time, and what is stored without one is one step to decode.
fn is_worth_caching(had_base: bool, segments: &[Encoded]) -> bool {
    !had_base || segments.iter().any(|s| s.scheme.needs_base())
}

fn encode_whole(
    odb: &Odb,
    e: &Extent,
    bytes: &[u8],
    base: Option<Base<'_>>,
    lattice: Option<&Arc<Lattice>>,
) -> Result<Whole> {
    // Verified against its id: a delta to a damaged base would be lost with it.
    let below = base.and_then(|b| b.read().ok().map(|pair| (b.at, pair)));
    let segments = encode_against(odb, e, bytes, below.as_ref().map(|(_, pair)| pair), lattice)?;
    Ok((segments, below.map(|(at, _)| at)))
}

fn encode_against(
    odb: &Odb,
    e: &Extent,
    bytes: &[u8],
    below: Option<&Pair>,
    lattice: Option<&Arc<Lattice>>,
) -> Result<Vec<Encoded>> {
    let segment = |(i, raw): (usize, &[u8])| {
        let start = i * SEGMENT_BYTES;
        let cut = start..start + raw.len();
        let bases = below.map_or(Bases::NONE, |(base, grandparent)| Bases {
            base: base.get(cut.clone()),
            grandparent: grandparent.as_ref().and_then(|g| g.get(cut)),
        });
        encode_segment(odb, e, (i, raw), bases, lattice)
    };
    bytes.par_chunks(SEGMENT_BYTES).enumerate().map(segment).collect()
}

/// What a tensor of this extent and id would be stored against: an ancestor and that one's base, decoded and verified.
pub fn below(odb: &Odb, e: &Extent, own: &Id, bases: &BaseTensors, chains: Chains) -> Option<Pair> {
    base_of(odb, bases, e, own, chains)?.read().ok()
}

/// Bytes that storing a tensor against what is `below` would take, its header not counted.
pub fn measure(
    odb: &Odb,
    e: &Extent,
    bytes: &[u8],
    below: Option<&Pair>,
    lattice: Option<&Arc<Lattice>>,
) -> Result<u64> {
    if odb.contains(&tensor_id(e.dtype, &e.shape, bytes))? {
        return Ok(0);
    }
    let segments = encode_against(odb, e, bytes, below, lattice)?;
    Ok(segments.iter().map(|s| s.bytes.len() as u64).sum())
}
