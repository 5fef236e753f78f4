//! Tensors in device memory: hashed, encoded and decoded there.

use crate::{
    Decode, DeviceError, Encode, Job, Result, View, batch, blake3,
    device::Driver,
    engine::{CudaEngine, view_of},
    schemes,
};
use mdl_codec::{
    Bases, CodecError, Device, Dtype, Encoded, EncodedTensor, Engine, Held, Resident, Result as CodecResult,
    SEGMENT_BYTES, Scheme, Span, quant::lattice::Hint, scheme_of,
};
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Raw bytes that one piece of work takes: pieces run side by side, so that one computes while another's result is on
/// the bus.
const TILE: usize = 256 << 20;

/// Pieces side by side: each takes up to four times its own length of the device's memory, and three keep bus and
/// kernels busy.
const AT_ONCE: usize = 3;

/// Memory of the device with a tensor in it.
#[derive(Debug)]
pub(crate) struct Room {
    driver: Arc<dyn Driver>,
    ordinal: u32,
    address: u64,
    len: usize,
}

impl Room {
    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Held for Room {
    fn span(&self) -> Span {
        // SAFETY: it is allocated while `self` is there, and was waited for when it was filled.
        unsafe { Span::new(self.ordinal, self.address, self.len) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

/// Where the segments of a tensor of `len` bytes are in it.
pub(crate) fn segments(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len.div_ceil(SEGMENT_BYTES)).map(move |i| i * SEGMENT_BYTES..((i + 1) * SEGMENT_BYTES).min(len))
}

impl CudaEngine {
    /// Turns a device error into the caller's: what is wrong with the bytes, or that the device cannot.
    fn codec_error(&self, e: DeviceError) -> CodecError {
        self.warn(&e);
        match e {
            DeviceError::Corrupt(why) => CodecError::Corrupt(why),
            other => CodecError::Device(other.to_string()),
        }
    }

    /// Memory of unspecified content.
    pub(crate) fn room(&self, len: usize) -> Result<Room> {
        Ok(Room { address: self.driver.alloc(len)?, driver: self.driver.clone(), ordinal: self.ordinal, len })
    }

    /// Refuses memory of another device.
    fn own(&self, span: Span) -> CodecResult<()> {
        if span.device() == self.ordinal {
            Ok(())
        } else {
            Err(CodecError::Device(format!("{} cannot read cuda:{}", self.name(), span.device())))
        }
    }

    /// As [`own`](Self::own), of whole elements: a GPU stops for good, and with it all work of the process there, at an
    /// element that is not aligned to its size.
    fn elements(&self, dtype: Dtype, span: Span) -> CodecResult<()> {
        if !span.address().is_multiple_of(dtype.size() as u64) {
            return Err(CodecError::Device("elements lie across their alignment".to_owned()));
        }
        self.own(span)
    }

    /// Encodes jobs, halving the work where memory does not suffice.
    fn tile(&self, jobs: &[Job<'_>]) -> Result<Vec<Encoded>> {
        match self.on_session(|session| batch::encode(session, &self.cpu, jobs)) {
            Err(DeviceError::OutOfMemory { .. }) if jobs.len() > 1 => {
                let (a, b) = jobs.split_at(jobs.len() / 2);
                let mut done = self.tile(a)?;
                done.extend(self.tile(b)?);
                Ok(done)
            }
            other => other,
        }
    }

    fn decode_into(&self, tensor: EncodedTensor<'_>, room: View<'_>) -> Result<()> {
        let mut by_scheme: BTreeMap<Scheme, Vec<Decode<'_>>> = BTreeMap::new();
        for (encoded, place) in tensor.segments.iter().zip(segments(tensor.len)) {
            let scheme = scheme_of(encoded).map_err(|_| DeviceError::Corrupt("unknown segment scheme"))?;
            let wanted = |span: Option<Span>, count| match span {
                _ if scheme.bases() < count => Ok(None),
                Some(s) if s.len() == tensor.len => Ok(Some(view_of(s).part(place.clone()))),
                _ => Err(DeviceError::Corrupt("a relative is missing or has another length")),
            };
            let job = Decode {
                dtype: tensor.dtype,
                scheme,
                body: &encoded[1..],
                base: wanted(tensor.base, 1)?,
                grandparent: wanted(tensor.grandparent, 2)?,
                out: room.part(place.clone()),
            };
            by_scheme.entry(scheme).or_default().push(job);
        }
        self.on_session(|session| {
            for (scheme, jobs) in &by_scheme {
                match schemes::decode(session, *scheme, jobs) {
                    Err(DeviceError::Unsupported(_)) => jobs.iter().try_for_each(|job| {
                        let bytes = self.by_host(session, job)?;
                        session.write(job.out, &bytes)
                    })?,
                    other => other?,
                }
            }
            Ok(())
        })
    }

    /// The bytes of a segment that no kernel decodes.
    pub(crate) fn by_host(&self, session: &crate::Session, job: &Decode<'_>) -> Result<Vec<u8>> {
        let bring = |v: Option<View<'_>>| v.map(|v| session.download(v)).transpose();
        let (base, grandparent) = (bring(job.base)?, bring(job.grandparent)?);
        let bases = Bases { base: base.as_deref(), grandparent: grandparent.as_deref() };
        let mut out = vec![0; job.out.len()];
        let encoded = [&[job.scheme as u8], job.body].concat();
        let decoded = self.cpu.decode(job.dtype, &encoded, bases, &mut out);
        decoded.map_err(|_| DeviceError::Corrupt("a segment does not decode"))?;
        Ok(out)
    }
}

impl Device for CudaEngine {
    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn hash(&self, context: &str, tensors: &[(Vec<u8>, Span)]) -> CodecResult<Vec<[u8; 32]>> {
        tensors.iter().try_for_each(|(_, span)| self.own(*span))?;
        let list: Vec<(Vec<u8>, View<'_>)> = tensors.iter().map(|(head, s)| (head.clone(), view_of(*s))).collect();
        self.on_session(|session| blake3::hash_all(session, context, &list)).map_err(|e| self.codec_error(e))
    }

    fn encode(&self, tensors: &[Resident<'_>]) -> CodecResult<Vec<Vec<Encoded>>> {
        for t in tensors {
            let bases = [t.base, t.base.and(t.grandparent)];
            let spans = bases.into_iter().flatten();
            if !t.content.len().is_multiple_of(t.dtype.size()) || spans.clone().any(|s| s.len() != t.content.len()) {
                return Err(CodecError::BadInput("whole elements, and relatives as long"));
            }
            spans.chain([t.content]).try_for_each(|s| self.elements(t.dtype, s))?;
        }
        let hints: Vec<Vec<Option<Hint>>> = tensors
            .iter()
            .map(|t| {
                let hint = |r: Range<usize>| Some(Hint::new((*t.lattice?).clone(), r.start / t.dtype.size()));
                segments(t.content.len()).map(hint).collect()
            })
            .collect();
        let mut jobs = Vec::new();
        for (t, hints) in tensors.iter().zip(&hints) {
            for (place, hint) in segments(t.content.len()).zip(hints) {
                let view = |s: Span| view_of(s).part(place.clone());
                let segment = Encode {
                    dtype: t.dtype,
                    raw: view(t.content),
                    base: t.base.map(view),
                    grandparent: t.base.and(t.grandparent).map(view),
                };
                jobs.push(Job { segment, hint: hint.as_ref() });
            }
        }
        let work = tiles(&jobs);
        let done = side_by_side(&work, |jobs| self.tile(jobs));
        let mut done = done.map_err(|e| self.codec_error(e))?.into_iter().flatten();
        Ok(hints.iter().map(|h| done.by_ref().take(h.len()).collect()).collect())
    }

    fn decode(&self, tensor: EncodedTensor<'_>) -> CodecResult<Box<dyn Held>> {
        if tensor.segments.len() != tensor.len.div_ceil(SEGMENT_BYTES)
            || !tensor.len.is_multiple_of(tensor.dtype.size())
        {
            return Err(CodecError::Corrupt("segments and length do not agree"));
        }
        [tensor.base, tensor.grandparent].into_iter().flatten().try_for_each(|s| self.elements(tensor.dtype, s))?;
        let room = self.room(tensor.len).map_err(|e| self.codec_error(e))?;
        self.decode_into(tensor, view_of(room.span())).map_err(|e| self.codec_error(e))?;
        Ok(Box::new(room))
    }

    fn read(&self, span: Span, out: &mut [u8]) -> CodecResult<()> {
        self.own(span)?;
        if span.len() != out.len() {
            return Err(CodecError::BadInput("a copy of unlike lengths"));
        }
        let bytes = self.on_session(|session| session.download(view_of(span))).map_err(|e| self.codec_error(e))?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn release_memory(&self) {
        self.release();
    }

    fn traffic(&self) -> (u64, u64) {
        (self.driver.traffic().up(), self.driver.traffic().down())
    }
}

/// Does pieces of work, [`AT_ONCE`] at a time, and gives what came of them in order.
fn side_by_side<W: Sync, T: Send>(work: &[W], one: impl Fn(&W) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let take = || {
        let i = next.fetch_add(1, Ordering::Relaxed);
        work.get(i).map(|w| (i, w))
    };
    let worker = |_| -> Result<Vec<(usize, T)>> { std::iter::from_fn(take).map(|(i, w)| Ok((i, one(w)?))).collect() };
    let done: Result<Vec<Vec<(usize, T)>>> = (0..AT_ONCE.min(work.len())).into_par_iter().map(worker).collect();
    let mut done: Vec<(usize, T)> = done?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(i, _)| *i);
    Ok(done.into_iter().map(|(_, t)| t).collect())
}

/// Runs of jobs of about [`TILE`] bytes.
fn tiles<'j, 'a>(jobs: &'j [Job<'a>]) -> Vec<&'j [Job<'a>]> {
    let (mut out, mut start, mut sum) = (Vec::new(), 0, 0);
    for (i, job) in jobs.iter().enumerate() {
        if i > start && sum + job.segment.raw.len() > TILE {
            out.push(&jobs[start..i]);
            (start, sum) = (i, 0);
        }
        sum += job.segment.raw.len();
    }
    out.extend((start < jobs.len()).then(|| &jobs[start..]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_are_not_aligned_are_left_to_the_host() {
        let engine = crate::open::shim(1 << 24);
        let address = engine.driver.alloc(4096).unwrap();
        // SAFETY: inside of what was allocated.
        let span = |skip: u64| unsafe { Span::new(engine.ordinal, address + skip, 2048) };
        let tensor = |content, base| Resident { dtype: Dtype::F32, content, base, grandparent: None, lattice: None };
        assert!(Device::encode(&engine, &[tensor(span(4), Some(span(8)))]).is_ok());
        for odd in [tensor(span(2), None), tensor(span(0), Some(span(1)))] {
            assert!(matches!(Device::encode(&engine, &[odd]), Err(CodecError::Device(_))));
        }
        engine.driver.free(address);
    }
}
