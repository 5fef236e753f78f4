//! Search along a single parameter: its levels go from coarse to fine, and the coarsest that passes is wanted.
//!
//! The parameter sticks: where a level passed last time, it is tried first, and kept without another evaluation if it
//! uses up a fair part of what may be lost, since a coarser level would then hardly pass. That takes two to three
//! evaluations a checkpoint.

use crate::quant::search::Trials;

/// A parameter's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// The coarsest level.
    pub coarsest: i32,
    /// The finest.
    pub finest: i32,
    /// Most levels to go towards coarse in one search.
    pub reach: u32,
}

/// Finds the coarsest level that passes (and is no larger than the next finer one), from `start` on; levels ascend from
/// coarse to fine. `enough(trials)` says whether the level that just passed uses so much of the allowance that a
/// coarser one is not worth a trial. None: not even the finest passes.
pub fn climb<T: Trials<i32>>(
    trials: &mut T,
    ladder: Ladder,
    start: i32,
    enough: impl Fn(&T) -> bool,
) -> Result<Option<i32>, T::Error> {
    let mut at = start.clamp(ladder.coarsest, ladder.finest);
    if trials.passes(&at)? {
        if enough(trials) {
            return Ok(Some(at));
        }
        return coarser(trials, ladder, at).map(Some);
    }
    // Strides double, so that a bad start does not cost an evaluation a level; what lies between is then halved.
    let (mut failed, mut stride) = (at, 1);
    loop {
        if failed == ladder.finest {
            return Ok(None);
        }
        at = (failed + stride).min(ladder.finest);
        if trials.passes(&at)? {
            break;
        }
        (failed, stride) = (at, stride * 2);
    }
    while at - failed > 1 {
        let middle = failed + (at - failed) / 2;
        if trials.passes(&middle)? {
            at = middle;
        } else {
            failed = middle;
        }
    }
    Ok(Some(at))
}

/// Goes on from a level that passed towards coarse, as long as that passes and is smaller: next to a parent on another
/// level, the coarser one need not be.
pub fn coarser<T: Trials<i32>>(trials: &mut T, ladder: Ladder, from: i32) -> Result<i32, T::Error> {
    let mut at = from;
    for _ in 0..ladder.reach {
        if at == ladder.coarsest || trials.bytes(&(at - 1))? >= trials.bytes(&at)? || !trials.passes(&(at - 1))? {
            break;
        }
        at -= 1;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first level that passes, and what was asked.
    struct From(i32, Vec<i32>);

    impl Trials<i32> for From {
        type Error = std::convert::Infallible;

        fn bytes(&mut self, key: &i32) -> Result<u64, Self::Error> {
            Ok(*key as u64)
        }

        fn passes(&mut self, key: &i32) -> Result<bool, Self::Error> {
            self.1.push(*key);
            Ok(*key >= self.0)
        }
    }

    #[test]
    fn the_coarsest_that_passes_is_found_from_anywhere() {
        for first in -3..14 {
            for start in -5..15 {
                let ladder = Ladder { coarsest: 0, finest: 10, reach: 20 };
                let mut trials = From(first, Vec::new());
                let found = climb(&mut trials, ladder, start, |_| false).unwrap();
                let want = (first <= 10).then_some(first.max(0));
                assert_eq!(found, want, "first {first}, start {start}");
                let mut asked = trials.1.clone();
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), trials.1.len(), "asked twice: {:?}", trials.1);
            }
        }
    }

    #[test]
    fn a_rung_that_uses_enough_is_kept_with_one_trial() {
        let ladder = Ladder { coarsest: 0, finest: 10, reach: 4 };
        let mut trials = From(2, Vec::new());
        assert_eq!(climb(&mut trials, ladder, 5, |_| true), Ok(Some(5)));
        assert_eq!(trials.1, [5]);
        let mut far = From(0, Vec::new());
        assert_eq!(climb(&mut far, ladder, 9, |_| false), Ok(Some(5)));
    }

    /// Level 5 is the parent's: next to it every other is larger.
    struct Parent(Vec<i32>);

    impl Trials<i32> for Parent {
        type Error = std::convert::Infallible;

        fn bytes(&mut self, key: &i32) -> Result<u64, Self::Error> {
            Ok(if *key == 5 { 1 } else { *key as u64 + 2 })
        }

        fn passes(&mut self, key: &i32) -> Result<bool, Self::Error> {
            self.0.push(*key);
            Ok(true)
        }
    }

    #[test]
    fn a_coarser_rung_that_is_larger_is_not_even_tried() {
        let ladder = Ladder { coarsest: 0, finest: 10, reach: 4 };
        let mut trials = Parent(Vec::new());
        assert_eq!(climb(&mut trials, ladder, 5, |_| false), Ok(Some(5)));
        assert_eq!(trials.0, [5]);
    }
}
