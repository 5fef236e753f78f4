//! Cache of decoded bases (parent and grandparent), against which candidates are sized.
//!
//! The parent's tensor and its own base are the same for all candidates of a search, and the end of a chain: decoded
//! for each candidate they would make a commit dearer with every commit before it.

use crate::model::Part;
use mdl_store::write::Pair;
use std::{collections::HashMap, sync::Arc};

/// Bytes that are kept decoded in one search; what does not fit is decoded anew for each candidate.
pub(crate) const BUDGET: usize = 1 << 30;

/// Tensors with their decoded bases; none where they have none.
#[derive(Debug)]
pub(crate) struct DecodedBases {
    kept: HashMap<(usize, u64), Option<Arc<Pair>>>,
    /// Bytes that may still be kept.
    left: usize,
}

impl DecodedBases {
    /// Empty; later at most `budget` bytes.
    pub fn within(budget: usize) -> DecodedBases {
        DecodedBases { kept: HashMap::new(), left: budget }
    }

    /// The bases of a part: as decoded before, else from `decode`.
    pub fn get_or_decode(&mut self, part: &Part, decode: impl FnOnce() -> Option<Pair>) -> Option<Arc<Pair>> {
        let key = (part.file, part.extent.offset);
        if let Some(pair) = self.kept.get(&key) {
            return pair.clone();
        }
        let pair = decode().map(Arc::new);
        let size = pair.as_ref().map_or(0, |p| p.0.len() + p.1.as_ref().map_or(0, Vec::len));
        if let Some(left) = self.left.checked_sub(size) {
            self.left = left;
            self.kept.insert(key, pair.clone());
        }
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::{super::model::Treatment, *};
    use mdl_codec::Dtype;
    use mdl_files::Extent;

    #[test]
    fn what_fits_is_decoded_once() {
        let part = |offset| Part {
            file: 0,
            extent: Extent { offset, dtype: Dtype::U8, shape: vec![4], name: "t".to_owned() },
            name: "t".to_owned(),
            shape: vec![4],
            treatment: Treatment::Exact,
        };
        let mut decoded = DecodedBases::within(12);
        let mut count = [0; 3];
        for _ in 0..2 {
            for (i, pair) in
                [Some((vec![1; 4], Some(vec![2; 4]))), Some((vec![3; 8], None)), None].into_iter().enumerate()
            {
                let found = decoded.get_or_decode(&part(i as u64), || {
                    count[i] += 1;
                    pair.clone()
                });
                assert_eq!(found.as_deref(), pair.as_ref());
            }
        }
        // Twelve bytes hold the first pair, and that there is none.
        assert_eq!((count, decoded.left), ([1, 2, 1], 4));
    }
}
