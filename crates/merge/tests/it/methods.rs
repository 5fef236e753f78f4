//! The methods on small numbers that can be followed by hand, on equal versions, and with more threads.

use crate::support::{f32s, merge_f32, noise, strategies};
use mdl_codec::Dtype;
use mdl_merge::{Double, MergeError, Method, Strategy, Tensors, angle, merge, merge_f64};
use proptest::prelude::*;

fn new(method: Method) -> Strategy {
    Strategy::new(method)
}

#[test]
fn averages_are_rounded_once() {
    assert_eq!(merge_f32(&new(Method::Average), None, &[&[1.0, -3.0], &[2.0, 5.0], &[6.0, 1.0]]), [3.0, 1.0]);
    let weighted = Strategy { weight: vec![3.0, 1.0], ..new(Method::Weighted) };
    assert_eq!(merge_f32(&weighted, None, &[&[1.0], &[5.0]]), [2.0]);
    let sum = Strategy { normalize: Some(false), ..weighted };
    assert_eq!(merge_f32(&sum, None, &[&[1.0], &[5.0]]), [8.0]);
    // In f32 the sum would be infinite. The mean is halfway between the two: to the even one.
    let even = f32::MAX.next_down();
    assert_eq!(merge_f32(&new(Method::Average), None, &[&[f32::MAX], &[even]]), [even]);
}

#[test]
fn slerp_turns_and_falls_back_to_a_line() {
    let half = new(Method::Slerp);
    let root = 0.5f32.sqrt();
    assert_eq!(merge_f32(&half, None, &[&[1.0, 0.0], &[0.0, 1.0]]), [root, root]);
    for (t, expected) in [(0.0, [1.0, 0.0]), (1.0, [0.0, 1.0])] {
        let strategy = Strategy { t: Some(t), ..half.clone() };
        assert_eq!(merge_f32(&strategy, None, &[&[1.0, 0.0], &[0.0, 1.0]]), expected);
    }
    // Parallel, opposed, and with an infinity: by a line.
    assert_eq!(merge_f32(&half, None, &[&[1.0, 2.0], &[3.0, 6.0]]), [2.0, 4.0]);
    assert_eq!(merge_f32(&half, None, &[&[1.0, 2.0], &[-3.0, -6.0]]), [-1.0, -2.0]);
    assert_eq!(merge_f32(&half, None, &[&[f32::INFINITY, 2.0], &[0.0, -6.0]]), [f32::INFINITY, -2.0]);
    // Numbers whose squares no f64 holds.
    let big = [1e300, 1e300f64.next_up(), -1e-300].map(f64::to_le_bytes).concat();
    let other = [-1e300, 1e300, 3e-300].map(f64::to_le_bytes).concat();
    let versions: [&[u8]; 2] = [&big, &other];
    let out = merge_f64(&half, &Tensors { name: "w", dtype: Dtype::F64, base: None, versions: &versions });
    let root = 2f64.sqrt() * 1e300;
    assert!(out.is_ok_and(|out| out[0].abs() < 1e285 && (out[1] / root - 1.0).abs() < 1e-15));
}

#[test]
fn changes_add_up_on_the_base() {
    let base: [f32; 4] = [10.0, 10.0, 10.0, 10.0];
    let (a, b): ([f32; 4], [f32; 4]) = ([12.0, 9.0, 10.0, 13.0], [14.0, 13.0, 9.0, 7.0]);
    let merged = |strategy: &Strategy| merge_f32(strategy, Some(&base), &[&a, &b]);
    assert_eq!(merged(&new(Method::TaskArithmetic)), [16.0, 12.0, 9.0, 10.0]);
    let halves = Strategy { weight: vec![0.5, 0.5], lambda: Some(2.0), ..new(Method::TaskArithmetic) };
    assert_eq!(merged(&halves), [16.0, 12.0, 9.0, 10.0]);
    // Changes +2 -1 0 +3 and +4 +3 -1 -3: signs + + - +, means of those that agree.
    assert_eq!(merged(&new(Method::Ties)), [13.0, 13.0, 9.0, 13.0]);
    // The two largest of each: +2 0 0 +3 and +4 +3 0 0 (the first of two equal ones is kept).
    let trimmed = Strategy { density: Some(0.5), ..new(Method::Ties) };
    assert_eq!(merged(&trimmed), [13.0, 13.0, 10.0, 13.0]);
}

#[test]
fn ties_keeps_exactly_the_share_it_is_told() {
    for n in [1usize, 2, 7, 16_384, 16_385, 40_001] {
        let base = vec![0.0; n];
        // Many equal magnitudes: places decide.
        let change: Vec<f32> = noise(3, n).iter().map(|x| (x * 4.0).round() + 0.25).collect();
        for density in [0.1, 0.5, 0.999] {
            let strategy = Strategy { density: Some(density), ..new(Method::Ties) };
            let out = merge_f32(&strategy, Some(&base), &[&change]);
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|i, j| change[*j].abs().total_cmp(&change[*i].abs()));
            let kept = ((density * n as f64) as usize).max(1);
            let mut expected = vec![0.0; n];
            order[..kept].iter().for_each(|i| expected[*i] = change[*i]);
            assert_eq!(out, expected, "{n} {density}");
        }
    }
}

#[test]
fn dare_drops_by_seed_name_and_version_and_keeps_the_sum() {
    let n = 100_000;
    let (base, ones) = (vec![0.0f32; n], vec![1.0f32; n]);
    let strategy = Strategy { density: Some(0.25), seed: Some(1), ..new(Method::DareLinear) };
    let out = merge_f32(&strategy, Some(&base), &[&ones]);
    assert!(out.iter().all(|x| *x == 0.0 || *x == 4.0));
    let kept = out.iter().filter(|x| **x == 4.0).count();
    assert!((24_500..25_500).contains(&kept), "{kept}");
    let two = merge_f32(&strategy, Some(&base), &[&ones, &ones]);
    assert!(two.contains(&4.0) && two.contains(&8.0), "versions have draws of their own");
    let other = Strategy { seed: Some(2), ..strategy.clone() };
    assert_ne!(merge_f32(&other, Some(&base), &[&ones]), out);
    let plain = Strategy { rescale: Some(false), ..strategy };
    assert!(merge_f32(&plain, Some(&base), &[&ones]).iter().all(|x| *x == 0.0 || *x == 1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_number_of_threads_gives_the_same_bits(n in 1usize..70_000, seed in 1u64..1000) {
        let (base, a, b) = (f32s(&noise(seed, n)), f32s(&noise(seed + 1, n)), f32s(&noise(seed + 2, n)));
        let versions: [&[u8]; 2] = [&a, &b];
        let tensors = Tensors { name: "layer.0", dtype: Dtype::F32, base: Some(&base), versions: &versions };
        for strategy in strategies() {
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                pool.install(|| merge(&strategy, &tensors)).expect("these can be merged")
            };
            let one = with(1);
            prop_assert_eq!(&with(2), &one);
            prop_assert_eq!(&with(8), &one);
        }
    }

    #[test]
    fn equal_versions_stay_as_they_are(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = &bytes[..bytes.len() / 8 * 8];
        for dtype in Dtype::ALL.into_iter().filter(|d| d.is_float()) {
            let tensors = Tensors { name: "w", dtype, base: Some(bytes), versions: &[bytes, bytes] };
            for strategy in strategies() {
                prop_assert_eq!(&merge(&strategy, &tensors).expect("equal ones")[..], bytes);
            }
        }
    }

    #[test]
    fn the_arc_cosine_undoes_the_cosine(x in -0.9995f64..0.9995) {
        let angle = angle::acos(Double::from(x));
        prop_assert!((angle.hi - x.acos()).abs() <= 2.0 * f64::EPSILON * angle.hi.max(1.0));
        let sine = angle::sin(angle);
        let one = sine * sine + Double::product(x, x) - Double::from(1.0);
        prop_assert!(one.hi.abs() < 1e-30, "{one:?}");
    }
}

#[test]
fn what_cannot_be_merged_is_named() {
    let bytes: &[u8] = &[0; 8];
    let short: &[u8] = &[0; 4];
    let try_merge = |strategy: Strategy, dtype, base, versions: &[&[u8]]| {
        merge(&strategy, &Tensors { name: "w", dtype, base, versions }).expect_err("refused")
    };
    let average = || new(Method::Average);
    assert_eq!(try_merge(average(), Dtype::I32, None, &[bytes, bytes]), MergeError::NotFloat(Dtype::I32));
    let lengths = MergeError::Length { expected: 8, found: 4 };
    assert_eq!(try_merge(average(), Dtype::F32, None, &[bytes, short]), lengths);
    assert_eq!(try_merge(new(Method::Ties), Dtype::F32, Some(short), &[bytes]), lengths);
    assert_eq!(try_merge(new(Method::Ties), Dtype::F32, None, &[bytes]), MergeError::NoBase("ties"));
    let slerp = MergeError::Versions { method: "slerp", takes: "two", given: 3 };
    assert_eq!(try_merge(new(Method::Slerp), Dtype::F32, None, &[bytes; 3]), slerp);
}
