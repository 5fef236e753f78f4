//! The paper's delta encoder from outside: any levels come back, broken streams never panic, and rearrangement pays
//! where section 6 says it does.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::xorshift::Xorshift;
use mdl_codec::{
    CodecError,
    quant::paper::{Levels, MAX_ELEMENTS, Ring, Variant, bins_of, decode, encode},
};
use proptest::prelude::*;

/// Numbers below `n`, the same ones every time.
struct Noise(Xorshift);

impl Noise {
    fn new(state: u64) -> Noise {
        Noise(Xorshift(state))
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.0.next() >> 11) % n
    }
}

/// A bin count and a child's and a parent's levels: unrelated, or the child mostly like the parent.
fn pair() -> impl Strategy<Value = (u16, Vec<u16>, u16, Vec<u16>)> {
    let bins = prop_oneof![0..=3u16, 4..=40u16, Just(256u16)];
    (bins.clone(), bins, 0usize..400, any::<bool>()).prop_flat_map(|(b, pb, n, related)| {
        let parent = prop::collection::vec(0..=pb + 1, n);
        let moves = prop::collection::vec((0..=b + 1, 0..10u8), n);
        (parent, moves).prop_map(move |(parent, moves)| {
            let follow = |(&p, &(own, dice)): (&u16, &(u16, u8))| {
                if related && dice > 0 && p <= b + 1 { p } else { own }
            };
            (b, parent.iter().zip(&moves).map(follow).collect(), pb, parent)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_levels_come_back((bins, child, parent_bins, parent) in pair()) {
        let levels = Levels::new(&child, bins).unwrap();
        let base = Levels::new(&parent, parent_bins).unwrap();
        for variant in Variant::ALL {
            for base in [None, Some(base)] {
                let bytes = encode(variant, levels, base).unwrap();
                prop_assert_eq!(bins_of(&bytes), Ok(bins));
                prop_assert_eq!(decode(&bytes, child.len(), base), Ok(child.clone()));
            }
        }
    }

    #[test]
    fn noise_never_panics(
        kind in 0..4u8,
        bins in 0..=256u16,
        noise in prop::collection::vec(any::<u8>(), 0..60),
        n in 0usize..200,
        parent_bins in 0..=256u16,
    ) {
        let parent = vec![parent_bins / 2; n];
        let base = Levels::new(&parent, parent_bins).unwrap();
        let mut bytes = vec![1, kind];
        bytes.extend_from_slice(&bins.to_le_bytes());
        bytes.extend_from_slice(&noise);
        if let Ok(levels) = decode(&bytes, n, Some(base)) {
            prop_assert!(levels.len() == n && Levels::new(&levels, bins).is_ok());
        }
    }
}

/// A short child and parent with runs, moves, special levels and another bin count.
fn small() -> (Vec<u16>, Vec<u16>) {
    let mut noise = Noise::new(5);
    let parent: Vec<u16> = (0..150).map(|_| noise.below(6) as u16).collect();
    let child = parent.iter().map(|&p| match noise.below(8) {
        0 => noise.below(9) as u16,
        _ if p >= 4 => p + 3,
        _ => p,
    });
    (child.collect(), parent)
}

#[test]
fn broken_streams_end_in_an_error_or_in_levels() {
    let (child, parent) = small();
    let (levels, base) = (Levels::new(&child, 7).unwrap(), Levels::new(&parent, 4).unwrap());
    let streams = Variant::ALL.map(|v| encode(v, levels, Some(base)).unwrap());
    for bytes in streams.iter().chain([&encode(Variant::Pe, levels, None).unwrap()]) {
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], child.len(), Some(base)).is_err(), "cut at {cut}");
        }
        let longer = [bytes, &[0][..]].concat();
        assert!(decode(&longer, child.len(), Some(base)).is_err());
        let mut broken = bytes.clone();
        for bit in 0..bytes.len() * 8 {
            broken[bit / 8] ^= 1 << (bit % 8);
            if let Ok(got) = decode(&broken, child.len(), Some(base)) {
                assert_eq!(got.len(), child.len());
                assert!(Levels::new(&got, bins_of(&broken).unwrap()).is_ok(), "bit {bit}");
            }
            broken[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn another_parent_or_length_is_an_error_or_other_levels() {
    let (child, parent) = small();
    let (levels, base) = (Levels::new(&child, 7).unwrap(), Levels::new(&parent, 4).unwrap());
    let n = child.len();
    for variant in Variant::ALL {
        let bytes = encode(variant, levels, Some(base)).unwrap();
        assert_eq!(decode(&bytes, n, None), Err(CodecError::MissingBase));
        let shorter = Levels::new(&parent[1..], 4).unwrap();
        assert!(matches!(decode(&bytes, n, Some(shorter)), Err(CodecError::BadInput(_))));
        assert!(encode(variant, levels, Some(shorter)).is_err());
        for bins in [5, 7, 200] {
            let other = Levels::new(&parent, bins).unwrap();
            if let Ok(got) = decode(&bytes, n, Some(other)) {
                assert!(Levels::new(&got, 7).is_ok());
            }
        }
    }
    let own = encode(Variant::He, levels, None).unwrap();
    assert_eq!(decode(&own, n, Some(base)).as_deref(), Ok(&child[..]));
    assert!(decode(&own, n - 40, None).is_err());
    assert!(decode(&own, MAX_ELEMENTS + 1, None).is_err());
    for header in [&[2, 0, 4, 0][..], &[1, 4, 4, 0], &[1, 0, 1, 1], &[1, 0, 4]] {
        assert!(bins_of(header).is_err() && decode(header, 0, None).is_err());
    }
}

#[test]
fn a_checkpoint_that_stands_still_costs_almost_nothing() {
    let parent: Vec<u16> = (0..100_000u32).map(|i| (i % 1000 * i % 18) as u16).collect();
    let base = Levels::new(&parent, 16).unwrap();
    for (variant, most) in [(Variant::He, 6), (Variant::Rle, 14), (Variant::Pe, 100)] {
        assert!(encode(variant, base, Some(base)).unwrap().len() <= most);
    }
}

/// Levels late in training: bins of a bell, 10 % pruned, 0.5 % protected; each step moves a share of each bin's
/// elements to a neighbour, and the shares range from 1 in 5,000 at the edges to 1 in 6 at the middle, as where bins
/// are narrow.
fn trajectory(n: usize, bins: u16, steps: usize) -> Vec<Vec<u16>> {
    let mut noise = Noise::new(11);
    let start = (0..n).map(|_| match noise.below(1000) {
        0..5 => bins + 1,
        5..105 => bins,
        _ => ((0..4).map(|_| noise.below(u64::from(bins))).sum::<u64>() / 4) as u16,
    });
    let mut all = vec![start.collect::<Vec<u16>>()];
    for _ in 1..steps {
        let next = all[all.len() - 1].iter().map(|&l| {
            let edge = u32::from(l.abs_diff(bins / 2)) * 16 / u32::from(bins);
            let rarity = if l >= bins { 1000 } else { (6u64 << (edge * 3 / 2)).min(5000) };
            match noise.below(rarity * 2) {
                0 if l < bins => (l + 1).min(bins - 1),
                1 if l < bins => l.saturating_sub(1),
                0 => (noise.below(u64::from(bins))) as u16,
                _ => l,
            }
        });
        let next = next.collect();
        all.push(next);
    }
    all
}

#[test]
fn rearrangement_pays_late_in_training() {
    let n = 60_000;
    for bins in [8, 16, 32] {
        let mut total = [0; 3];
        let all = trajectory(n, bins, 4);
        for step in all.windows(2) {
            let (base, levels) = (Levels::new(&step[0], bins).unwrap(), Levels::new(&step[1], bins).unwrap());
            assert!(Ring::from_bins(bins, bins).size() == bins + 2);
            let sizes = Variant::ALL.map(|v| {
                let bytes = encode(v, levels, Some(base)).unwrap();
                assert_eq!(decode(&bytes, n, Some(base)).as_deref(), Ok(&step[1][..]));
                bytes.len()
            });
            let [he, rle, pe] = sizes;
            assert!(pe <= he && pe <= rle, "{bins} bins: he, rle, pe take {sizes:?} bytes");
            total.iter_mut().zip(sizes).for_each(|(t, s)| *t += s);
        }
        println!("{bins} bins: he, rle, pe take {total:?} bytes of {} as f32", 3 * 4 * n);
    }
}
