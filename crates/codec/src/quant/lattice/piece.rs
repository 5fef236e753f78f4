//! Lattice parameters of a piece of a tensor, in plain numbers.

use crate::{
    Dtype, Result,
    quant::lattice::{Hint, Lattice, power},
};

/// A stretch of a tensor on a lattice. The element `i` places after its first one has the factors of row `(start % cols
/// + i) / cols` and of column `i % cols`, counted in these lists.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Of the elements: f32, bf16 or f16.
    pub dtype: Dtype,
    /// Elements.
    pub n: usize,
    /// Position of the first one in the tensor.
    pub start: usize,
    /// Columns of the tensor, at least 1.
    pub cols: usize,
    /// Step of the tensor.
    pub step: f32,
    /// Factors of the rows that the elements lie in, or none.
    pub rows: Vec<f32>,
    /// Factors of columns from that of the first element on, going round, as many as there are columns or elements; or
    /// none.
    pub factors: Vec<f32>,
    /// Of the offsets.
    pub seed: Option<u64>,
}

impl Piece {
    /// The elements that `bytes` bytes hold, from where a hint says.
    pub fn from_hint(hint: &Hint, bytes: usize) -> Result<Piece> {
        Piece::new(&hint.lattice, hint.start, bytes)
    }

    /// The elements from `start` on that `bytes` bytes hold.
    pub fn new(lattice: &Lattice, start: usize, bytes: usize) -> Result<Piece> {
        let n = bytes / lattice.dtype.size();
        lattice.check(start, n, bytes)?;
        let rows = if n == 0 { 0..0 } else { lattice.rows_of(start, n) };
        let skipped = rows.start.saturating_sub(lattice.known.start / lattice.cols);
        let turn = (start - lattice.known.start) % lattice.cols;
        let round = lattice.factors.iter().cycle().skip(turn);
        Ok(Piece {
            dtype: lattice.dtype,
            n,
            start,
            cols: lattice.cols,
            step: power(lattice.step),
            rows: lattice.rows.iter().skip(skipped).take(rows.len()).copied().collect(),
            // No factors stay none, however often they are gone round.
            factors: round.take(n.min(lattice.cols)).copied().collect(),
            seed: lattice.seed,
        })
    }
}
