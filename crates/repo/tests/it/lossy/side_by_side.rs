//! Candidates measured several at a time: the same choices in fewer rounds.

use super::model::{FILE, Model, NO_BOUNDS, quality, request};
use crate::support::{Noise, place};
use mdl_repo::{Direction, Evaluator, LossyRequest, Quality, Silent, Trial};
use std::{fs, path::Path};

/// A landscape without any order: the number hangs on every bit of the file. About half of the candidates pass.
struct Rugged {
    exact: Vec<u8>,
    seed: u64,
    scale: f64,
    width: usize,
    rounds: usize,
}

impl Evaluator for Rugged {
    fn evaluate(&mut self, dir: &Path) -> Option<f64> {
        let file = fs::read(dir.join(FILE)).expect("the candidate has the file");
        if file == self.exact {
            return Some(1.0);
        }
        let mix = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        let hash = file.iter().fold(self.seed, mix).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let part = hash as f64 / f64::from(1 << 24);
        // Some cannot be measured at all.
        (part < 0.95).then_some(1.0 + self.scale * part)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn evaluate_all(&mut self, dirs: &[&Path]) -> Vec<Option<f64>> {
        assert!(!dirs.is_empty() && dirs.len() <= self.width);
        self.rounds += 1;
        dirs.iter().map(|dir| self.evaluate(dir)).collect()
    }
}

/// What a run of commits came to, measured so many side by side.
#[derive(Debug)]
struct Run {
    /// Records (less their count of measurements) and trees.
    done: Vec<(Quality, mdl_objects::Id)>,
    /// The candidates of a plan for one more.
    trials: Vec<Trial>,
    rounds: usize,
    evaluations: u32,
}

fn run_rugged(policy: &str, scale: f64, seed: u64, width: usize) -> Run {
    let p = place();
    let mut model = Model::new();
    let grads = p.path().join("g.safetensors");
    fs::write(&grads, Model { noise: Noise(seed), ..Model::new() }.bytes()).expect("gradients");
    fs::write(p.path().join(".mdlignore"), "g.safetensors\n").expect("ignored");
    let text = mdl_repo::policy(&p.repo, policy).expect("a policy").text;
    if !text.contains("[bounds]") {
        mdl_repo::set_policy(&p.repo, policy, &format!("{text}{NO_BOUNDS}")).expect("a policy");
    }
    let mut run = Run { done: Vec::new(), trials: Vec::new(), rounds: 0, evaluations: 0 };
    for step in 0..3 {
        p.write(FILE, &model.bytes());
        let mut judge = Rugged { exact: model.bytes(), seed: seed + step, scale, width, rounds: 0 };
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&p.repo, policy).expect("a policy"),
            evaluator: Some(&mut judge),
            direction: Direction::LowerIsBetter,
            grads: Some(grads.clone()),
            since: None,
        };
        if step == 2 {
            run.trials = mdl_repo::plan(&p.repo, &request(step), &mut lossy).expect("a plan").trials;
            break;
        }
        let done = mdl_repo::commit_lossy(&p.repo, &request(step), &mut lossy, &Silent).expect("commit");
        let mut quality = quality(&done).clone();
        run.evaluations += std::mem::take(&mut quality.evaluations);
        run.rounds += judge.rounds;
        run.done.push((quality, p.repo.odb().commit(&done.id).expect("commit").tree));
        model.train();
    }
    let left = fs::read_dir(p.path().join(".mdl/candidates")).expect("dir").count();
    assert_eq!(left, 0, "candidates are removed");
    run
}

/// Widths choose alike, and four side by side take fewer rounds.
fn alike(policy: &str, scale: f64, seed: u64) {
    let one = run_rugged(policy, scale, seed, 1);
    assert_eq!(one.rounds as u32, one.evaluations, "one after the other");
    for width in [2, 3, 4, 8] {
        let many = run_rugged(policy, scale, seed, width);
        assert_eq!(many.done, one.done, "{width} side by side");
        let (ahead, asked): (Vec<Trial>, Vec<Trial>) = many.trials.into_iter().partition(|t| t.ahead);
        assert_eq!(asked, one.trials, "{width} side by side");
        let judged = |c: &str| one.trials.iter().any(|t| t.evaluated && t.configuration == c);
        assert!(ahead.iter().all(|t| t.evaluated && !judged(&t.configuration)));
        assert!(many.rounds <= one.rounds && many.evaluations >= one.evaluations);
        assert!(width != 4 || many.rounds < one.rounds, "{} rounds", many.rounds);
    }
}

#[test]
fn both_families_measured_side_by_side_choose_alike() {
    alike("lossy", 0.005, 1);
    alike("lossy", 0.02, 2);
}

#[test]
fn bins_measured_side_by_side_choose_alike() {
    alike("bins", 0.02, 3);
}

#[test]
fn the_cube_measured_side_by_side_chooses_alike() {
    alike("paper", 0.1, 5);
}
