//! Schemes "palette", "palette delta" and "palette delta 2" on the device.
//!
//! Encoding is one pass over the elements and their bases (`look`: symbols, places, contexts, counts), one over the
//! symbols of blocks with exceptions (`strays`), and, after the host's decision (`plan`), one that makes contexts; then
//! the streams. Decoding is the same backwards. Tables, counts and compressed bytes go over the bus, nothing else.

mod assemble;
mod decode;
mod encode;
mod look;
mod open;
mod plan;
mod strays;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
use look::{Looked, Segment};
use strays::{Strays, Summary};

use crate::{Arg, Buffer, Kernel, Result, Session, layout::pair};
use mdl_codec::engine_internals::palette::Table;

/// Threads of a block: of kernels that take a tile, and of those that take a whole block of the format, one part after
/// the other.
const THREADS: u32 = 256;
const WIDE: u32 = 512;
/// Numbers of a block of the format, as encoders cut.
const BLOCK_LOG: u32 = 18;
/// Tiles that fill a large GPU: tiles are no larger than leaves as many.
const MANY: usize = 1024;
/// What a kernel's flags say about numbers.
const FLOAT: u64 = 1;

/// Pieces of segments for the blocks of a grid.
#[derive(Debug)]
struct Tiles {
    /// Bytes of a number and the tiles of segments that have such: segment | first number << 32.
    by_size: [(usize, Vec<u64>); 3],
    /// Numbers of a tile: a power of two, at most a block.
    length: u32,
}

impl Tiles {
    /// Cuts segments of so many numbers of so many bytes.
    fn new(segments: &[(usize, usize)]) -> Tiles {
        let total: usize = segments.iter().map(|s| s.0).sum();
        let log = (13..=16).rev().find(|log| total >> log >= MANY).unwrap_or(13);
        let mut by_size = [2, 4, 8].map(|size| (size, Vec::new()));
        for (i, &(n, size)) in segments.iter().enumerate() {
            for (_, tiles) in by_size.iter_mut().filter(|(s, _)| *s == size) {
                tiles.extend((0..n).step_by(1 << log).map(|first| pair(i, first)));
            }
        }
        Tiles { by_size, length: 1 << log }
    }

    /// Starts the kernel for each size, of those for 2, 4 and 8 bytes; its arguments are the segments' structures, the
    /// tiles and their length.
    fn launch(&self, session: &Session, kernels: [Kernel; 3], segments: &Buffer<'_>) -> Result<()> {
        for (kernel, (_, tiles)) in kernels.into_iter().zip(&self.by_size).filter(|(_, (_, tiles))| !tiles.is_empty()) {
            let there = session.upload_u64(tiles)?;
            let args = [segments.arg(), there.arg(), Arg::U32(self.length)];
            session.launch(kernel, (tiles.len() as u32, 1), THREADS, &args)?;
        }
        Ok(())
    }
}

/// Steps of a search among the bounds of so many values.
fn levels(values: usize) -> u32 {
    values.next_power_of_two().ilog2()
}

/// A table as `PaletteTable` reads it: 256 bounds as a tree in level order from 1 on, 256 values, as monotone integers;
/// then the values as bits.
fn device_table(table: &Table, out: &mut Vec<u8>) {
    let wide = table.numbers.size == 8;
    let mut number = |v: i64| match wide {
        true => out.extend_from_slice(&v.to_le_bytes()),
        false => out.extend_from_slice(&(v as i32).to_le_bytes()),
    };
    // Whatever is above all bounds goes past them: more than there are values is cut off again.
    let most = if wide { i64::MAX } else { i32::MAX.into() };
    let (bounds, levels) = (table.bounds(), levels(table.values.len()));
    for k in 0..256usize {
        let sorted = k.checked_ilog2().filter(|l| *l < levels).map(|level| {
            let step = 1 << (levels - level);
            (k - (1 << level)) * step + step / 2 - 1
        });
        number(sorted.and_then(|i| bounds.get(i)).copied().unwrap_or(most));
    }
    let ordered = table.ordered();
    (0..256).for_each(|i| number(ordered.get(i).copied().unwrap_or(most)));
    (0..256).for_each(|i| number(table.values.get(i).copied().unwrap_or_default() as i64));
}

/// Number of values, bytes of a number, low bytes that are zero in exceptions, whether it is a float: `PaletteShape`.
fn shape(table: &Table, zero: u8) -> u64 {
    let parts = [table.values.len() as u8, table.numbers.size as u8, zero, table.numbers.is_float().into()];
    u32::from_le_bytes(parts).into()
}
