//! Bounds hold whatever the gate says: a judge that sees nothing lets everything pass, and no row is further off than
//! its policy allows.

use super::{
    Says,
    model::{FILE, Model, NO_BOUNDS, NONE_EXACT, numbers, quality},
};
use crate::support::{Place, place};
use mdl_repo::{BoundsRecord, CommitRequest, Committed, Direction, LossyRequest, Silent};
use std::fs;

const ROWS: usize = 256;
const COLS: usize = 64;
/// Rows of the embedding that training reaches.
const REACHED: usize = 100;
/// Rows after these that only decay; the others stay as they are.
const DECAYING: usize = 200;

/// A fine-tune: of the embedding the first rows move, some decay a little, the others do not change by a bit.
fn fine_tune(model: &mut Model) {
    let before = model.tensors[0].2.clone();
    model.train();
    let values = &mut model.tensors[0].2;
    for (i, (now, was)) in values.iter_mut().zip(before).enumerate() {
        match i / COLS {
            row if row < REACHED => {}
            row if row < DECAYING => *now = was * (1.0 - 4e-4),
            _ => *now = was,
        }
    }
}

/// Gradients that are zero where training does not reach.
fn gradients(p: &Place) -> std::path::PathBuf {
    let mut model = Model::new();
    model.tensors[0].2[REACHED * COLS..].fill(0.0);
    let path = p.path().join("g.safetensors");
    fs::write(&path, model.bytes()).expect("gradients");
    fs::write(p.path().join(".mdlignore"), "g.safetensors\n").expect("ignored");
    path
}

fn commit(p: &Place, policy: &str, step: u64, resumed_from: Option<mdl_objects::Id>) -> Committed {
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&p.repo, policy).expect("a policy"),
        evaluator: Some(&mut Says(Some(2.0 - 0.1 * step as f64))),
        direction: Direction::LowerIsBetter,
        grads: Some(gradients(p)),
        since: None,
    };
    let request = CommitRequest { step: Some(step), resumed_from, ..CommitRequest::default() };
    mdl_repo::commit_lossy(&p.repo, &request, &mut lossy, &Silent).expect("a commit")
}

fn bounds(done: &Committed) -> BoundsRecord {
    quality(done).bounds.clone().expect("bounds")
}

/// Squared norms of rows of the difference.
fn squares(a: &[f64], b: &[f64]) -> Vec<f64> {
    let row = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    a.chunks(COLS).zip(b.chunks(COLS)).take(ROWS).map(row).collect()
}

fn lengths(a: &[f64]) -> Vec<f64> {
    squares(a, &vec![0.0; a.len()])
}

/// Rows of the embedding whose error is this part of them, or more.
fn rows_off(exact: &[f64], stored: &[f64], part: f64) -> usize {
    let errors = squares(exact, stored);
    errors.iter().zip(lengths(exact)).filter(|(e, w)| **e >= part * part * w).count()
}

#[test]
fn a_gate_that_sees_nothing_wipes_rows_only_without_bounds() {
    let p = place();
    mdl_repo::set_policy(&p.repo, "before", &format!("try = [\"lattice\"]\n{NO_BOUNDS}")).expect("a policy");
    for (policy, wiped) in [("before", true), ("lossy", false), ("bins", false)] {
        let mut model = Model::new();
        for step in 0..2 {
            p.write(FILE, &model.bytes());
            commit(&p, policy, step, None);
            let stored = numbers(&p.judged_at("main", FILE));
            let off = rows_off(&numbers(&model.bytes()), &stored, 0.9);
            assert_eq!(off > ROWS / 2, wiped, "{policy}, step {step}: {off} rows");
            fine_tune(&mut model);
        }
    }
}

/// The policy `lossy` under which no version is exact.
fn none_exact(p: &Place) -> &'static str {
    let text = mdl_repo::policy(&p.repo, "lossy").expect("built in").text;
    mdl_repo::set_policy(&p.repo, "none-exact", &format!("{text}{NONE_EXACT}")).expect("a policy");
    "none-exact"
}

#[test]
fn every_row_of_every_version_is_within_its_bounds() {
    let p = place();
    // A row of 64 numbers, the version before off by four updates: the product of the two varies by an update's square.
    rows_are_within_bounds(&p, none_exact(&p), 1.6);
}

#[test]
fn every_row_of_every_version_that_was_exact_is_within_its_bounds() {
    rows_are_within_bounds(&place(), "lossy", 1.0);
}

/// What of its update the error of a row may be that changed by this part of itself, squared.
fn at_most(rate: f64) -> f64 {
    2.0 * (rate.sqrt() / 0.01).clamp(1.0, 2.0)
}

/// Where no version is exact the update is estimated, up to so many times what it is.
fn rows_are_within_bounds(p: &Place, policy: &str, estimated: f64) {
    let mut model = Model::new();
    // The base is exact: what a row moved by is known from it.
    p.write(FILE, &model.bytes());
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("the base");
    let mut before = numbers(&model.bytes());
    let mut resumed = None;
    for step in 1..7 {
        fine_tune(&mut model);
        p.write(FILE, &model.bytes());
        let done = commit(p, policy, step, resumed.take());
        let (exact, stored) = (numbers(&model.bytes()), numbers(&p.judged_at("main", FILE)));
        let record = bounds(&done);
        assert!(!record.loosened && quality(&done).family == "lattice", "{record:?}");
        let (errors, updates) = (squares(&exact, &stored), squares(&exact, &before));
        for (row, (error, update)) in errors.iter().zip(&updates).enumerate() {
            assert!(error.sqrt() <= 0.15 * lengths(&exact)[row].sqrt(), "step {step}, row {row}");
            // The base is exact. An update that is small beside the parent's error is not seen.
            let slack = if step == 1 { 1.0 } else { estimated };
            if row < REACHED {
                let most = slack * at_most(slack * slack * update / lengths(&exact)[row]) * update.sqrt();
                assert!(error.sqrt() <= most, "step {step}, row {row}: {error} of {update}");
            }
        }
        if step == 1 {
            // What did not change is as it was, and what decayed is within twice its decay.
            assert_eq!(exact[DECAYING * COLS..ROWS * COLS], stored[DECAYING * COLS..ROWS * COLS]);
            let mut decayed = errors[REACHED..DECAYING].iter().zip(&updates[REACHED..]);
            assert!(decayed.all(|(e, u)| e.sqrt() <= 2.0 * u.sqrt()));
            assert!(record.worst_row_update.is_some_and(|worst| worst > 0.5 && worst <= 4.0), "{record:?}");
        }
        assert!(record.exact_rows > 0, "{record:?}");
        assert!(record.worst_row.is_some_and(|worst| worst > 0.0 && worst <= 0.15), "{record:?}");
        before = exact;
        if step == 4 {
            // Training goes on from what is stored: rows that it leaves alone stay, though offsets are drawn anew.
            let file = p.file_at("main", FILE);
            let values: Vec<f32> = numbers(&file).into_iter().map(|v| v as f32).collect();
            let mut start = 0;
            for (_, _, tensor) in &mut model.tensors {
                let n = tensor.len();
                tensor.copy_from_slice(&values[start..start + n]);
                start += n;
            }
            before = numbers(&model.bytes());
            resumed = Some(done.id);
        }
        if step == 5 {
            assert_eq!(before[DECAYING * COLS..ROWS * COLS], stored[DECAYING * COLS..ROWS * COLS]);
        }
    }
}

#[test]
fn a_plan_says_what_each_bound_costs() {
    let p = place();
    let mut model = Model::new();
    let costs = |p: &Place| {
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&p.repo, "lossy").expect("a policy"),
            evaluator: Some(&mut Says(Some(1.0))),
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        let plan = mdl_repo::plan(&p.repo, &CommitRequest::default(), &mut lossy).expect("a plan");
        let cost = |name| plan.bound_costs.iter().find(|c| c.bound == name).expect("a bound").bytes;
        ["weight", "update", "first"].map(cost)
    };
    // Without an earlier version only the bound for it counts.
    p.write(FILE, &model.bytes());
    let [weight, update, first] = costs(&p);
    assert!(weight == 0 && update == 0 && first > 0, "{weight}, {update}, {first}");
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("the base");
    model.train();
    p.write(FILE, &model.bytes());
    let [weight, update, first] = costs(&p);
    assert!(weight == 0 && update > 0 && first == 0, "{weight}, {update}, {first}");
}

#[test]
fn loosened_bounds_are_said_to_be() {
    let p = place();
    let model = Model::new();
    p.write(FILE, &model.bytes());
    let done = commit(&p, "paper", 0, None);
    let record = bounds(&done);
    assert!(record.loosened && record.update.is_none() && record.weight == Some(1.0), "{record:?}");
    assert_eq!(record.text(), "bounds: weight 1, update none, first none (loosened)");
    assert!(record.worst_row.is_some_and(|worst| worst <= 1.0), "{record:?}");
}

#[test]
fn what_is_stored_already_is_neither_replaced_nor_measured() {
    let p = place();
    let model = Model::new();
    p.write(FILE, &model.bytes());
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("exact");
    let done = commit(&p, "lossy", 1, None);
    assert_eq!((quality(&done).family.as_str(), quality(&done).evaluations), ("lossless", 0));
    assert!(quality(&done).exact.is_none(), "not even the exact checkpoint is measured");
    assert_eq!(p.file_at("main", FILE), model.bytes());
}

/// Row by row, the largest error of the embedding relative to the change from one version to the next.
fn worst(exact: &[f64], stored: &[f64], before: &[f64]) -> f64 {
    let rows = squares(exact, stored).into_iter().zip(squares(exact, before)).take(REACHED);
    rows.map(|(error, update)| (error / update).sqrt()).fold(0.0, f64::max)
}

#[test]
fn errors_do_not_count_as_updates_whatever_lies_between_two_lossy_commits() {
    let p = place();
    let policy = none_exact(&p);
    let mut model = Model::new();
    p.write(FILE, &model.bytes());
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("the base");
    for step in 1..9 {
        let before = numbers(&model.bytes());
        fine_tune(&mut model);
        p.write(FILE, &model.bytes());
        commit(&p, policy, step, None);
        let stored = p.file_at("main", FILE);
        let off = worst(&numbers(&model.bytes()), &numbers(&stored), &before);
        assert!(off < 5.2, "step {step}: {off} times the update");
        // A checkout is committed again: without a policy, under one, and with a file beside it.
        p.write(FILE, &stored);
        p.write("notes.txt", format!("after step {step}").as_bytes());
        if step % 2 == 0 {
            mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("carried over");
        } else {
            commit(&p, policy, step, None);
        }
        assert_eq!(p.file_at("main", FILE), stored);
    }
}

#[test]
fn a_bound_that_no_lattice_can_hold_keeps_every_bit() {
    let p = place();
    let tight = "try = [\"lattice\", \"bins\"]\n[bounds]\nfirst = 1e-9\n";
    mdl_repo::set_policy(&p.repo, "tight", tight).expect("a policy");
    let model = Model::new();
    p.write(FILE, &model.bytes());
    let done = commit(&p, "tight", 0, None);
    assert_eq!(quality(&done).family, "lossless");
    assert_eq!(quality(&done).evaluations, 0, "what is exact is not measured again");
    assert!(quality(&done).warnings.iter().any(|w| w.contains("nothing passed")), "{:?}", quality(&done));
    assert_eq!(p.file_at("main", FILE), model.bytes());
}

#[test]
fn another_models_version_is_no_update() {
    let p = place();
    p.write(FILE, &Model::new().bytes());
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("one model");
    let mut other = Model::new();
    for (_, _, values) in &mut other.tensors {
        values.reverse();
    }
    p.write(FILE, &other.bytes());
    let done = commit(&p, "lossy", 1, None);
    let (exact, stored) = (numbers(&other.bytes()), numbers(&p.judged_at("main", FILE)));
    let worst = squares(&exact, &stored).iter().zip(lengths(&exact)).map(|(e, w)| (e / w).sqrt()).fold(0.0, f64::max);
    assert!(worst > 0.0 && worst <= 0.002, "{worst}: {:?}", bounds(&done));
}

#[test]
fn positions_behind_an_axis_of_one_have_bounds_of_their_own() {
    let p = place();
    let mut noise = crate::support::Noise(5);
    let mut values = noise.weights(128 * 64);
    values[64 * 64..].iter_mut().for_each(|v| *v *= 1e-3);
    p.write(FILE, &crate::support::shaped(&[("pos_embed.weight", &[1, 128, 64], &values)]));
    commit(&p, "lossy", 0, None);
    let exact: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
    let stored = numbers(&p.judged_at("main", FILE));
    assert_ne!(exact, stored);
    for row in 0..128 {
        let [a, b] = [&exact, &stored].map(|all| &all[row * 64..][..64]);
        assert!(squares(a, b)[0].sqrt() <= 0.002 * lengths(a)[0].sqrt(), "row {row}");
    }
}
