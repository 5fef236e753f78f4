//! Lattice parameters as words for the kernels, and lists packed into one buffer.

use crate::{
    device::session::{Buffer, Session},
    error::Result,
};
use mdl_codec::{Dtype, engine_internals::lattice::Piece};

/// Words of `Piece` in `lattice.cuh`.
pub(super) const PIECE: usize = 7;
/// Columns that are told apart: a piece is shorter, so that more columns than these are one row or two.
const COLUMNS: usize = 1 << 30;
/// Where lists begin: whole vectors, and whole lines of a cache.
const ALIGN: usize = 128;

/// Places for lists in one buffer.
#[derive(Debug, Default)]
pub(super) struct Layout(usize);

impl Layout {
    /// Where the next `len` bytes are.
    pub(super) fn take(&mut self, len: usize) -> u64 {
        let at = self.0;
        self.0 += len.next_multiple_of(ALIGN);
        at as u64
    }

    /// Bytes of all of it.
    pub(super) fn len(&self) -> usize {
        self.0
    }
}

/// Bytes on their way to the device.
#[derive(Debug, Default)]
pub(super) struct Load(Vec<u8>);

impl Load {
    /// Adds bytes, and says where they will be. At least 8 zeros or other lists follow them.
    pub(super) fn put(&mut self, bytes: impl IntoIterator<Item = u8>) -> u64 {
        let at = self.0.len();
        self.0.extend(bytes);
        self.0.resize((self.0.len() + 8).next_multiple_of(16), 0);
        at as u64
    }

    /// As [`put`](Self::put), of a slice.
    pub(super) fn put_slice(&mut self, bytes: &[u8]) -> u64 {
        let at = self.0.len();
        self.0.extend_from_slice(bytes);
        self.0.resize((self.0.len() + 8).next_multiple_of(16), 0);
        at as u64
    }

    /// As [`put`](Self::put), of words.
    pub(super) fn put_words(&mut self, words: &[u64]) -> u64 {
        let at = self.0.len();
        self.0.resize((at + 8 * words.len() + 8).next_multiple_of(16), 0);
        let to = self.0[at..].as_chunks_mut::<8>().0;
        to.iter_mut().zip(words).for_each(|(to, w)| *to = w.to_le_bytes());
        at as u64
    }

    /// All of it on the device.
    pub(super) fn send<'s>(&self, session: &'s Session) -> Result<Buffer<'s>> {
        // No copy is empty.
        session.upload(if self.0.is_empty() { &[0; 16] } else { &self.0 })
    }
}

/// A pair of 4-byte fields.
pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

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
        let code = |d: Dtype| u32::from(d.code());
        [
            self.rows.map_or(0, |at| load + at + 4 * row as u64),
            self.cols.map_or(0, |at| load + at),
            p.seed.unwrap_or(0),
            start as u64,
            pair(p.step.to_bits(), p.seed.is_some().into()),
            pair(period as u32, ahead as u32),
            pair(turn as u32, code(p.dtype)),
        ]
    }
}
