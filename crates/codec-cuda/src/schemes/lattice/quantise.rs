//! Lattice quantiser: tensors to reconstructions.

use crate::{
    DeviceError, Kernel, Result, Session, View,
    layout::Load,
    schemes::lattice::{FOUR, Placed, THREADS, columns},
};
use mdl_codec::{
    engine_internals::lattice::Piece,
    quant::lattice::{Lattice, Outcome, Reason},
};

const QUANTISE: Kernel = Kernel::new("lattice", "lattice_quantise");
/// Elements of a row of the grid, whose places fit 32 bits.
const SHARE: usize = 1 << 22;

/// Quantises `w`, the elements from `start` on, and writes the reconstruction to `rec`, which is as long: what
/// [`Lattice::quantise`] writes. If the outcome is that the tensor must stay lossless, what was written is of no use.
pub(crate) fn quantise(
    session: &Session,
    lattice: &Lattice,
    start: usize,
    w: View<'_>,
    rec: View<'_>,
) -> Result<Outcome> {
    let piece = Piece::new(lattice, start, w.len())?;
    if rec.len() != w.len() {
        return Err(DeviceError::Failed("the reconstruction is as long as the tensor".to_owned()));
    }
    let (n, size) = (piece.n, piece.dtype.size());
    if n == 0 {
        return Ok(Outcome::Quantised);
    }
    let mut load = Load::default();
    let placed = Placed::new(piece, &mut load);
    let load = load.send(session)?;
    let worst = session.zeroed(4)?;
    let shares: Vec<u64> = (0..n)
        .step_by(SHARE)
        .flat_map(|skip| {
            let count = SHARE.min(n - skip);
            let bytes = (skip * size) as u64;
            let ends = [w.address() + bytes, rec.address() + bytes, worst.address(), count as u64];
            placed.words(load.address(), skip, count).into_iter().chain(ends)
        })
        .collect();
    let words = shares.len() / n.div_ceil(SHARE);
    for shares in shares.chunks(words * super::ROWS) {
        let list = session.upload_u64(shares)?;
        let rows = (shares.len() / words) as u32;
        let grid = (columns(n.min(SHARE), THREADS as usize * FOUR, rows), rows);
        session.launch(QUANTISE, grid, THREADS, &[list.arg()])?;
    }
    Ok(match session.download_u32(worst.view())?.first() {
        Some(0) => Outcome::Quantised,
        Some(1) => Outcome::Lossless(Reason::OutOfRange),
        Some(2) => Outcome::Lossless(Reason::TooLarge),
        _ => Outcome::Lossless(Reason::NotFinite),
    })
}
