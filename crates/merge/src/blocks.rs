//! Blocks of a tensor: the elements that one thread works on at a time. Their size is fixed, as sums go by block.

use crate::{Tensors, element::widen};
use rayon::prelude::*;

/// Elements of a block; the last one may have fewer.
pub(crate) const ELEMENTS: usize = 1 << 14;

/// The elements of one block in f64.
pub(crate) struct Block {
    /// Place of the first element in the tensor.
    pub at: usize,
    /// Those of the base; empty: there is none.
    pub base: Vec<f64>,
    /// Those of each version.
    pub versions: Vec<Vec<f64>>,
}

impl Block {
    /// The block of this number.
    pub(crate) fn read(tensors: &Tensors<'_>, number: usize) -> Block {
        let at = number * ELEMENTS;
        let read = |bytes: &[u8]| {
            let size = tensors.dtype.size();
            let end = bytes.len().min((at + ELEMENTS) * size);
            let bytes = &bytes[at * size..end];
            let mut out = vec![0.0; bytes.len() / size];
            widen(tensors.dtype, bytes, &mut out);
            out
        };
        Block {
            at,
            base: tensors.base.map(read).unwrap_or_default(),
            versions: tensors.versions.iter().map(|bytes| read(bytes)).collect(),
        }
    }

    /// Element `i` of a version, less that of the base.
    pub(crate) fn change(&self, version: usize, i: usize) -> f64 {
        self.versions[version][i] - self.base[i]
    }
}

/// What `f` makes of each block, in order.
pub(crate) fn map<R: Send>(tensors: &Tensors<'_>, f: impl Fn(&Block) -> R + Sync) -> Vec<R> {
    let blocks = tensors.elements().div_ceil(ELEMENTS);
    (0..blocks).into_par_iter().map(|number| f(&Block::read(tensors, number))).collect()
}
