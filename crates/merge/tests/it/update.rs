//! Updates carried over to another version, as a revert and a cherry-pick do.

use crate::support::{f32s, noise, to_f32s};
use mdl_codec::Dtype;
use mdl_merge::{MergeError, apply_update};
use proptest::prelude::*;

fn apply(current: &[f32], from: &[f32], to: &[f32], scale: f64) -> Vec<f32> {
    to_f32s(&apply_update(Dtype::F32, &f32s(current), &f32s(from), &f32s(to), scale).expect("floats of one length"))
}

#[test]
fn the_change_is_added() {
    assert_eq!(apply(&[10.0, 10.0], &[1.0, 2.0], &[3.0, 1.0], 1.0), [12.0, 9.0]);
    assert_eq!(apply(&[10.0, 10.0], &[1.0, 2.0], &[3.0, 1.0], -0.5), [9.0, 10.5]);
}

#[test]
fn what_nothing_else_touched_comes_back_to_the_bit() {
    let odd = [1.0, -0.0, f32::NAN, 1e-40, f32::INFINITY];
    let other = [1e30, 0.0, 2.0, -1e-40, 3.0];
    let mut both = [odd, [5.0; 5]].concat();
    let mut turned = [other, [6.0; 5]].concat();
    assert_eq!(f32s(&apply(&both, &both, &turned, 1.0)), f32s(&turned));
    // One element differs elsewhere: the others are exact all the same.
    let from = both.clone();
    both[7] = 5.5;
    turned[7] = 6.0;
    let mut expected = turned.clone();
    expected[7] = 6.5;
    assert_eq!(f32s(&apply(&both, &from, &turned, 1.0)), f32s(&expected));
    // What the update leaves alone stays: NaN, infinity and the sign of zero too.
    let current = [f32::NAN, -0.0, f32::INFINITY];
    let kept = apply(&current, &[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0], 2.0);
    assert_eq!(f32s(&kept), f32s(&current));
}

#[test]
fn integers_change_on_one_side_only() {
    let apply = |current: &[u8], from: &[u8], to: &[u8]| apply_update(Dtype::I64, current, from, to, 1.0);
    let (one, two, three) = ([1; 8], [2; 8], [3; 8]);
    assert_eq!(apply(&one, &one, &two), Ok(two.to_vec()));
    assert_eq!(apply(&three, &one, &one), Ok(three.to_vec()));
    assert_eq!(apply(&three, &one, &two), Err(MergeError::NotFloat(Dtype::I64)));
    assert!(matches!(apply(&three, &one, &two[..4]), Err(MergeError::Length { .. })));
    let scale = apply_update(Dtype::F32, &[0; 4], &[0; 4], &[1; 4], f64::INFINITY);
    assert!(matches!(scale, Err(MergeError::Parameter { .. })));
}

proptest! {
    #[test]
    fn a_revert_of_the_last_update_is_exact_and_threads_do_not_show(n in 1usize..40_000, seed in 1u64..500) {
        let (old, new) = (noise(seed, n), noise(seed + 1, n));
        let at = |threads, current: &[f32]| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| apply(current, &new, &old, 1.0))
        };
        prop_assert_eq!(&at(2, &new), &old);
        let moved = noise(seed + 2, n);
        prop_assert_eq!(at(1, &moved), at(8, &moved));
    }
}
