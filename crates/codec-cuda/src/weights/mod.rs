//! Weights that stay compressed in the device's memory: decoded, or multiplied with a few vectors, whenever a layer
//! asks, on the caller's stream and without the host.
//!
//! They are checked once, when they are put there. Then the states of every rANS stream are noted at each chunk of
//! 8,192 numbers (1.2 % of an exponent-coded bf16 tensor), so that thousands of warps decode at once.

mod blocks;
mod encode;
mod lossy;
mod place;
mod planes;
mod product;
#[cfg(test)]
mod tests;

use crate::{
    Arg, CudaEngine, DeviceError, Kernel,
    device::{Driver, Stream},
    resident::Room,
};
use blocks::Block;
use mdl_codec::{CodecError, Dtype, Result as CodecResult, Span};
use place::Kept;
pub use product::Product;
use std::sync::Arc;

/// Chunks of a block of threads: `WEIGHT_WARPS` in `weights.cuh`.
const WARPS: usize = 8;

/// The caller's order of work: a stream of the device's primary context, which PyTorch uses too.
#[derive(Clone, Copy, Debug)]
pub struct Queue(u64);

impl Queue {
    /// A stream by its handle (`CUstream`; 0 is the default stream).
    ///
    /// # Safety
    /// The stream exists until the work that is put on it has happened. Memory that is lent to that work stays
    /// allocated until then, too.
    pub unsafe fn new(handle: u64) -> Queue {
        Queue(handle)
    }
}

/// An encoded part of a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A segment that stands on no base.
    Segment(&'a [u8]),
    /// NeuZip's lossy form: bits kept, log2 of a block, the exponents' encoding after its length, a mantissa for each
    /// block, signs and mantissas packed.
    Lossy(&'a [u8]),
}

/// A tensor in the device's memory, compressed. What it keeps besides the encoded bytes is in [`resident`].
///
/// [`resident`]: Weights::resident
#[derive(Debug)]
pub struct Weights {
    driver: Arc<dyn Driver>,
    ordinal: u32,
    dtype: Dtype,
    /// Elements.
    n: usize,
    room: Room,
    table: Table,
    lossy: bool,
    /// Of what the bytes of each segment are made, where they are kept.
    stored: Option<Vec<Vec<Kept>>>,
}

/// How the room is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// Not at all: an encoding failed.
    Lost,
    /// All elements as they are.
    Plain,
    /// Addresses of the list of blocks, of tiles, and of the numbers at which chunks begin.
    Blocks { blocks: u64, tiles: u64, firsts: u64, tile_count: u32, chunks: u32 },
}

/// The kernel of a dtype: f32, f16 or bf16.
fn of_dtype(dtype: Dtype, kernels: [Kernel; 3]) -> Option<Kernel> {
    let [f32, f16, bf16] = kernels;
    match dtype {
        Dtype::F32 => Some(f32),
        Dtype::F16 => Some(f16),
        Dtype::BF16 => Some(bf16),
        _ => None,
    }
}

const DECODE: [Kernel; 3] = [
    Kernel::new("weights", "weights_decode_f32"),
    Kernel::new("weights", "weights_decode_f16"),
    Kernel::new("weights", "weights_decode_bf16"),
];

impl CudaEngine {
    /// Puts an encoded tensor of `n` elements into the device's memory, part by part of `step` elements each. What
    /// kernels do not decode on their own (schemes other than planes, codes of Huffman) lies there decoded.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] where the processor refuses a part, too; [`CodecError::Device`]: the device cannot, or
    /// has no memory left; [`CodecError::BadInput`]: another number of parts.
    pub fn weights(&self, dtype: Dtype, n: usize, step: usize, parts: &[Part<'_>]) -> CodecResult<Weights> {
        let lossy = parts.iter().any(|p| matches!(p, Part::Lossy(_)));
        if step == 0 || parts.len() != n.div_ceil(step) || lossy && step != lossy::PART {
            return Err(CodecError::BadInput("parts and length do not agree"));
        }
        place::place(self, dtype, n, step, parts).map_err(failed)
    }
}

impl CudaEngine {
    /// Waits for the work on a queue.
    ///
    /// # Errors
    /// [`CodecError::Device`]: the device failed.
    pub fn wait(&self, queue: Queue) -> CodecResult<()> {
        self.driver.wait(Stream::Lent(queue.0)).map_err(failed)
    }
}

impl Weights {
    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes of all elements, decoded.
    pub fn len(&self) -> usize {
        self.n * self.dtype.size()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Bytes of the device's memory that they take.
    pub fn resident(&self) -> usize {
        self.room.len()
    }

    /// Decodes all elements into `out`, which is as long. Returns when the work is on the queue.
    ///
    /// # Errors
    /// [`CodecError::BadInput`]: another length; [`CodecError::Device`]: another device's memory, elements that are
    /// not aligned, or the device failed.
    pub fn decode(&self, queue: Queue, out: Span) -> CodecResult<()> {
        if out.len() != self.len() {
            return Err(CodecError::BadInput("a tensor of another length"));
        }
        self.check(out)?;
        if self.n == 0 {
            return Ok(());
        }
        let on = Stream::Lent(queue.0);
        let done = match (self.table, of_dtype(self.dtype, DECODE)) {
            (Table::Lost, _) => return Err(encode::lost()),
            (Table::Plain, _) => self.driver.copy(on, self.room.address(), out.address(), self.len()),
            (Table::Blocks { blocks, tiles, tile_count, .. }, Some(kernel)) => {
                let args = [Arg::Ptr(blocks), Arg::Ptr(tiles), Arg::Ptr(out.address())];
                self.driver.launch(on, kernel, (tile_count, 1), 32 * WARPS as u32, &args)
            }
            (Table::Blocks { .. }, None) => Err(DeviceError::Unsupported("weights of this type")),
        };
        done.map_err(failed)
    }

    /// Refuses memory of another device, and elements that are not aligned: a GPU stops for good at these.
    fn check(&self, span: Span) -> CodecResult<()> {
        if span.device() != self.ordinal {
            return Err(CodecError::Device(format!(
                "weights of cuda:{}, memory of cuda:{}",
                self.ordinal,
                span.device()
            )));
        }
        match span.address().is_multiple_of(self.dtype.size() as u64) {
            true => Ok(()),
            false => Err(CodecError::Device("elements lie across their alignment".to_owned())),
        }
    }
}

/// What a device says, to callers.
fn failed(e: DeviceError) -> CodecError {
    match e {
        DeviceError::Corrupt(why) => CodecError::Corrupt(why),
        other => CodecError::Device(other.to_string()),
    }
}
