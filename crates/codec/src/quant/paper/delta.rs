//! Levels with their bin count, and the cyclic difference of two checkpoints' levels (section 6, "Calculating Delta").

use crate::{CodecError, Result};

/// Most bins a codebook may have.
pub const MAX_BINS: u16 = 256;

/// The levels of one tensor (or of several, one after the other), checked against their bin count `B`: `0..B` is a bin,
/// `B` is pruned, `B + 1` is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels<'a> {
    levels: &'a [u16],
    bins: u16,
}

impl<'a> Levels<'a> {
    /// One level per element, of a codebook with `bins` bins (0 to [`MAX_BINS`]).
    ///
    /// # Errors
    /// [`CodecError::BadInput`] for too many bins, or a level above `bins + 1`.
    pub fn new(levels: &'a [u16], bins: u16) -> Result<Self> {
        if bins > MAX_BINS {
            return Err(CodecError::BadInput("more than 256 bins"));
        }
        if levels.iter().any(|&l| l > bins + 1) {
            return Err(CodecError::BadInput("a level above its bin count and the two special levels"));
        }
        Ok(Levels { levels, bins })
    }

    /// The levels, one per element.
    pub fn as_slice(self) -> &'a [u16] {
        self.levels
    }

    /// The number of bins `B`, without the two special levels.
    pub fn bins(self) -> u16 {
        self.bins
    }

    /// The number of elements.
    pub fn len(self) -> usize {
        self.levels.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.levels.is_empty()
    }
}

/// The cyclic buffer that parent and child share: places `0..Bm` are bins, `Bm` is pruned, `Bm + 1` is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    bins: u16,
}

impl Ring {
    /// The ring of two codebooks: as many bins as the larger one has. "We address this by adjusting the size of the
    /// cyclic buffer to the maximum number of bins in either checkpoint."
    pub fn from_bins(bins: u16, parent_bins: u16) -> Self {
        Ring { bins: bins.max(parent_bins).min(MAX_BINS) }
    }

    /// Number of places, `Bm + 2`.
    pub fn size(self) -> u16 {
        self.bins + 2
    }

    /// The place of each level on this ring; the special levels move to its end.
    pub fn places(self, levels: Levels<'_>) -> impl Iterator<Item = u16> {
        let shift = self.bins.saturating_sub(levels.bins);
        levels.levels.iter().map(move |&l| if l < levels.bins { l } else { l + shift })
    }

    /// The level at a place, in a codebook of `bins` bins.
    pub(super) fn level(self, place: u16, bins: u16) -> Result<u16> {
        if place < bins {
            Ok(place)
        } else if self.bins <= place && place < self.size() {
            Ok(place - self.bins + bins)
        } else {
            Err(CodecError::Corrupt("a level that its codebook does not have"))
        }
    }

    /// `(parent - child) mod (Bm + 2)`, of places.
    fn delta(self, parent: u16, child: u16) -> u16 {
        (parent + self.size() - child) % self.size()
    }

    /// The child's place, from the parent's and a delta below [`size`](Self::size).
    pub(super) fn undo(self, parent: u16, delta: u16) -> u16 {
        self.delta(parent, delta)
    }
}

/// The cyclic delta of each element, below `Ring::from_bins(child.bins(), parent.bins()).size()`; 0 where the
/// place stays.
///
/// # Errors
/// [`CodecError::BadInput`] where the two differ in length.
pub fn cyclic_delta(child: Levels<'_>, parent: Levels<'_>) -> Result<Vec<u16>> {
    if child.len() != parent.len() {
        return Err(CodecError::BadInput("the parent has another number of elements"));
    }
    let ring = Ring::from_bins(child.bins, parent.bins);
    Ok(ring.places(parent).zip(ring.places(child)).map(|(p, c)| ring.delta(p, c)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_levels_stay_special_when_the_bin_count_changes() {
        let parent = Levels::new(&[0, 3, 4, 5, 2], 4).unwrap();
        let child = Levels::new(&[7, 3, 8, 9, 9], 8).unwrap();
        // Ring of 10: 0 - 7, stay, pruned stays, protected stays, 2 - 9.
        assert_eq!(cyclic_delta(child, parent).unwrap(), [3, 0, 0, 0, 3]);
        assert_eq!(cyclic_delta(parent, child).unwrap(), [7, 0, 0, 0, 7]);
    }

    #[test]
    fn every_step_on_the_ring_is_undone() {
        let ring = Ring::from_bins(3, 256);
        assert_eq!(ring.size(), 258);
        for p in 0..ring.size() {
            for c in 0..ring.size() {
                assert_eq!(ring.undo(p, ring.delta(p, c)), c);
            }
        }
        assert!(ring.level(2, 3).is_ok() && ring.level(3, 3).is_err() && ring.level(255, 3).is_err());
        assert_eq!((ring.level(256, 3), ring.level(257, 3)), (Ok(3), Ok(4)));
        assert!(ring.level(258, 3).is_err());
    }

    #[test]
    fn levels_outside_their_codebook_are_refused() {
        assert!(Levels::new(&[5], 4).is_ok());
        assert!(Levels::new(&[6], 4).is_err());
        assert!(Levels::new(&[], 257).is_err());
        assert!(Levels::new(&[0, 1], 0).is_ok());
        let (a, b) = (Levels::new(&[1], 4).unwrap(), Levels::new(&[1, 1], 4).unwrap());
        assert!(cyclic_delta(a, b).is_err());
    }
}
