//! Lattice parameters as words for the kernels.

use crate::layout::{Layout, Load, pair};
use mdl_codec::engine_internals::lattice::Piece;

/// Words of `Piece` in `lattice.cuh`.
pub(super) const PIECE: usize = 7;
/// Columns that are told apart: a piece is shorter, so that more columns than these are one row or two.
const COLUMNS: usize = 1 << 30;
/// Places for lists: where whole vectors, and whole lines of a cache, begin.
pub(super) type Lines = Layout<128>;

/// A piece whose factors are on their way.
#[derive(Debug)]
pub(super) struct Placed {
    piece: Piece,
    /// Where the factors of rows and columns are in the load.
    rows: Option<u64>,
    cols: Option<u64>,
}

impl Placed {
    /// Loads the factors of a piece.
    pub(super) fn new(piece: Piece, load: &mut Load) -> Placed {
        let mut put = |list: &[f32]| (!list.is_empty()).then(|| load.put(list.iter().flat_map(|f| f.to_le_bytes())));
        let (rows, cols) = (put(&piece.rows), put(&piece.factors));
        Placed { piece, rows, cols }
    }

    /// Whose factors these are.
    pub(super) fn piece(&self) -> &Piece {
        &self.piece
    }

    /// The words of the `n` elements (fewer than 2^30) from `skip` on, `load` being where the load went.
    pub(super) fn words(&self, load: u64, skip: usize, n: usize) -> [u64; PIECE] {
        let p = &self.piece;
        let start = p.start + skip;
        let (row, ahead) = (start / p.cols - p.start / p.cols, start % p.cols);
        let left = p.cols - ahead;
        let (period, ahead) = match p.cols {
            ..=COLUMNS => (p.cols, ahead),
            // What counts is where the next row begins, if it does.
            _ if left >= n => (COLUMNS, 0),
            _ => (COLUMNS, COLUMNS - left),
        };
        // No lattice has factors of more columns than `COLUMNS`.
        let turn = skip % period;
        [
            self.rows.map_or(0, |at| load + at + 4 * row as u64),
            self.cols.map_or(0, |at| load + at),
            p.seed.unwrap_or(0),
            start as u64,
            pair(p.step.to_bits() as usize, p.seed.is_some().into()),
            pair(period, ahead),
            pair(turn, p.dtype.code().into()),
        ]
    }
}
