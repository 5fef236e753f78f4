//! What stands for an aged version is within the bounds that its record tells, tensor by tensor and row by row.

use super::run::{DECAYING, REACHED, Run, TENSORS, Version, numbers, read};

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| a - b))
}

/// Checks the approximation of a version; `before` is the version before it.
fn within(version: &Version, before: Option<&Version>) {
    let bounds = version.bounds.as_ref().expect("bounds");
    let all = [bounds.weight, bounds.update, bounds.fast, bounds.first];
    let [weight, update, fast, first] = all.map(|b| b.expect("a bound"));
    assert!(!bounds.loosened && bounds.worst_row.is_some_and(|worst| worst > 0.0 && worst <= weight), "{bounds:?}");
    let recorded = bounds.worst_row.expect("an error") * (1.0 + 1e-9);
    let recorded_update = bounds.worst_row_update.map(|worst| worst * (1.0 + 1e-9));
    assert!(recorded_update.is_none_or(|worst| worst <= update * fast * (1.0 + 1e-6)), "{bounds:?}");
    let (exact, near) = (numbers(&version.exact), numbers(&version.near));
    let was = before.map(|v| (numbers(&v.exact), numbers(&v.near)));
    let mut worst: f64 = 0.0;
    for (t, (name, _, rows, cols)) in TENSORS.into_iter().enumerate() {
        let error = apart(&exact[t], &near[t]);
        assert!(error <= weight * norm(exact[t].iter().copied()), "{name}: {error}");
        for row in 0..rows {
            let at = row * cols..(row + 1) * cols;
            let (now, stands) = (&exact[t][at.clone()], &near[t][at.clone()]);
            let (error, size) = (apart(now, stands), norm(now.iter().copied()));
            assert!(error <= recorded * size, "{name} {row}: {error} of {size}, {bounds:?}");
            worst = worst.max(error / size);
            match &was {
                None => assert!(error <= first * size, "{name} {row}: {error} of {size}, {bounds:?}"),
                Some((was, stood)) if was[t][at.clone()] == *now => {
                    assert_eq!(stands, &stood[t][at.clone()], "{name} {row}: what did not change stands as it stood");
                }
                Some((was, _)) => {
                    let moved = apart(now, &was[t][at]);
                    let most = recorded_update.unwrap_or(0.0) * moved;
                    assert!(error <= most, "{name} {row}: {error} of {moved}, {bounds:?}");
                }
            }
        }
    }
    assert!((worst / recorded - 1.0).abs() < 1e-6, "the record tells the largest error: {worst}, {bounds:?}");
}

#[test]
fn every_row_of_what_stands_for_a_version_is_within_its_recorded_bounds() {
    let mut run = Run::new("exact_latest = 1");
    run.on(6).collect();
    run.are_exact(&[5]);
    for n in 0..6 {
        within(&run.all[n], n.checked_sub(1).map(|before| &run.all[before]));
    }
    // The bytes that are given are those that were judged.
    assert!(run.all[..5].iter().all(|v| read(&run.p.repo, &v.id).expect("read") == v.near && v.near != v.exact));
}

#[test]
fn bounds_hold_across_a_collection_between_any_two_versions() {
    let (mut run, mut other) = (Run::new("exact_latest = 1"), Run::new("exact_latest = 1"));
    for _ in 0..5 {
        run.on(1).collect();
        other.on(1);
    }
    for n in 0..5 {
        within(&run.all[n], n.checked_sub(1).map(|before| &run.all[before]));
        assert!(run.all[n].near == other.all[n].near, "collections change nothing");
    }
}

#[test]
fn a_frozen_tensor_keeps_its_reconstruction_while_it_is_exact_beside_it() {
    let mut run = Run::new("exact_latest = 2");
    run.on(7).collect();
    let frozen = TENSORS.iter().position(|t| t.0 == "frozen.weight").expect("there");
    let first = numbers(&run.all[0].near);
    assert_ne!(first[frozen], numbers(&run.all[0].exact)[frozen], "it is approximate from the start");
    for version in &run.all {
        let near = numbers(&version.near);
        assert_eq!(near[frozen], first[frozen]);
        assert_eq!(near[0][DECAYING * 48..], first[0][DECAYING * 48..], "rows that nothing touched, too");
        assert_ne!(near[0][..REACHED * 48], first[0][..0]);
    }
    let last = numbers(&read(&run.p.repo, &run.all[6].id).expect("read"));
    assert_eq!(last, numbers(&run.all[6].exact));
    run.are_exact(&[5, 6]);
}
