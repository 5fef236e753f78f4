//! Candidates that are measured as tensors in memory: the same versions as with directories, and no files.

use super::model::{FILE, Model, NO_BOUNDS, NONE_EXACT, quality, request};
use crate::support::{Noise, Place, memory, place, shaped};
use mdl_objects::{Id, Signature};
use mdl_repo::{BoundCost, CommitRequest, Direction, Evaluator, LossyRequest, Quality, ReplacedTensor, Silent, Trial};
use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

const OPTIMIZER: &str = "optimizer.safetensors";

/// A number that hangs on every bit of the weights, of files or of tensors.
struct Judge<'a> {
    tensors: bool,
    width: usize,
    exact: Vec<u8>,
    candidates: &'a Path,
    /// The model's file of every candidate.
    seen: Vec<Vec<u8>>,
    most: usize,
}

impl Judge<'_> {
    fn judge(&mut self, file: Vec<u8>) -> Option<f64> {
        let weights = |file: &[u8]| file[place_of(file, "wte.weight").start..].to_vec();
        let mix = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        let hash = weights(&file).iter().fold(7, mix).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let part = hash as f64 / f64::from(1 << 24);
        if weights(&file) == weights(&self.exact) {
            return Some(1.0);
        }
        self.seen.push(file);
        (part < 0.95).then_some(1.0 + 0.02 * part)
    }
}

impl Evaluator for Judge<'_> {
    fn evaluate(&mut self, dir: &Path) -> Option<f64> {
        assert!(!self.tensors, "it takes tensors");
        self.judge(fs::read(dir.join(FILE)).expect("the candidate has the file"))
    }

    fn width(&self) -> usize {
        self.width
    }

    fn takes_tensors(&self) -> bool {
        self.tensors
    }

    fn evaluate_tensors(&mut self, candidates: &[Vec<ReplacedTensor>]) -> Vec<Option<f64>> {
        assert!(self.tensors && candidates.len() <= self.width);
        self.most = self.most.max(candidates.len());
        // The state itself, and moments if the policy replaces them, once, and the lock; nothing of a candidate.
        for file in files_below(self.candidates) {
            let name = file.strip_prefix(self.candidates).expect("below").components().nth(1).expect("inside");
            assert!(["given", "moments", ".lock"].map(AsRef::as_ref).contains(&name.as_os_str()), "{file:?}");
        }
        let file = |tensors: &Vec<ReplacedTensor>| {
            let mut file = self.exact.clone();
            for t in tensors {
                assert_eq!((&*t.file, t.dtype.name()), (FILE, "f32"));
                assert_eq!(t.shape.iter().product::<usize>() * 4, t.bytes.len());
                let at = place_of(&file, &t.name);
                file[at].copy_from_slice(&t.bytes);
            }
            file
        };
        let files: Vec<_> = candidates.iter().map(file).collect();
        files.into_iter().map(|file| self.judge(file)).collect()
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|e| e.expect("entry").path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Where a tensor lies in a safetensors file.
fn place_of(file: &[u8], name: &str) -> Range<usize> {
    let len = u64::from_le_bytes(file[..8].try_into().expect("8")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + len]).expect("json");
    let offset = |i: usize| 8 + len + header[name]["data_offsets"][i].as_u64().expect("an offset") as usize;
    offset(0)..offset(1)
}

/// What some versions came to.
#[derive(Debug, PartialEq)]
struct Run {
    ids: Vec<Id>,
    records: Vec<Quality>,
    seen: Vec<Vec<u8>>,
    trials: Vec<Trial>,
    bound_costs: Vec<BoundCost>,
}

fn moments(noise: &mut Noise) -> [(&'static str, Vec<f32>); 2] {
    let square = |v: f32| v * v;
    let first = noise.weights(256 * 64);
    let second = noise.weights(256 * 64).into_iter().map(square).collect();
    [("wte.weight.exp_avg", first), ("wte.weight.exp_avg_sq", second)]
}

/// Three versions and a plan; the moments lie before the weights in their file, or in one of their own.
fn run(policy: &str, tensors: bool, width: usize, (together, on_disk): (bool, bool)) -> Run {
    let p = place();
    mdl_repo::set_policy(&p.repo, "mine", policy).expect("a policy");
    let (mut model, mut noise) = (Model::new(), Noise(5));
    let (candidates, mut most) = (p.path().join(".mdl/candidates"), 0);
    let mut run =
        Run { ids: Vec::new(), records: Vec::new(), seen: Vec::new(), trials: Vec::new(), bound_costs: Vec::new() };
    for step in 0..4 {
        let moments = moments(&mut noise);
        let moments = moments.iter().map(|(n, v)| (*n, &[256, 64][..], v.as_slice()));
        let weights = model.tensors.iter().map(|(n, s, v)| (*n, s.as_slice(), v.as_slice()));
        let (file, other) = match together {
            true => (shaped(&moments.chain(weights).collect::<Vec<_>>()), Vec::new()),
            false => (model.bytes(), shaped(&moments.collect::<Vec<_>>())),
        };
        let request = given(&p, step, on_disk, &[(FILE, &file), (OPTIMIZER, &other), ("notes", b"more")]);
        let mut judge =
            Judge { tensors, width, exact: file.clone(), candidates: &candidates, seen: Vec::new(), most: 0 };
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&p.repo, "mine").expect("a policy"),
            evaluator: Some(&mut judge),
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        if step == 3 {
            let plan = mdl_repo::plan(&p.repo, &request, &mut lossy).expect("a plan");
            (run.trials, run.bound_costs) = (plan.trials, plan.bound_costs);
        } else {
            let done = mdl_repo::commit_lossy(&p.repo, &request, &mut lossy, &Silent).expect("commit");
            let stored = p.judged_at("main", FILE);
            let lossless = quality(&done).family == "lossless";
            assert!(lossless || judge.seen.contains(&stored), "nobody saw what was committed");
            let new = if policy.contains(NONE_EXACT) { &stored } else { &file };
            assert!(p.file_at("main", FILE) == *new, "what is new is exact, if anything is");
            run.ids.push(done.id);
            run.records.push(quality(&done).clone());
        }
        most = most.max(judge.most);
        run.seen.extend(judge.seen);
        model.train();
        assert_eq!(fs::read_dir(&candidates).expect("dir").count(), 0, "nothing is left");
    }
    assert!(!tensors || width == 1 || most > 1, "none were measured side by side");
    run
}

/// The files, on disk or in memory, by an author who needs no clock: equal versions have equal ids.
fn given(p: &Place, step: u64, on_disk: bool, files: &[(&str, &[u8])]) -> CommitRequest {
    let author = Signature { name: "A".to_owned(), email: String::new(), time_ms: step as i64, utc_offset_min: 0 };
    let files = files.iter().filter(|(_, bytes)| !bytes.is_empty());
    let files = match on_disk {
        true => {
            files.for_each(|(rel, bytes)| p.write(rel, bytes));
            None
        }
        false => Some(files.map(|(rel, bytes)| memory(rel, bytes)).collect()),
    };
    CommitRequest { author: Some(author), files, ..request(step) }
}

/// Commits with the same ids: trees, records, reports and statistics are the same.
fn alike(policy: &str, lossy: bool) {
    for (together, on_disk) in [(false, false), (true, true)] {
        for width in [1, 3] {
            let files = run(policy, false, width, (together, on_disk));
            assert_eq!(files.records.iter().any(|q| q.family != "lossless"), lossy);
            assert!(!files.trials.is_empty() && !files.seen.is_empty());
            let tensors = run(policy, true, width, (together, on_disk));
            assert!(tensors == files, "{width} side by side: {:?} and {:?}", tensors.records, files.records);
        }
    }
}

#[test]
fn both_families_choose_alike_with_and_without_files() {
    alike(&format!("try = [\"lattice\", \"bins\"]\n{NO_BOUNDS}"), true);
}

#[test]
fn bins_with_moments_choose_alike_with_and_without_files() {
    alike(&format!("try = [\"bins\"]\n{NO_BOUNDS}[optimizer]\nmoments = \"log8\"\n"), true);
}

#[test]
fn lattices_within_bounds_and_factored_moments_choose_alike_with_and_without_files() {
    alike(&format!("try = [\"lattice\"]\n[optimizer]\nmoments = \"factored\"\n{NONE_EXACT}"), true);
}

#[test]
fn where_nothing_passes_every_bit_stays_without_files_too() {
    alike(&format!("try = [\"lattice\"]\n{NO_BOUNDS}[gate]\nepsilon = 0.0\n"), false);
}
