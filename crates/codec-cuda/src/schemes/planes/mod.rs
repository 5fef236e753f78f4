//! Scheme "planes" on the device: a segment coded without a base.
//!
//! Every pass is one launch over all segments (and one for each size of number): a list of tiles says which block of
//! threads does what.

mod decode;
mod encode;
mod exceptions;
mod groups;
mod item;
#[cfg(test)]
pub(crate) mod tests;
mod there;

use crate::{Kernel, Result, Session, View};
use mdl_codec::engine_internals::Cut;

pub(crate) use decode::decode;
use decode::{Plane, uploaded};
pub(crate) use encode::encode;
use exceptions::Listed;
use item::Item;
pub(crate) use there::{Apart, CHUNK, POINT, Symbols, apart};

/// Alignment of what kernels write as vectors.
const ALIGN: usize = 16;

/// The words of `Cut` in `planes.cuh`.
pub(crate) fn cut_words(cut: Option<Cut>) -> [u64; 2] {
    cut.map_or([0; 2], |c| {
        [
            u64::from(c.field_bits()) | u64::from(c.shape.head_bits) << 32,
            u64::from(c.lo) | u64::from(c.windowed()) << 32,
        ]
    })
}

/// Job and tile for each block of threads: `lengths` are the jobs' numbers and lengths.
fn tiles(lengths: impl Iterator<Item = (usize, usize)>, tile: usize) -> Vec<u32> {
    lengths.flat_map(|(j, n)| (0..n.div_ceil(tile) as u32).flat_map(move |t| [j as u32, t])).collect()
}

/// Launches a kernel on a list of jobs and of tiles.
fn launch(session: &Session, kernel: Kernel, jobs: View<'_>, tiles: &[u32]) -> Result<()> {
    if tiles.is_empty() {
        return Ok(());
    }
    let count = (tiles.len() / 2) as u32;
    let tiles = session.upload_u32(tiles)?;
    session.launch(kernel, (count, 1), 256, &[jobs.arg(), tiles.arg()])
}

/// As [`launch`], with the kernel for the size of each job's numbers. `lengths` are sizes and counts of numbers.
fn launch_sizes(
    session: &Session,
    kernels: &[(usize, Kernel)],
    jobs: View<'_>,
    lengths: &[(usize, usize)],
    tile: usize,
) -> Result<()> {
    for &(size, kernel) in kernels {
        let of_size = lengths.iter().enumerate().filter(|(_, (s, _))| *s == size);
        launch(session, kernel, jobs, &tiles(of_size.map(|(j, (_, n))| (j, *n)), tile))?;
    }
    Ok(())
}
