//! Turns tensors as a header lists them, overlapping or not, into disjoint extents and views.

use crate::layout::{Extent, View};
use mdl_codec::Dtype;
use std::{cmp::Reverse, collections::HashSet};

/// One tensor as a header lists it. `end - begin` is its shape times its element size.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) name: String,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
}

/// Disjoint extents, and the other names of their bytes.
///
/// The rule, which must stay as it is for names to find their delta base: pieces are taken by offset, empty ones first,
/// then the longest, then the smallest name. A run of pieces that overlap is one extent. Where the first piece spans
/// the run, it is the extent and the rest are views of it; otherwise the extent is opaque bytes under the smallest name
/// of the run, and every piece is a view.
pub(crate) fn resolve(mut pieces: Vec<Piece>) -> (Vec<Extent>, Vec<View>) {
    pieces.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut found = (Vec::new(), Vec::new());
    let mut run: Vec<Piece> = Vec::new();
    let mut run_end = 0;
    for piece in pieces {
        if !run.is_empty() && piece.begin >= run_end {
            close(std::mem::take(&mut run), run_end, &mut found);
        }
        if run.is_empty() && piece.begin == piece.end {
            // Nothing is shared by having no bytes: each empty tensor is its own extent.
            close(vec![piece], 0, &mut found);
            continue;
        }
        run_end = if run.is_empty() { piece.end } else { run_end.max(piece.end) };
        run.push(piece);
    }
    close(run, run_end, &mut found);
    found
}

fn order(p: &Piece) -> (u64, bool, Reverse<u64>, &str) {
    (p.begin, p.end > p.begin, Reverse(p.end), &p.name)
}

/// Ends a run: its extent, and a view for every piece that is not the extent itself.
fn close(run: Vec<Piece>, run_end: u64, found: &mut (Vec<Extent>, Vec<View>)) {
    let Some(first) = run.first() else { return };
    let index = u32::try_from(found.0.len()).unwrap_or(u32::MAX);
    let begin = first.begin;
    let spans = run.len() == 1 || first.end == run_end;
    let viewed = if spans { run.get(1..).unwrap_or_default() } else { &run };
    for piece in viewed {
        found.1.push(View {
            name: piece.name.clone(),
            extent: index,
            offset: piece.begin - begin,
            dtype: piece.dtype,
            shape: piece.shape.clone(),
            strides: dense_strides(&piece.shape),
        });
    }
    let merged = Piece {
        name: run.iter().map(|p| &p.name).min().cloned().unwrap_or_default(),
        begin,
        end: run_end,
        dtype: Dtype::Opaque,
        shape: vec![run_end.saturating_sub(begin)],
    };
    let owner = if spans { run.into_iter().next() } else { Some(merged) };
    found.0.extend(owner.map(|p| Extent { offset: p.begin, dtype: p.dtype, shape: p.shape, name: p.name }));
}

/// Strides, in elements, of a row-major tensor without gaps.
pub(crate) fn dense_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    let mut step = 1u64;
    for (stride, &dim) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(dim.max(1));
    }
    strides
}

/// Number of elements, if it fits.
pub(crate) fn count(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
}

/// Gives every extent a name of its own: the first keeps it, the next become `name#2`, `name#3`, ...
pub(crate) fn unique(extents: &mut [Extent]) {
    let mut taken: HashSet<String> = HashSet::with_capacity(extents.len());
    let mut again: std::collections::HashMap<String, u64> = std::collections::HashMap::new();
    let originals: HashSet<String> = extents.iter().map(|e| e.name.clone()).collect();
    for extent in extents {
        if taken.insert(extent.name.clone()) {
            continue;
        }
        // The counter is kept per name, so that many equal names cost one look-up each and not a search.
        let n = again.entry(extent.name.clone()).or_insert(1);
        loop {
            *n += 1;
            let next = format!("{}#{n}", extent.name);
            if !originals.contains(&next) && taken.insert(next.clone()) {
                extent.name = next;
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(name: &str, begin: u64, end: u64) -> Piece {
        Piece { name: name.into(), begin, end, dtype: Dtype::U8, shape: vec![end - begin] }
    }

    fn names(pieces: &[(&str, u64, u64)]) -> (Vec<String>, Vec<String>) {
        let (extents, views) = resolve(pieces.iter().map(|p| piece(p.0, p.1, p.2)).collect());
        let e = extents.iter().map(|e| {
            let len = e.byte_len().unwrap();
            format!("{}:{}+{}{}", e.name, e.offset, len, if e.dtype == Dtype::Opaque { "?" } else { "" })
        });
        let v = views.iter().map(|v| format!("{}:{}+{}", v.name, v.extent, v.offset));
        (e.collect(), v.collect())
    }

    #[test]
    fn the_longest_owns_what_lies_inside_it() {
        let (e, v) = names(&[("inner", 4, 8), ("owner", 0, 16), ("tied", 0, 16), ("next", 16, 20), ("gap", 30, 31)]);
        assert_eq!(e, ["owner:0+16", "next:16+4", "gap:30+1"]);
        assert_eq!(v, ["tied:0+0", "inner:0+4"]);
    }

    #[test]
    fn partial_overlap_becomes_one_opaque_run() {
        let (e, v) = names(&[("b", 0, 10), ("a", 5, 15), ("c", 14, 20), ("d", 20, 21)]);
        assert_eq!(e, ["a:0+20?", "d:20+1"]);
        assert_eq!(v, ["b:0+0", "a:0+5", "c:0+14"]);
    }

    #[test]
    fn empty_pieces_never_break_the_order() {
        let (e, v) = names(&[("z", 0, 8), ("e0", 0, 0), ("f0", 0, 0), ("e4", 4, 4), ("e8", 8, 8), ("y", 8, 9)]);
        assert_eq!(e, ["e0:0+0", "f0:0+0", "z:0+8", "e8:8+0", "y:8+1"]);
        assert_eq!(v, ["e4:2+4"]);
    }

    #[test]
    fn equal_names_are_told_apart() {
        let mut extents: Vec<Extent> = ["a", "a#2", "a", "a"]
            .map(|n| Extent { offset: 0, dtype: Dtype::U8, shape: vec![0], name: n.into() })
            .into();
        unique(&mut extents);
        let names: Vec<_> = extents.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["a", "a#2", "a#3", "a#4"]);
    }
}
