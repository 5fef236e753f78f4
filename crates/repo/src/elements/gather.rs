//! Fetches chosen elements of a stored tensor in row-major order. Neighbours: `chain` decodes segments, `slice` says what is
//! chosen. It must not know what the bytes are for.

use super::{Axis, Elements};
use crate::{RepoError, Result, chain::TensorReader, odb::Odb};
use mdl_codec::SEGMENT_BYTES;
use std::collections::VecDeque;

/// Decoded segments kept at a time, in case a view walks across the tensor instead of along it: 256 MiB.
const KEPT: usize = 32;
/// Bytes handed on at a time.
const BATCH: usize = 1 << 20;

type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

impl Elements {
    /// Hands the chosen elements to `sink` in order, little-endian, row by row. A whole tensor is verified by its id on the way;
    /// of a part, only the segments that hold it are decoded. However much is chosen, the memory that this takes is bounded.
    ///
    /// # Errors
    /// Axes that are not the tensor's; absent or damaged objects; whatever `sink` returns.
    pub fn stream(&self, odb: &Odb, axes: &[Axis], sink: Sink<'_>) -> Result<()> {
        self.check(axes)?;
        let reader = odb.tensor(&self.tensor)?;
        // Nothing but what the tensor itself says has been believed up to here: `check` looked at another shape.
        if self.end > reader.byte_len() {
            return Err(RepoError::corrupt("a manifest", "a tensor is shorter than it says"));
        }
        let all = axes
            .iter()
            .zip(&self.shape)
            .all(|(a, &n)| (a.start, a.count, a.step) == (0, n, 1));
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
        let mut segments = Segments::new(&reader);
        let mut batch = Vec::new();
        let mut counters = vec![0u64; outer.len()];
        let mut at = start;
        loop {
            segments.copy(at, run, &mut batch, sink)?;
            if !advance(&mut counters, &outer, &mut at) {
                return sink(&batch);
            }
        }
    }

    /// Innermost axes that lie side by side in the tensor make one run of bytes; the axes left have a count and a stride.
    fn runs(&self, axes: &[Axis]) -> (u64, Vec<(u64, u64)>) {
        let mut outer: Vec<(u64, u64)> = axes
            .iter()
            .zip(&self.strides)
            .filter(|(a, _)| a.count > 1)
            .map(|(a, s)| (a.count, s * a.step))
            .collect();
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

/// Segments of a tensor, the last few decoded ones at hand.
struct Segments<'a> {
    reader: &'a TensorReader<'a>,
    kept: VecDeque<(usize, Vec<u8>)>,
}

impl<'a> Segments<'a> {
    fn new(reader: &'a TensorReader<'a>) -> Segments<'a> {
        Segments {
            reader,
            kept: VecDeque::new(),
        }
    }

    /// Adds bytes to a batch, and hands it on when it is long enough.
    fn copy(&mut self, mut at: u64, mut len: u64, out: &mut Vec<u8>, sink: Sink<'_>) -> Result<()> {
        while len > 0 {
            let index = (at / SEGMENT_BYTES as u64) as usize;
            let from = (at % SEGMENT_BYTES as u64) as usize;
            let segment = self.segment(index)?;
            // A run may be as long as the tensor: no more of it than a batch is held.
            let take = len
                .min((segment.len() as u64).saturating_sub(from as u64))
                .min(BATCH as u64);
            let bytes = segment.get(from..from + take as usize).filter(|b| !b.is_empty());
            out.extend_from_slice(bytes.ok_or_else(|| RepoError::corrupt("tensor", "a segment is too short"))?);
            (at, len) = (at + take, len - take);
            if out.len() >= BATCH {
                sink(out)?;
                out.clear();
            }
        }
        Ok(())
    }

    fn segment(&mut self, index: usize) -> Result<&[u8]> {
        let found = self.kept.iter().position(|k| k.0 == index);
        let place = match found {
            Some(place) => place,
            None => {
                if index >= self.reader.segments() {
                    return Err(RepoError::corrupt("tensor", "it has too few segments"));
                }
                if self.kept.len() == KEPT {
                    self.kept.pop_back();
                }
                self.kept.push_front((index, self.reader.segment(index)?));
                0
            }
        };
        Ok(self.kept.get(place).map_or(&[], |k| k.1.as_slice()))
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
        let axes = |a: [(u64, u64, u64); 3]| {
            a.map(|(start, count, step)| Axis {
                start,
                count,
                step,
                single: false,
            })
        };
        assert_eq!(
            e.runs(&axes([(0, 3, 1), (0, 6, 1), (0, 5, 1)])),
            (3 * 6 * 5 * 4, vec![])
        );
        assert_eq!(
            e.runs(&axes([(0, 3, 1), (1, 2, 1), (0, 5, 1)])),
            (2 * 5 * 4, vec![(3, 120)])
        );
        assert_eq!(
            e.runs(&axes([(0, 2, 4), (0, 6, 1), (0, 1, 1)])),
            (4, vec![(2, 480), (6, 20)])
        );
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
