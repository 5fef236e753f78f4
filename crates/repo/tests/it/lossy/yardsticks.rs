//! What the bounds measure by: a checkpoint outside of the repository for a first version, columns that the gradients
//! do not see, rows that weight decay alone moves.

use super::{
    Says,
    model::{FILE, Model, NONE_EXACT, numbers, quality},
};
use crate::support::{Place, place};
use mdl_repo::{CommitRequest, Committed, Direction, LossyRequest, Silent};
use std::{fs, path::PathBuf};

/// Rows and columns of the embedding, which comes first.
const ROWS: usize = 256;
const COLS: usize = 64;

struct Told {
    grads: Option<PathBuf>,
    since: Option<PathBuf>,
    resumed_from: Option<mdl_objects::Id>,
}

const NOTHING: Told = Told { grads: None, since: None, resumed_from: None };

fn attempt(p: &Place, step: u64, told: Told) -> mdl_repo::Result<Committed> {
    let text = mdl_repo::policy(&p.repo, "lossy").expect("built in").text;
    mdl_repo::set_policy(&p.repo, "none-exact", &format!("{text}{NONE_EXACT}")).expect("a policy");
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&p.repo, "none-exact").expect("a policy"),
        evaluator: Some(&mut Says(Some(2.0 - 0.1 * step as f64))),
        direction: Direction::LowerIsBetter,
        grads: told.grads,
        since: told.since,
    };
    let request = CommitRequest { step: Some(step), resumed_from: told.resumed_from, ..CommitRequest::default() };
    mdl_repo::commit_lossy(&p.repo, &request, &mut lossy, &Silent)
}

fn commit(p: &Place, step: u64, told: Told) -> Committed {
    attempt(p, step, told).expect("a commit")
}

/// The embedding of a file.
fn embedding(file: &[u8]) -> Vec<f64> {
    let mut all = numbers(file);
    all.truncate(ROWS * COLS);
    all
}

/// Norms of the rows of a difference.
fn row_norms(a: &[f64], b: &[f64]) -> Vec<f64> {
    let rows = a.chunks(COLS).zip(b.chunks(COLS));
    rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()).collect()
}

#[test]
fn an_earlier_checkpoint_on_disk_tells_a_first_versions_update() {
    let without = place();
    let mut model = Model::new();
    let earlier = model.bytes();
    model.train();
    without.write(FILE, &model.bytes());
    let close = commit(&without, 0, NOTHING);
    let p = place();
    let since = p.path().parent().expect("a directory").join("since");
    fs::create_dir_all(&since).expect("made");
    fs::write(since.join(FILE), &earlier).expect("written");
    p.write(FILE, &model.bytes());
    // The directory, or the only file.
    for told in [since.clone(), since.join(FILE)] {
        let done = commit(&p, 0, Told { since: Some(told), ..NOTHING });
        assert!(
            done.summary.stored_bytes * 3 < close.summary.stored_bytes * 2,
            "{} of {}",
            done.summary.stored_bytes,
            close.summary.stored_bytes
        );
        let (exact, stored) = (embedding(&model.bytes()), embedding(&p.file_at("main", FILE)));
        let (errors, updates) = (row_norms(&exact, &stored), row_norms(&exact, &embedding(&earlier)));
        let weights = row_norms(&exact, &vec![0.0; exact.len()]);
        assert!(errors.iter().zip(&weights).any(|(e, w)| *e > 0.002 * w), "no more than without it");
        for (row, ((error, update), weight)) in errors.iter().zip(updates).zip(weights).enumerate() {
            let most = (4.0 * update).max(0.002 * weight).min(0.15 * weight);
            assert!(*error <= most, "row {row}: {error} of {update} and {weight}");
        }
        assert_eq!(quality(&done).bounds.as_ref().and_then(|b| b.worst_row_update), None, "no version is its base");
    }
    let lost = attempt(&p, 1, Told { since: Some(p.path().join("nowhere")), ..NOTHING });
    assert!(matches!(lost, Err(mdl_repo::RepoError::User { .. })), "{lost:?}");
}

#[test]
fn columns_without_a_gradient_do_not_pay_for_the_others() {
    let p = place();
    let mut model = Model::new();
    p.write(FILE, &model.bytes());
    mdl_repo::commit(&p.repo, &CommitRequest::default(), &Silent).expect("the base");
    let before = embedding(&model.bytes());
    // The last batch reached every fourth column.
    let mut gradients = Model::new();
    for (i, g) in gradients.tensors[0].2.iter_mut().enumerate().filter(|(i, _)| !(i % COLS).is_multiple_of(4)) {
        *g = if i % 2 == 0 { 0.0 } else { 1e-12 };
    }
    let grads = p.path().join("g.safetensors");
    fs::write(&grads, gradients.bytes()).expect("gradients");
    fs::write(p.path().join(".mdlignore"), "g.safetensors\n").expect("ignored");
    model.train();
    p.write(FILE, &model.bytes());
    let done = commit(&p, 1, Told { grads: Some(grads), ..NOTHING });
    assert_eq!(quality(&done).family, "lattice");
    let (exact, stored) = (embedding(&model.bytes()), embedding(&p.file_at("main", FILE)));
    let square = |a: &[f64], b: &[f64], column: usize| {
        let pairs = a.iter().zip(b).skip(column).step_by(COLS);
        pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>()
    };
    let update = (0..COLS).map(|c| square(&exact, &before, c)).sum::<f64>() / COLS as f64;
    for column in 0..COLS {
        let error = square(&exact, &stored, column);
        assert!(error.sqrt() <= 4.4 * update.sqrt(), "column {column}: {error} of {update}");
    }
}

/// Steps of a decay so small that each rounds a number by one place or by none.
fn decay(value: f32) -> f32 {
    (0..20).fold(value, |v, _| v * (1.0 - 3e-7))
}

#[test]
fn rows_that_only_decay_cost_next_to_nothing_after_a_restore() {
    let p = place();
    let mut model = Model::new();
    p.write(FILE, &model.bytes());
    let first = commit(&p, 0, NOTHING);
    // Training goes on from what is stored.
    let mut values = numbers(&p.file_at("main", FILE)).into_iter().map(|v| v as f32);
    for (_, _, tensor) in &mut model.tensors {
        tensor.fill_with(|| values.next().expect("as many"));
    }
    let mut resumed_from = Some(first.id);
    for step in 1..6 {
        let before = embedding(&model.bytes());
        let was = model.tensors[0].2.clone();
        model.train();
        for (i, now) in model.tensors[0].2.iter_mut().enumerate().filter(|(i, _)| i / COLS >= 16) {
            *now = decay(was[i]);
        }
        p.write(FILE, &model.bytes());
        let done = commit(&p, step, Told { resumed_from: resumed_from.take(), ..NOTHING });
        let (exact, stored) = (embedding(&model.bytes()), embedding(&p.file_at("main", FILE)));
        let (errors, updates) = (row_norms(&exact, &stored), row_norms(&exact, &before));
        for (row, (error, update)) in errors.iter().zip(updates).enumerate().skip(16) {
            assert!(*error > 0.0 && *error <= 2.0 * update, "step {step}, row {row}: {error} of {update}");
        }
        let new = done.report.tensors.iter().find(|t| t.name == "wte.weight").expect("the embedding").stored;
        // Exactly they would take some 40 KB.
        assert!(new < 4000, "step {step}: {new} bytes");
    }
}
