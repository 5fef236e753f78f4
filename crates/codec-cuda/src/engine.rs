//! `Engine` of mdl-codec, implemented on a device.

use crate::{
    Buffer, Decode, DeviceError, Encode, Job, Result, Session, View, batch,
    device::{Driver, Lane},
    quantiser::Bins,
    schemes,
};
use mdl_codec::locks::Mutex;
use mdl_codec::{
    Bases, CpuEngine, Device, Dtype, Encoded, Engine, Result as CodecResult, Scheme,
    engine_internals::check,
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Hint, Lattice, Outcome},
    },
    scheme_of,
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Compresses on a device: the bytes of [`CpuEngine`], wherever they are made.
#[derive(Debug)]
pub struct CudaEngine {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) ordinal: u32,
    pub(crate) cpu: CpuEngine,
    /// Shorter segments in host memory are not worth the transfer.
    pub(crate) least: usize,
    /// Bytes of a tensor under quantisation that are on the device at a time.
    pub(crate) piece: usize,
    name: String,
    idle: Mutex<Vec<Lane>>,
    warned: AtomicBool,
    failures: AtomicU64,
}

impl CudaEngine {
    pub(crate) fn new(driver: Arc<dyn Driver>, ordinal: u32, least: usize, piece: usize) -> CudaEngine {
        CudaEngine {
            name: driver.name(),
            driver,
            ordinal,
            cpu: CpuEngine::new(),
            least,
            piece,
            idle: Mutex::default(),
            warned: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }

    /// How often the CPU did what the device was asked to, for whatever reason.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Gives memory that is kept for the next piece of work back to the device.
    pub(crate) fn release(&self) {
        self.idle.lock().iter_mut().for_each(Lane::release);
    }

    /// Does work on a lane of its own, and waits for it.
    pub(crate) fn on_session<T>(&self, mut work: impl FnMut(&Session) -> Result<T>) -> Result<T> {
        let mut once = || {
            let idle = self.idle.lock().pop();
            let session = Session::new(match idle {
                Some(lane) => lane,
                None => Lane::new(self.driver.clone())?,
            });
            let done = work(&session);
            // Memory that the caller lent must not be read any more once this returns, whether or not the work
            // succeeded.
            let waited = session.wait();
            let mut lane = session.end();
            if let Err(e) = waited {
                return Err(done.err().unwrap_or(e));
            }
            // A driver keeps streams, and pinned memory with each, for good: work that failed must not cost one.
            if done.is_err() {
                lane.release();
            }
            self.idle.lock().push(lane);
            done
        };
        match once() {
            // Idle lanes may be holding memory that they do not use.
            Err(DeviceError::OutOfMemory { .. }) => {
                self.release();
                once()
            }
            other => other,
        }
    }

    /// Reports once why the CPU does what the device was asked to.
    pub(crate) fn warn(&self, why: &DeviceError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let unusual = !matches!(why, DeviceError::Unsupported(_) | DeviceError::Corrupt(_));
        if unusual && !self.warned.swap(true, Ordering::Relaxed) {
            eprintln!("warning: {} cannot go on ({why}); the processor does the rest", self.name);
        }
    }

    fn encode_there(&self, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> Result<Encoded> {
        self.on_session(|session| {
            let raw = session.upload(raw)?;
            let there = upload_bases(session, [bases.base, bases.base.and(bases.grandparent)])?;
            let [base, grandparent] = there.each_ref().map(|b| b.as_ref().map(Buffer::view));
            let segment = Encode { dtype, raw: raw.view(), base, grandparent };
            let mut done = batch::encode(session, &self.cpu, &[Job { segment, hint }])?;
            done.pop().ok_or_else(|| DeviceError::Failed("no result".to_owned()))
        })
    }

    fn decode_there(&self, dtype: Dtype, encoded: &[u8], bases: Bases<'_>, out: &mut [u8]) -> Result<()> {
        let scheme = scheme_of(encoded).map_err(|_| DeviceError::Corrupt("unknown segment scheme"))?;
        let base = bases.base.filter(|_| scheme.bases() >= 1);
        let grandparent = bases.grandparent.filter(|_| scheme.bases() >= 2);
        let given: Vec<&[u8]> = [base, grandparent].into_iter().flatten().collect();
        if given.len() != usize::from(scheme.bases()) || given.iter().any(|b| b.len() != out.len()) {
            return Err(DeviceError::Corrupt("a relative is missing or has another length"));
        }
        self.on_session(|session| {
            let there = upload_bases(session, [base, grandparent])?;
            let [base, grandparent] = there.each_ref().map(|b| b.as_ref().map(Buffer::view));
            let room = session.buffer(out.len())?;
            let job = Decode { dtype, scheme, body: &encoded[1..], base, grandparent, out: room.view() };
            schemes::decode(session, scheme, &[job])?;
            session.download_into(room.view(), out)
        })
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&self, dtype: Dtype, raw: &[u8], bases: Bases<'_>, hint: Option<&Hint>) -> CodecResult<Encoded> {
        check(dtype, raw, bases)?;
        if !raw.is_empty() && raw.len() >= self.least {
            match self.encode_there(dtype, raw, bases, hint) {
                Ok(done) => return Ok(done),
                Err(e) => self.warn(&e),
            }
        }
        self.cpu.encode(dtype, raw, bases, hint)
    }

    fn decode(&self, dtype: Dtype, encoded: &[u8], bases: Bases<'_>, out: &mut [u8]) -> CodecResult<()> {
        let on_host = |s| matches!(s, Scheme::Stored | Scheme::Zstd | Scheme::LatticeMoves);
        let passes = scheme_of(encoded).is_ok_and(|s| !s.is_overlay() && !on_host(s));
        let fits = out.len() >= self.least && !out.is_empty() && out.len().is_multiple_of(dtype.size());
        if passes && fits && out.len() <= mdl_codec::SEGMENT_BYTES {
            match self.decode_there(dtype, encoded, bases, out) {
                Ok(()) => return Ok(()),
                Err(e) => self.warn(&e),
            }
        }
        // For segments that do not decode the CPU engine says why.
        self.cpu.decode(dtype, encoded, bases, out)
    }

    fn decode_chain(&self, dtype: Dtype, chain: &[&[u8]], bases: Bases<'_>, out: &mut [u8]) -> CodecResult<()> {
        match chain {
            [one] => Engine::decode(self, dtype, one, bases, out),
            // The host adds up moves, which no kernel does: it has the rest of their chain, too.
            _ => self.cpu.decode_chain(dtype, chain, bases, out),
        }
    }

    fn decode_range(
        &self,
        dtype: Dtype,
        encoded: &[u8],
        len: usize,
        bases: Bases<'_>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> CodecResult<()> {
        if range == (0..len / dtype.size()) && out.len() == len {
            return Engine::decode(self, dtype, encoded, bases, out);
        }
        // A part touches only its blocks: little work, and on the host.
        self.cpu.decode_range(dtype, encoded, len, bases, range, out)
    }

    fn sketch(&self, values: Values<'_>) -> CodecResult<Sketch> {
        self.sketched(values)
    }

    fn survey(&self, weights: Values<'_>, gradient: Values<'_>) -> CodecResult<[Sketch; 2]> {
        self.surveyed(weights, gradient)
    }

    fn rest(&self, weights: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts) -> CodecResult<Sketch> {
        self.rested(weights, gradient, cuts)
    }

    fn restore(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> CodecResult<bool> {
        let bins = Bins { weights, gradient, cuts, codebook };
        Ok(self.restored(bins, out, false)?.is_some())
    }

    fn restore_measured(
        &self,
        weights: Values<'_>,
        gradient: Option<Values<'_>>,
        cuts: &Cuts,
        codebook: &Codebook,
        out: &mut [u8],
    ) -> CodecResult<Option<Deviation>> {
        let bins = Bins { weights, gradient, cuts, codebook };
        self.restored(bins, out, true)
    }

    fn quantise(&self, lattice: &Lattice, start: usize, w: &[u8], rec: &mut [u8]) -> CodecResult<Outcome> {
        Ok(self.quantised(lattice, start, w, rec, false)?.0)
    }

    fn quantise_measured(
        &self,
        lattice: &Lattice,
        start: usize,
        w: &[u8],
        rec: &mut [u8],
    ) -> CodecResult<Option<Deviation>> {
        let (outcome, apart) = self.quantised(lattice, start, w, rec, true)?;
        Ok((outcome == Outcome::Quantised).then_some(apart))
    }

    fn deviation(&self, dtype: Dtype, raw: &[u8], rec: &[u8]) -> CodecResult<Deviation> {
        self.deviated(dtype, raw, rec)
    }

    fn device(&self, ordinal: u32) -> Option<&dyn Device> {
        (ordinal == self.ordinal).then_some(self as &dyn Device)
    }
}

fn upload_bases<'s>(session: &'s Session, bases: [Option<&[u8]>; 2]) -> Result<[Option<Buffer<'s>>; 2]> {
    let [base, grandparent] = bases.map(|b| b.map(|b| session.upload(b)).transpose());
    Ok([base?, grandparent?])
}

/// A view of what is lent.
pub(crate) fn view_of(span: mdl_codec::Span) -> View<'static> {
    View::at(span.address(), span.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::shim::Shim;

    #[test]
    fn work_that_fails_costs_no_stream_and_keeps_no_memory() {
        let engine = CudaEngine::new(Arc::new(Shim::new(1 << 16)), 0, 0, 1 << 20);
        for why in [DeviceError::Corrupt("a test"), DeviceError::OutOfMemory { wanted: 1 << 40 }] {
            let failed = engine.on_session(|session| {
                session.buffer(40_000)?;
                Err::<(), _>(why.clone())
            });
            assert!(failed.is_err());
            assert_eq!(engine.idle.lock().len(), 1);
        }
        // There is room for this once.
        engine.on_session(|session| session.buffer(60_000).map(|_| ())).unwrap();
    }
}
