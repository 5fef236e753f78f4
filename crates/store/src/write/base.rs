//! Delta bases: the ancestor that a new version of a tensor is coded against, laid out like skip lists.
//!
//! A tensor's versions since one that is stored whole have *places* 1, 2, 3, ...; their records state them as depths.
//! The one at place n stands on the one that is as many places back as the largest power of 4 that divides n: 7 on 6, 8
//! on 4, 16 on 0. So a chain is as long as the sum of a place's digits in base 4. What a version stands on is always on
//! the chain of the version before: a commit looks at the parent's chain and no further, and forks, frozen tensors and
//! pruned versions need no rules of their own (docs/design/0012-skip-deltas.md).

use crate::{
    Result,
    cache::CachedTensor,
    object_db::Odb,
    read::TensorReader,
    write::{BaseTensors, tensors::Pair},
};
use mdl_files::Extent;
use mdl_objects::Id;

/// The highest place; the next version is stored whole.
pub const MOST_PLACES: u8 = 63;

/// What new versions of tensors may stand on.
#[derive(Clone, Copy, Debug)]
pub struct Chains {
    /// Most deltas between a tensor and one stored whole.
    pub max_depth: u8,
    /// Which tensor of the chain below.
    pub rule: BaseRule,
}

impl Chains {
    /// No tensor is a difference.
    pub const NONE: Chains = Chains { max_depth: 0, rule: BaseRule::Skip };

    /// Skip deltas on chains of at most this many.
    pub fn skip(max_depth: u8) -> Chains {
        Chains { max_depth, rule: BaseRule::Skip }
    }

    /// One difference after the other, on chains of at most this many.
    pub fn in_line(max_depth: u8) -> Chains {
        Chains { max_depth, rule: BaseRule::Parent }
    }
}

/// Which tensor of a parent's chain a new one is coded against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseRule {
    /// The parent itself: for quantised contents, where a farther ancestor costs several times as much, and for what is
    /// dropped soon, such as an exact copy beside its approximation.
    Parent,
    /// The one that skip deltas name.
    Skip,
}

/// A tensor to be coded against, by its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRef {
    pub id: Id,
    /// Its own base, which deltas to it may use too.
    pub grandparent: Option<Id>,
    /// The place of the tensor that stands on it: more than the stated depth of both.
    pub place: u8,
    /// Deltas that are followed to read that tensor.
    pub depth: u8,
}

/// The same, open.
pub(super) struct Base<'a> {
    pub reader: TensorReader<'a>,
    pub at: BaseRef,
    /// Where its segments lie decoded, and its base's.
    cached: Option<(CachedTensor, Option<CachedTensor>)>,
}

impl Base<'_> {
    /// Segment `i`, and the grandparent's where there is one.
    pub fn segment(&self, i: usize) -> Result<Pair> {
        if let Some((own, base)) = &self.cached
            && let Some(bytes) = own.segment(i)
        {
            match base.as_ref().map(|b| b.segment(i)) {
                None => return Ok((bytes, None)),
                Some(Some(base)) => return Ok((bytes, Some(base))),
                Some(None) => {}
            }
        }
        match self.at.grandparent {
            Some(_) => self.reader.segments_for_delta(i),
            None => Ok((self.reader.segment(i)?, None)),
        }
    }

    /// The whole, verified, and the grandparent where there is one.
    pub fn read(&self) -> Result<Pair> {
        match self.at.grandparent {
            Some(_) => self.reader.read_pair_cached(),
            None => Ok((self.reader.read_cached()?, None)),
        }
    }

    /// Takes segments out of the cache from now on, if it has them.
    pub fn open_cached(&mut self) {
        self.cached = self.reader.open_cached(self.at.grandparent.is_some());
    }

    /// Takes segments out of the packs from now on. False: so it did.
    pub fn close_cached(&mut self) -> bool {
        self.cached.take().is_some()
    }
}

/// What a tensor of this name is coded against, from the chain of the parent's tensor: of the same dtype and length,
/// on a chain that is not too long. A base that cannot be read is none: the commit must not fail for damage elsewhere.
/// Nor is one that may be about to be deleted.
pub(super) fn base_of<'a>(odb: &'a Odb, bases: &BaseTensors, e: &Extent, own: &Id, chains: Chains) -> Option<Base<'a>> {
    // A tensor that is stored again because its copy is damaged may be its parent's, too.
    let parent = *bases.get(&e.name).filter(|id| *id != own)?;
    // There may be deltas on the damaged copy with a depth just above its own: only a tensor without a base can stand
    // in for it.
    if odb.has_unreadable_copy(own).unwrap_or(true) {
        return None;
    }
    // One that is not here is not waited for (see `bring_bases`).
    let parent = odb.has(&parent).ok()?.then(|| odb.tensor(&parent).ok()).flatten()?;
    if parent.header().dtype != e.dtype || Some(parent.byte_len()) != e.byte_len() {
        return None;
    }
    let place = parent.stated_depth().checked_add(1)?;
    let chain: Vec<(Id, u8)> = parent.chain().collect();
    let (most, place_below, tries) = match chains.rule {
        BaseRule::Parent => (u8::MAX, parent.stated_depth(), 1),
        BaseRule::Skip => (MOST_PLACES, ancestor(place), usize::MAX),
    };
    if place > most {
        return None;
    }
    let mut parent = Some(parent);
    let candidates = chain.into_iter().enumerate().filter(|(_, (_, stated))| *stated <= place_below).take(tries);
    for (i, (id, _)) in candidates {
        let reader = match parent.take().filter(|_| i == 0) {
            Some(reader) => reader,
            None => odb.tensor(&id).ok()?,
        };
        if let Some(found) = fit(odb, reader, own, (place, chains.max_depth)) {
            return Some(found);
        }
    }
    None
}

fn fit<'a>(odb: &Odb, reader: TensorReader<'a>, own: &Id, (place, most): (u8, u8)) -> Option<Base<'a>> {
    let depth = u8::try_from(reader.chain_len() + 1).ok().filter(|depth| *depth <= most)?;
    let grandparent = reader.grandparent();
    let is_other = reader.id() != own && grandparent != Some(*own);
    // Its own base states less, as the reader has seen.
    let is_below = reader.stated_depth() < place;
    (is_other && is_below && !odb.is_doomed(reader.pack())).then(|| Base {
        at: BaseRef { id: *reader.id(), grandparent, place, depth },
        cached: None,
        reader,
    })
}

/// The place that the version at `place` stands on.
pub fn ancestor(place: u8) -> u8 {
    let unit = place & place.wrapping_neg();
    // Powers of 4 are those of 2 with an even exponent.
    place - if unit & 0x55 == 0 { unit >> 1 } else { unit }
}

/// The deltas from the version at `place` down to the one that is stored whole: the sum of its digits in base 4.
pub fn chain_len(place: u8) -> u8 {
    (0..4).map(|digit| place >> (2 * digit) & 3).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places on the chain of `place`, itself first.
    fn chain(place: u8) -> Vec<u8> {
        let next = |p: &u8| (*p > 0).then(|| ancestor(*p));
        std::iter::successors(Some(place), next).collect()
    }

    #[test]
    fn what_a_version_stands_on_is_on_the_chain_of_the_one_before() {
        for place in 1..=u8::MAX {
            assert!(ancestor(place) < place);
            assert!(chain(place - 1).contains(&ancestor(place)), "{place}");
        }
        assert_eq!([1, 3, 4, 7, 8, 16, 20, 63, 64].map(ancestor), [0, 2, 0, 6, 4, 0, 16, 62, 0]);
    }

    #[test]
    fn a_chain_is_as_long_as_the_sum_of_its_places_digits() {
        for place in 0..=u8::MAX {
            assert_eq!(chain(place).len() - 1, usize::from(chain_len(place)), "{place}");
        }
        assert_eq!((0..=MOST_PLACES).map(chain_len).max(), Some(9));
    }
}
