//! Quantiser passes on a device: those that a lossy commit makes over whole tensors.
//!
//! A tensor of the host's goes there in pieces, each once for all that is asked of it: a piece is little memory beside
//! a tensor, and all answers are sums, maxima or elements of their own.

pub(crate) mod deviation;
pub(crate) mod restore;
pub(crate) mod sketch;

use crate::{Buffer, Result, Session, engine::CudaEngine, schemes::lattice};
use mdl_codec::{
    Dtype, Engine, Result as CodecResult,
    engine_internals::{deviation_of_parts, lattice::Piece},
    quant::{
        Codebook, Cuts, Deviation, Sketch, Values,
        lattice::{Lattice, Outcome, Reason},
    },
};
use sketch::{Numbers, kind};
use std::ops::Range;

/// What decides what a weight becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bins<'a> {
    pub weights: Values<'a>,
    pub gradient: Option<Values<'a>>,
    pub cuts: &'a Cuts,
    pub codebook: &'a Codebook,
}

/// Numbers that were copied to the device.
struct There<'s>(Dtype, Buffer<'s>);

impl<'s> There<'s> {
    fn new(session: &'s Session, values: Values<'_>) -> Result<There<'s>> {
        Ok(There(values.dtype(), session.upload(values.bytes())?))
    }

    fn numbers(&self) -> Numbers<'_> {
        (self.0, self.1.view())
    }
}

fn same_length(weights: Values<'_>, gradient: Option<Values<'_>>) -> bool {
    gradient.is_none_or(|g| g.len() == weights.len())
}

impl CudaEngine {
    /// The device pass for a tensor of so many bytes; none where the CPU is to do it.
    fn there<T>(&self, sound: bool, bytes: usize, work: impl FnMut(&Session) -> Result<T>) -> Option<T> {
        if !sound || bytes == 0 || bytes < self.least {
            return None;
        }
        self.on_session(work).inspect_err(|e| self.warn(e)).ok()
    }

    /// Elements, piece by piece; all but the last are whole parts of a deviation.
    fn pieces(&self, dtype: Dtype, len: usize) -> impl Iterator<Item = Range<usize>> {
        let step = (self.piece / dtype.size()).next_multiple_of(deviation::PART);
        (0..len).step_by(step).map(move |at| at..len.min(at + step))
    }

    pub(crate) fn sketched(&self, values: Values<'_>) -> CodecResult<Sketch> {
        let counted = self.there(true, values.bytes().len(), |session| {
            let mut all = Sketch::default();
            for at in self.pieces(values.dtype(), values.len()) {
                let there = There::new(session, values.part(at.start, at.len()))?;
                let found = sketch::from_values(session, &[there.numbers()])?;
                found.iter().for_each(|s| all.merge(s));
            }
            Ok(all)
        });
        counted.map_or_else(|| self.cpu.sketch(values), Ok)
    }

    pub(crate) fn surveyed(&self, weights: Values<'_>, gradient: Values<'_>) -> CodecResult<[Sketch; 2]> {
        let sound = same_length(weights, Some(gradient));
        let counted = self.there(sound, weights.bytes().len(), |session| {
            let mut all = <[Sketch; 2]>::default();
            for at in self.pieces(weights.dtype(), weights.len()) {
                let [w, g] = [weights, gradient].map(|v| There::new(session, v.part(at.start, at.len())));
                let found = sketch::survey(session, &[(w?.numbers(), g?.numbers())])?;
                for two in &found {
                    all.iter_mut().zip(two).for_each(|(all, one)| all.merge(one));
                }
            }
            Ok(all)
        });
        counted.map_or_else(|| self.cpu.survey(weights, gradient), Ok)
    }

    pub(crate) fn rested(&self, weights: Values<'_>, gradient: Option<Values<'_>>, cuts: &Cuts) -> CodecResult<Sketch> {
        let Some(slopes) = gradient else {
            return Ok(mdl_codec::quant::rest_of(&self.sketched(weights)?, cuts));
        };
        let sound = same_length(weights, gradient);
        let counted = self.there(sound, weights.bytes().len(), |session| {
            let mut all = Sketch::default();
            for at in self.pieces(weights.dtype(), weights.len()) {
                let [w, g] = [weights, slopes].map(|v| There::new(session, v.part(at.start, at.len())));
                let found = sketch::rest(session, &[(w?.numbers(), g?.numbers(), *cuts)])?;
                found.iter().for_each(|s| all.merge(s));
            }
            Ok(all)
        });
        counted.map_or_else(|| self.cpu.rest(weights, gradient, cuts), Ok)
    }

    /// None: the tensor must stay lossless. The deviation is valid only if it was to be measured.
    pub(crate) fn restored(&self, bins: Bins<'_>, out: &mut [u8], measured: bool) -> CodecResult<Option<Deviation>> {
        let Bins { weights, gradient, cuts, codebook } = bins;
        let (dtype, size) = (weights.dtype(), weights.dtype().size());
        let sound = out.len() == weights.bytes().len() && same_length(weights, gradient);
        let done = self.there(sound, out.len(), |session| {
            let mut parts = Vec::new();
            for at in self.pieces(dtype, weights.len()) {
                let raw = There::new(session, weights.part(at.start, at.len()))?;
                let slopes = gradient.map(|g| There::new(session, g.part(at.start, at.len())));
                let slopes = slopes.transpose()?;
                let slopes = slopes.as_ref().map(There::numbers);
                let rec = session.buffer(at.len() * size)?;
                if !restore::run(session, raw.numbers(), slopes, cuts, codebook, rec.view())? {
                    return Ok(None);
                }
                if measured {
                    parts.extend(deviation::parts(session, raw.numbers(), rec.view())?);
                }
                session.download_into(rec.view(), &mut out[at.start * size..at.end * size])?;
            }
            Ok(Some(deviation_of_parts(parts)))
        });
        match done {
            Some(done) => Ok(done),
            None if measured => self.cpu.restore_measured(weights, gradient, cuts, codebook, out),
            None => {
                let held = self.cpu.restore(weights, gradient, cuts, codebook, out)?;
                Ok(held.then(Deviation::default))
            }
        }
    }

    /// The deviation is valid only if it was to be measured.
    pub(crate) fn quantised(
        &self,
        lattice: &Lattice,
        start: usize,
        w: &[u8],
        rec: &mut [u8],
        measured: bool,
    ) -> CodecResult<(Outcome, Deviation)> {
        let (dtype, size) = (lattice.dtype(), lattice.dtype().size());
        let sound = rec.len() == w.len() && Piece::new(lattice, start, w.len()).is_ok();
        let done = self.there(sound, w.len(), |session| {
            let (mut parts, mut worst) = (Vec::new(), None::<Reason>);
            for at in self.pieces(dtype, w.len() / size) {
                let bytes = at.start * size..at.end * size;
                let raw = session.upload(&w[bytes.clone()])?;
                let to = session.buffer(bytes.len())?;
                match lattice::quantise(session, lattice, start + at.start, raw.view(), to.view())? {
                    // Over all pieces the worst counts.
                    Outcome::Lossless(why) => worst = worst.max(Some(why)),
                    Outcome::Quantised if worst.is_some() => {}
                    Outcome::Quantised => {
                        if measured {
                            parts.extend(deviation::parts(session, (dtype, raw.view()), to.view())?);
                        }
                        session.download_into(to.view(), &mut rec[bytes])?;
                    }
                }
            }
            let outcome = worst.map_or(Outcome::Quantised, Outcome::Lossless);
            Ok((outcome, deviation_of_parts(parts)))
        });
        if let Some(done) = done {
            return Ok(done);
        }
        let outcome = self.cpu.quantise(lattice, start, w, rec)?;
        let apart = match outcome {
            Outcome::Quantised if measured => self.cpu.deviation(dtype, w, rec)?,
            _ => Deviation::default(),
        };
        Ok((outcome, apart))
    }

    pub(crate) fn deviated(&self, dtype: Dtype, raw: &[u8], rec: &[u8]) -> CodecResult<Deviation> {
        let (a, b) = (Values::new(dtype, raw)?, Values::new(dtype, rec)?);
        let done = self.there(a.len() == b.len(), raw.len(), |session| {
            let mut parts = Vec::new();
            for at in self.pieces(dtype, a.len()) {
                let [raw, rec] = [a, b].map(|v| There::new(session, v.part(at.start, at.len())));
                parts.extend(deviation::parts(session, raw?.numbers(), rec?.1.view())?);
            }
            Ok(deviation_of_parts(parts))
        });
        done.map_or_else(|| self.cpu.deviation(dtype, raw, rec), Ok)
    }
}
