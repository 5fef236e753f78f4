//! Predicts which candidates a search will ask for next, whatever comes out for those before them: so several can be
//! measured side by side while the search goes as if they were measured one by one (Inshrinkerator, section 5: trials
//! are spread over data-parallel ranks).

use std::collections::VecDeque;

/// Replays for each candidate wanted. Guesses that lead nowhere new are given up.
const REPLAYS: usize = 8;

/// A guess at the verdict on a candidate that is not measured yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// It passes and uses up all that may be lost. That is where a parameter that sticks stays, so it is guessed first.
    Barely,
    /// It does not pass.
    Fails,
    /// It passes and loses nothing.
    Easily,
}

/// Candidates to measure together, at most `width`: `first`, which the search asks for now, then those that it asks for
/// next after some verdicts on them, breadth first. `replay(guesses)` runs the search on what is known and these
/// guesses, and names the first candidate about which neither says anything; none: the search ends, or the guess leads
/// too far.
pub fn ahead<K: Clone + PartialEq>(
    first: K,
    width: usize,
    mut replay: impl FnMut(&[(K, Guess)]) -> Option<K>,
) -> Vec<K> {
    let mut batch = vec![first.clone()];
    let mut open = VecDeque::from([(Vec::new(), first)]);
    let mut left = width.saturating_mul(REPLAYS);
    while let Some((guesses, key)) = open.pop_front() {
        let mut after_barely = None;
        for guess in [Guess::Barely, Guess::Fails, Guess::Easily] {
            if batch.len() >= width || left == 0 {
                return batch;
            }
            left -= 1;
            let mut path = guesses.clone();
            path.push((key.clone(), guess));
            let Some(next) = replay(&path) else { continue };
            match guess {
                Guess::Barely => after_barely = Some(next.clone()),
                // How much is used up made no difference: one of the two is followed.
                Guess::Easily if after_barely.as_ref() == Some(&next) => continue,
                _ => {}
            }
            if !batch.contains(&next) {
                batch.push(next.clone());
            }
            open.push_back((path, next));
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Cube, Ladder, Point, Trials, climb, guided, neighbourhood},
        *,
    };
    use proptest::prelude::*;
    use std::fmt::Debug;

    /// A search on known verdicts and guesses; it stops at what neither answers.
    struct Replay<'a, K> {
        known: &'a [(K, bool)],
        guesses: &'a [(K, Guess)],
        bytes: &'a dyn Fn(&K) -> u64,
    }

    impl<K: Clone + PartialEq> Trials<K> for Replay<'_, K> {
        type Error = K;

        fn bytes(&mut self, key: &K) -> Result<u64, K> {
            Ok((self.bytes)(key))
        }

        fn passes(&mut self, key: &K) -> Result<bool, K> {
            let known = self.known.iter().find(|k| k.0 == *key).map(|k| k.1);
            let guessed = self.guesses.iter().find(|g| g.0 == *key).map(|g| g.1 != Guess::Fails);
            known.or(guessed).ok_or_else(|| key.clone())
        }
    }

    /// What a search finds, in how many rounds; no round measures more than `width`, nor anything twice.
    fn run<K: Clone + PartialEq + Debug, T>(
        width: usize,
        passes: &dyn Fn(&K) -> bool,
        bytes: &dyn Fn(&K) -> u64,
        search: &dyn Fn(&mut Replay<'_, K>) -> Result<T, K>,
    ) -> (T, usize) {
        let mut known: Vec<(K, bool)> = Vec::new();
        for rounds in 0.. {
            let replay = |guesses: &[(K, Guess)]| search(&mut Replay { known: &known, guesses, bytes });
            let first = match replay(&[]) {
                Ok(found) => return (found, rounds),
                Err(first) => first,
            };
            let batch = ahead(first.clone(), width, |guesses| replay(guesses).err());
            assert!(batch.len() <= width && batch[0] == first);
            for key in batch {
                assert!(known.iter().all(|k| k.0 != key), "{key:?} twice");
                let verdict = passes(&key);
                known.push((key, verdict));
            }
        }
        unreachable!()
    }

    /// Any landscape at all: a few bits of a hash.
    fn noise(seed: u64, key: &[usize]) -> u64 {
        key.iter().fold(seed | 1, |h, &k| (h ^ k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    proptest! {
        #[test]
        fn a_ladder_is_climbed_alike_at_any_width(
            seed: u64, start in -2i32..24, finest in 0i32..22, of in 1u64..5, reach in 0u32..24,
        ) {
            let ladder = Ladder { coarsest: 0, finest, reach };
            let passes = |k: &i32| noise(seed, &[*k as usize]).is_multiple_of(of);
            let bytes = |k: &i32| noise(!seed, &[*k as usize]) >> 32;
            let search = |t: &mut Replay<'_, i32>| climb(t, ladder, start, |_| false);
            let one = run(1, &passes, &bytes, &search);
            for width in [2, 3, 8] {
                let many = run(width, &passes, &bytes, &search);
                prop_assert_eq!(&many.0, &one.0);
                prop_assert!(many.1 <= one.1);
            }
        }

        #[test]
        fn a_cube_is_searched_alike_at_any_width(
            seed: u64, of in 1u64..5, places in proptest::collection::vec(1usize..6, 1..4),
        ) {
            let cube = Cube::new(&places).unwrap();
            let last: Point = places.iter().map(|n| n / 2).collect();
            let passes = |k: &Point| noise(seed, k).is_multiple_of(of);
            let bytes = |k: &Point| noise(!seed, k) >> 32;
            let search = |t: &mut Replay<'_, Point>| Ok((neighbourhood(t, &cube, &last, 1)?, guided(t, &cube)?));
            let one = run(1, &passes, &bytes, &search);
            for width in [2, 3, 8] {
                let many = run(width, &passes, &bytes, &search);
                prop_assert_eq!(&many.0, &one.0);
                prop_assert!(many.1 <= one.1);
            }
        }
    }

    #[test]
    fn four_side_by_side_take_fewer_rounds() {
        let ladder = Ladder { coarsest: 0, finest: 40, reach: 40 };
        let search = |t: &mut Replay<'_, i32>| climb(t, ladder, 4, |_| false);
        let rounds = |width, least: i32| run(width, &|k: &i32| *k >= least, &|k: &i32| *k as u64, &search).1;
        // Ten levels towards fine, and four towards coarse.
        assert!(rounds(4, 14) * 2 <= rounds(1, 14), "{} {}", rounds(4, 14), rounds(1, 14));
        assert!(rounds(4, 0) < rounds(1, 0), "{} {}", rounds(4, 0), rounds(1, 0));
    }

    #[test]
    fn what_makes_no_difference_is_followed_once() {
        // After `a` comes `b` if it passes, `c` if not; after `b` and `c` nothing.
        let mut replays = 0;
        let batch = ahead('a', 8, |guesses| {
            replays += 1;
            match guesses {
                [(_, Guess::Fails)] => Some('c'),
                [_] => Some('b'),
                _ => None,
            }
        });
        assert_eq!((batch, replays), (vec!['a', 'b', 'c'], 9));
        assert_eq!(ahead('a', 0, |_: &[(char, Guess)]| Some('b')), ['a']);
    }
}
