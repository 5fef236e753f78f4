//! A tensor that lives in memory in encoded form: decoded when it is used, encoded again when it changes.
//!
//! NeuZip (arXiv 2410.20650) keeps weights so, lossless (section 2.2) or lossy (section 2.3); moments of an optimizer
//! are kept the same way. Segments are cut and encoded as a repository's, so that these can be taken as they are.

use crate::{
    Bases, CodecError, CpuEngine, Dtype, Engine, Result, SEGMENT_BYTES,
    quant::{
        Values,
        moments::{self, Bits, Moment},
        neuzip,
    },
    scheme_of,
    threads::{try_share_out, try_share_out_all},
};
use std::{ops::Range, sync::Arc};

/// How elements are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As they are.
    Lossless,
    /// NeuZip's lossy variant: 0, 1 or 3 bits of mantissa, in blocks that share a coefficient.
    Lossy {
        /// Mantissa bits kept.
        keep: u32,
        /// Elements of a block.
        block: usize,
    },
    /// An optimizer's moment on logarithmic levels; one that these cannot hold stays as it is.
    Moment {
        /// Which one.
        kind: Moment,
        /// How fine the levels are.
        bits: Bits,
    },
}

/// A segment's bytes, and whether they are a chunk of NeuZip's lossy form rather than an [`Engine`]'s encoding.
#[derive(Clone, Debug)]
struct Segment {
    lossy: bool,
    bytes: Arc<[u8]>,
}

/// An encoded tensor. Copies share what neither has changed.
#[derive(Clone, Debug)]
pub struct CompressedTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    coding: Coding,
    len: usize,
    segments: Vec<Segment>,
}

impl CompressedTensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`CodecError::BadInput`]: more bytes than there are addresses; a lossy coding of what is not f64, f32, f16 or
    /// bf16, or that does not exist.
    pub fn zeros(engine: &CpuEngine, dtype: Dtype, shape: &[usize], coding: Coding) -> Result<Self> {
        let len = byte_len(dtype, shape)?;
        let mut made = CompressedTensor { dtype, shape: shape.to_vec(), coding, len, segments: Vec::new() };
        let zeros = vec![0; made.step().min(len)];
        for start in (0..len).step_by(made.step()) {
            let n = zeros.len().min(len - start);
            made.segments.push(made.encode_one(engine, &zeros[..n])?);
        }
        Ok(made)
    }

    /// A tensor of segments that an [`Engine`] encoded without bases, cut at every [`SEGMENT_BYTES`]. They are decoded
    /// when they are used: damage shows then.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for another number of segments; [`CodecError::MissingBase`] for one with a base.
    pub fn from_segments(dtype: Dtype, shape: &[usize], segments: Vec<Vec<u8>>) -> Result<Self> {
        let len = byte_len(dtype, shape)?;
        if segments.len() != len.div_ceil(SEGMENT_BYTES) {
            return Err(CodecError::BadInput("another number of segments than the shape needs"));
        }
        let segment = |bytes: Vec<u8>| match scheme_of(&bytes)?.needs_base() {
            true => Err(CodecError::MissingBase),
            false => Ok(Segment { lossy: false, bytes: bytes.into() }),
        };
        let segments = segments.into_iter().map(segment).collect::<Result<_>>()?;
        Ok(CompressedTensor { dtype, shape: shape.to_vec(), coding: Coding::Lossless, len, segments })
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Decoded bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How elements are encoded.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Encoded bytes.
    pub fn encoded_len(&self) -> usize {
        self.segments.iter().map(|s| s.bytes.len()).sum()
    }

    /// The segments as a repository stores them; none where they are in lossy form.
    pub fn segments(&self) -> Option<Vec<Arc<[u8]>>> {
        self.segments.iter().map(|s| (!s.lossy).then(|| s.bytes.clone())).collect()
    }

    /// Decoded bytes of a segment, the last one excepted.
    fn step(&self) -> usize {
        match self.coding {
            Coding::Lossy { .. } => neuzip::CHUNK * self.dtype.size(),
            _ => SEGMENT_BYTES,
        }
    }

    /// Replaces the elements. Old segments go one by one as new ones come, so that there are never two of all.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for another length, or elements that are no numbers of the coding's.
    pub fn encode(&mut self, engine: &CpuEngine, raw: &[u8]) -> Result<()> {
        if raw.len() != self.len {
            return Err(CodecError::BadInput("another length than the tensor's"));
        }
        let quantised = match self.coding {
            Coding::Moment { kind, bits } => moments::quantise(kind, bits, Values::new(self.dtype, raw)?, &self.shape)?,
            _ => None,
        };
        let raw = quantised.as_deref().unwrap_or(raw);
        let (step, mut segments) = (self.step(), std::mem::take(&mut self.segments));
        let replace = |(old, part): (&mut Segment, &[u8])| {
            *old = Segment { lossy: false, bytes: Arc::default() };
            *old = self.encode_one(engine, part)?;
            Ok(())
        };
        let done = self.each_segment(segments.iter_mut().zip(raw.chunks(step)).collect(), replace);
        self.segments = segments;
        done
    }

    fn encode_one(&self, engine: &CpuEngine, raw: &[u8]) -> Result<Segment> {
        if let Coding::Lossy { keep, block } = self.coding {
            let values = Values::new(self.dtype, raw)?;
            // Numbers that are not finite have no coefficient: they stay as they are.
            if let Some(bytes) = neuzip::encode(engine, values, keep, block)? {
                return Ok(Segment { lossy: true, bytes: bytes.into() });
            }
        }
        let bytes = engine.encode(self.dtype, raw, Bases::NONE, None)?.bytes;
        Ok(Segment { lossy: false, bytes: bytes.into() })
    }

    /// Decodes all elements.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for another length of `out`; damaged segments.
    pub fn decode(&self, engine: &CpuEngine, out: &mut [u8]) -> Result<()> {
        if out.len() != self.len {
            return Err(CodecError::BadInput("another length than the tensor's"));
        }
        let step = self.step();
        let parts = out.chunks_mut(step).zip(&self.segments).collect();
        self.each_segment(parts, |(out, segment)| self.decode_one(engine, segment, out))
    }

    fn decode_one(&self, engine: &CpuEngine, segment: &Segment, out: &mut [u8]) -> Result<()> {
        match segment.lossy {
            true => neuzip::decode(engine, self.dtype, &segment.bytes, out),
            false => engine.decode(self.dtype, &segment.bytes, Bases::NONE, out),
        }
    }

    /// A chunk of the lossy form is one block; other segments are many, and shared out themselves.
    fn each_segment<T: Send>(&self, parts: Vec<T>, work: impl Fn(T) -> Result<()> + Sync + Send) -> Result<()> {
        match self.coding {
            Coding::Lossy { .. } => try_share_out(parts, work),
            _ => try_share_out_all(parts, work),
        }
    }

    /// Decodes the elements in `range`, touching only what holds them: cheapest where it begins and ends at a multiple
    /// of [`neuzip::CHUNK`] elements.
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for a range outside the tensor or another length of `out`; damaged segments.
    pub fn decode_range(&self, engine: &CpuEngine, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let (size, step) = (self.dtype.size(), self.step());
        if range.start > range.end || range.end > self.len / size || out.len() != range.len() * size {
            return Err(CodecError::BadInput("a range outside the tensor"));
        }
        let (start, end) = (range.start * size, range.end * size);
        let mut parts = Vec::new();
        let mut rest = out;
        for index in start / step..end.div_ceil(step) {
            let whole = index * step..self.len.min((index + 1) * step);
            let wanted = whole.start.max(start)..whole.end.min(end);
            let (now, later) = rest.split_at_mut(wanted.len());
            parts.push((&self.segments[index], wanted.start - whole.start, whole.len(), now));
            rest = later;
        }
        self.each_segment(parts, |(segment, from, whole, out): (&Segment, usize, usize, &mut [u8])| {
            if out.len() == whole {
                return self.decode_one(engine, segment, out);
            }
            if segment.lossy {
                let mut all = vec![0; whole];
                self.decode_one(engine, segment, &mut all)?;
                out.copy_from_slice(&all[from..from + out.len()]);
                return Ok(());
            }
            let elements = from / size..(from + out.len()) / size;
            engine.decode_range(self.dtype, &segment.bytes, whole, Bases::NONE, elements, out)
        })
    }
}

fn byte_len(dtype: Dtype, shape: &[usize]) -> Result<usize> {
    let len = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)).filter(|&n| n <= isize::MAX as usize);
    len.ok_or(CodecError::BadInput("more bytes than there are addresses"))
}
