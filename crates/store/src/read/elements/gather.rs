//! Gathers chosen elements of a stored tensor in row-major order.
//!
//! Runs of bytes are gathered in batches, and each batch decodes a segment once, however the view walks across the
//! tensor: the work is bounded by what is handed on and what is stored, not by their product with the number of
//! elements.

use crate::{
    RepoError, Result,
    object_db::Odb,
    read::{
        TensorReader,
        elements::{Axis, Elements},
    },
};
use mdl_codec::SEGMENT_BYTES;

/// Bytes handed on at a time, and the pieces that they may be made of.
const BATCH: usize = 8 << 20;
const PIECES: usize = 1 << 20;

type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

impl Elements {
    /// Hands the chosen elements to `sink` in order, little-endian, row by row. A whole tensor is verified by its id on
    /// the way; of a part, only the segments that hold it are decoded. However much is chosen, the memory that this
    /// takes is bounded.
    pub fn stream(&self, odb: &Odb, axes: &[Axis], sink: Sink<'_>) -> Result<()> {
        self.check(axes)?;
        let reader = odb.tensor(&self.tensor)?;
        // Nothing but what the tensor itself says has been believed up to here: `check` looked at another shape.
        if self.end > reader.byte_len() {
            return Err(RepoError::corrupt("a manifest", "a tensor is shorter than it says"));
        }
        let all = axes.iter().zip(&self.shape).all(|(a, &n)| (a.start, a.count, a.step) == (0, n, 1));
        if self.is_whole && all {
            return reader.stream(|bytes| sink(bytes));
        }
        if axes.iter().any(|a| a.count == 0) {
            return Ok(());
        }
        let (run, outer) = self.runs(axes);
        let mut start = self.offset;
        for (a, stride) in axes.iter().zip(&self.strides) {
            start += a.start * stride;
        }
        reader.check_stored()?;
        let mut batch = Batch::new(&reader);
        let mut counters = vec![0u64; outer.len()];
        let mut at = start;
        loop {
            batch.add(at, run, sink)?;
            if !advance(&mut counters, &outer, &mut at) {
                return batch.hand_on(sink);
            }
        }
    }

    /// Innermost axes that lie side by side in the tensor make one run of bytes; the axes left have a count and a
    /// stride.
    fn runs(&self, axes: &[Axis]) -> (u64, Vec<(u64, u64)>) {
        let mut outer: Vec<(u64, u64)> =
            axes.iter().zip(&self.strides).filter(|(a, _)| a.count > 1).map(|(a, s)| (a.count, s * a.step)).collect();
        let mut run = self.dtype.size() as u64;
        while let Some(&(count, stride)) = outer.last().filter(|o| o.1 == run) {
            run = count * stride;
            outer.pop();
        }
        (run, outer)
    }
}

/// Goes to the next run; false after the last.
fn advance(counters: &mut [u64], outer: &[(u64, u64)], at: &mut u64) -> bool {
    for (counter, (count, stride)) in counters.iter_mut().zip(outer).rev() {
        *counter += 1;
        *at += stride;
        if *counter < *count {
            return true;
        }
        *at -= count * stride;
        *counter = 0;
    }
    false
}

/// Some bytes of a segment, and their place in the batch.
struct Piece {
    segment: u32,
    from: u32,
    len: u32,
    to: u32,
}

/// Bytes that are handed on together.
struct Batch<'a> {
    reader: &'a TensorReader<'a>,
    pieces: Vec<Piece>,
    len: usize,
    out: Vec<u8>,
    /// The segment that was decoded last: the next batch often goes on in it.
    last: Option<(u32, Vec<u8>)>,
}

impl<'a> Batch<'a> {
    fn new(reader: &'a TensorReader<'a>) -> Batch<'a> {
        Batch { reader, pieces: Vec::new(), len: 0, out: Vec::new(), last: None }
    }

    /// Adds a run of bytes, and hands the batch on when it is long enough.
    fn add(&mut self, mut at: u64, mut len: u64, sink: Sink<'_>) -> Result<()> {
        let few = || RepoError::corrupt("tensor", "it has too few segments");
        while len > 0 {
            let segment = u32::try_from(at / SEGMENT_BYTES as u64).map_err(|_| few())?;
            if segment as usize >= self.reader.segments() {
                return Err(few());
            }
            let from = (at % SEGMENT_BYTES as u64) as usize;
            // A run may be as long as the tensor.
            let room = (SEGMENT_BYTES - from).min(BATCH - self.len);
            let take = usize::try_from(len).map_or(room, |n| n.min(room));
            // All are at most a batch or a segment long.
            let (from, piece, to) = (from as u32, take as u32, self.len as u32);
            self.pieces.push(Piece { segment, from, len: piece, to });
            self.len += take;
            (at, len) = (at + take as u64, len - take as u64);
            if self.len >= BATCH || self.pieces.len() >= PIECES {
                self.hand_on(sink)?;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, sink: Sink<'_>) -> Result<()> {
        // Their order does not matter, they know their places; where the tensor is walked along, they are in this one
        // already.
        self.pieces.sort_by_key(|p| p.segment);
        self.out.clear();
        self.out.resize(self.len, 0);
        for piece in &self.pieces {
            if self.last.as_ref().is_none_or(|(index, _)| *index != piece.segment) {
                self.last = None;
                self.last = Some((piece.segment, self.reader.segment(piece.segment as usize)?));
            }
            let (from, len, to) = (piece.from as usize, piece.len as usize, piece.to as usize);
            let bytes = self.last.as_ref().and_then(|(_, segment)| segment.get(from..from + len));
            let bytes = bytes.ok_or_else(|| RepoError::corrupt("tensor", "a segment is too short"))?;
            if let Some(place) = self.out.get_mut(to..to + len) {
                place.copy_from_slice(bytes);
            }
        }
        self.pieces.clear();
        self.len = 0;
        sink(&self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_codec::Dtype;
    use mdl_objects::{Id, TensorRef};

    #[test]
    fn inner_axes_that_touch_are_one_run() {
        let t = TensorRef {
            name: String::new(),
            offset: 0,
            dtype: Dtype::F32,
            shape: vec![10, 6, 5],
            id: Id::from_bytes([0; 32]),
        };
        let e = Elements::whole(&t);
        let axes = |a: [(u64, u64, u64); 3]| a.map(|(start, count, step)| Axis { start, count, step, single: false });
        assert_eq!(e.runs(&axes([(0, 3, 1), (0, 6, 1), (0, 5, 1)])), (3 * 6 * 5 * 4, vec![]));
        assert_eq!(e.runs(&axes([(0, 3, 1), (1, 2, 1), (0, 5, 1)])), (2 * 5 * 4, vec![(3, 120)]));
        assert_eq!(e.runs(&axes([(0, 2, 4), (0, 6, 1), (0, 1, 1)])), (4, vec![(2, 480), (6, 20)]));
        assert_eq!(e.runs(&axes([(0, 1, 1), (0, 1, 1), (0, 3, 2)])), (4, vec![(3, 8)]));
    }

    #[test]
    fn counters_walk_in_order() {
        let (mut counters, outer, mut at, mut seen) = (vec![0, 0], [(2, 100), (3, 10)], 5, vec![5]);
        while advance(&mut counters, &outer, &mut at) {
            seen.push(at);
        }
        assert_eq!(seen, [5, 15, 25, 105, 115, 125]);
    }
}
