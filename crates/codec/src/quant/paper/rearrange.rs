//! Rearranges deltas into one group per level of the parent, and back (section 6, Algorithms 5 and 6, Figure 9).
//!
//! Levels migrate at different rates; apart, the restless ones do not break the runs of the others. The arrangement
//! itself costs nothing: the parent gives it.

use crate::{CodecError, Result};

/// Algorithm 5: `delta[j]` joins the group of the parent's place `parent[j]`, in order. `parent` has a place (below
/// `places`) for each delta; the result has `places` groups, empty ones included.
///
/// # Errors
/// [`CodecError::BadInput`] where the lengths differ or a place is not below `places`.
pub fn rearrange(delta: &[u16], parent: &[u16], places: u16) -> Result<Vec<Vec<u16>>> {
    if delta.len() != parent.len() {
        return Err(CodecError::BadInput("the parent has another number of elements"));
    }
    let mut groups: Vec<Vec<u16>> = sizes(parent, places)?.into_iter().map(Vec::with_capacity).collect();
    for (&d, &p) in delta.iter().zip(parent) {
        groups[usize::from(p)].push(d);
    }
    Ok(groups)
}

/// Algorithm 6 up to its addition: takes from the front of each group what belongs to each element of the parent, so
/// that the deltas are in the elements' order again.
///
/// # Errors
/// [`CodecError::BadInput`] where the groups do not hold exactly one delta per element of the parent.
pub fn restore(groups: &[Vec<u16>], parent: &[u16]) -> Result<Vec<u16>> {
    const BAD: CodecError = CodecError::BadInput("the groups do not fit the parent");
    let mut fronts: Vec<_> = groups.iter().map(|g| g.iter()).collect();
    let mut delta = Vec::with_capacity(parent.len());
    for &p in parent {
        let front = fronts.get_mut(usize::from(p)).and_then(Iterator::next);
        delta.push(*front.ok_or(BAD)?);
    }
    if fronts.iter().all(|f| f.len() == 0) { Ok(delta) } else { Err(BAD) }
}

/// How many elements of the parent are at each place.
pub(super) fn sizes(parent: &[u16], places: u16) -> Result<Vec<usize>> {
    let mut sizes = vec![0; usize::from(places)];
    for &p in parent {
        let size = sizes.get_mut(usize::from(p));
        *size.ok_or(CodecError::BadInput("a level above the parent's bin count"))? += 1;
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_each_level_in_order() {
        let parent = [2, 0, 2, 1, 0, 2];
        let delta = [10, 11, 12, 13, 14, 15];
        let groups = rearrange(&delta, &parent, 4).unwrap();
        assert_eq!(groups, [vec![11, 14], vec![13], vec![10, 12, 15], vec![]]);
        assert_eq!(restore(&groups, &parent).unwrap(), delta);
    }

    #[test]
    fn groups_of_another_parent_are_refused() {
        let groups = rearrange(&[1, 2, 3], &[0, 1, 1], 2).unwrap();
        for parent in [&[0, 1][..], &[0, 0, 1], &[0, 1, 1, 1], &[0, 1, 2]] {
            assert!(restore(&groups, parent).is_err());
        }
        assert!(rearrange(&[1, 2], &[0], 1).is_err());
        assert!(rearrange(&[1], &[1], 1).is_err());
    }
}
