//! Fetches chosen elements of a stored tensor in row-major order. Neighbours: `TensorReader` decodes segments, `slice` says
//! what is chosen. It must not know what the bytes are for.

use super::slice::Axis;
use mdl_codec::{Dtype, SEGMENT_BYTES};
use mdl_objects::{Id, TensorRef, ViewRef};
use mdl_repo::{Repo, RepoError, Result, TensorReader};
use std::collections::VecDeque;

/// Decoded segments kept at a time, in case a view walks across the tensor instead of along it: 256 MiB.
const KEPT: usize = 32;
/// Bytes handed on at a time.
const BATCH: usize = 1 << 20;

/// Elements inside a stored tensor.
#[derive(Debug)]
pub struct Elements {
    tensor: Id,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// Bytes from one element of an axis to the next.
    strides: Vec<u64>,
    /// Bytes before the first element.
    offset: u64,
    /// All of the tensor, as it is stored.
    is_whole: bool,
}

impl Elements {
    /// All elements of a tensor.
    pub fn whole(t: &TensorRef) -> Elements {
        let mut strides = vec![t.dtype.size() as u64; t.shape.len()];
        for i in (1..t.shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(t.shape[i]);
        }
        Elements {
            tensor: t.id,
            dtype: t.dtype,
            shape: t.shape.clone(),
            strides,
            offset: 0,
            is_whole: true,
        }
    }

    /// The elements of a view, which must lie inside its tensor.
    pub fn view(t: &TensorRef, v: &ViewRef) -> Result<Elements> {
        let outside = || RepoError::corrupt(format!("view {}", v.name), "it leaves its tensor");
        let size = v.dtype.size() as u64;
        let mut strides = Vec::with_capacity(v.strides.len());
        let mut end = v.offset.checked_add(size).ok_or_else(outside)?;
        for (&n, &stride) in v.shape.iter().zip(&v.strides) {
            let stride = stride.checked_mul(size).ok_or_else(outside)?;
            let reach = n.saturating_sub(1).checked_mul(stride);
            end = reach.and_then(|r| end.checked_add(r)).ok_or_else(outside)?;
            strides.push(stride);
        }
        if end > t.byte_len().unwrap_or(0) && !v.shape.contains(&0) {
            return Err(outside());
        }
        Ok(Elements {
            tensor: t.id,
            dtype: v.dtype,
            shape: v.shape.clone(),
            strides,
            offset: v.offset,
            is_whole: false,
        })
    }

    /// Hands the chosen elements to `sink` in order. A whole tensor is verified against its id on the way.
    pub fn stream(&self, repo: &Repo, axes: &[Axis], sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let reader = repo.odb().tensor(&self.tensor)?;
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
        let mut segments = Segments::new(&reader);
        let mut batch = Vec::with_capacity(BATCH);
        let mut counters = vec![0u64; outer.len()];
        let mut at = start;
        loop {
            segments.copy(at, run, &mut batch)?;
            if batch.len() >= BATCH {
                sink(&batch)?;
                batch.clear();
            }
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
            .map(|(a, s)| (a.count, s * a.step))
            .filter(|o| o.0 > 1)
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

    fn copy(&mut self, mut at: u64, mut len: u64, out: &mut Vec<u8>) -> Result<()> {
        while len > 0 {
            let index = (at / SEGMENT_BYTES as u64) as usize;
            let from = (at % SEGMENT_BYTES as u64) as usize;
            let segment = self.segment(index)?;
            let take = len.min((segment.len() as u64).saturating_sub(from as u64));
            let bytes = segment.get(from..from + take as usize).filter(|b| !b.is_empty());
            out.extend_from_slice(bytes.ok_or_else(|| RepoError::corrupt("tensor", "a segment is too short"))?);
            (at, len) = (at + take, len - take);
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
