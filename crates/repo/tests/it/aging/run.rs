//! A run whose versions are committed under a policy that keeps some of them exact; tests of other crates include this
//! file.
#![allow(dead_code, reason = "each crate's tests use their part")]

use crate::support::{Place, place};
use mdl_objects::Id;
use mdl_repo::{
    BoundsRecord, CheckoutOptions, CommitRequest, Content, Direction, Evaluator, Fidelity, GcOptions, GcReport,
    LossyRequest, NewFile, Repo, Result, Silent,
};
use std::{path::Path, sync::Arc};
use tempfile::TempDir;

pub const FILE: &str = "model.safetensors";
pub const NOW: GcOptions = GcOptions { dry_run: false, prune_now: true, grace: None };

/// Of each tensor: name, type, rows, columns.
pub const TENSORS: [(&str, Type, usize, usize); 4] = [
    ("wte.weight", Type::F32, 160, 48),
    ("h.0.mlp.fc.weight", Type::Bf16, 96, 128),
    ("frozen.weight", Type::F32, 80, 64),
    ("h.0.ln.weight", Type::F32, 1, 96),
];
/// Rows of the embedding that training moves, and after these the ones that decay; the others stay as they are.
pub const REACHED: usize = 60;
pub const DECAYING: usize = 110;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    F32,
    Bf16,
}

/// The weights of a training.
#[derive(Clone)]
pub struct Training {
    noise: u64,
    values: Vec<Vec<f32>>,
}

/// The same on every machine.
fn noise(state: &mut u64, n: usize) -> Vec<f32> {
    let mut unit = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| 0.1 * (unit() + unit() + unit())).collect()
}

impl Training {
    pub fn new(seed: u64) -> Training {
        let mut state = seed * 1_000_003 + 1;
        let values = TENSORS.iter().map(|(_, _, rows, cols)| noise(&mut state, rows * cols)).collect();
        Training { noise: state, values }
    }

    /// Moves on by one version.
    pub fn train(&mut self) {
        for (values, (name, _, _, cols)) in self.values.iter_mut().zip(TENSORS) {
            let moves = noise(&mut self.noise, values.len());
            for (i, (v, m)) in values.iter_mut().zip(moves).enumerate() {
                match (name, i / cols) {
                    ("frozen.weight", _) => {}
                    ("wte.weight", row) if row >= DECAYING => {}
                    ("wte.weight", row) if row >= REACHED => *v *= 1.0 - 4e-4,
                    _ => *v += 0.02 * m,
                }
            }
        }
    }

    /// The checkpoint.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (values, (name, dtype, rows, cols)) in self.values.iter().zip(TENSORS) {
            let start = data.len();
            for v in values {
                match dtype {
                    Type::F32 => data.extend(v.to_le_bytes()),
                    Type::Bf16 => data.extend(&v.to_le_bytes()[2..]),
                }
            }
            let (dtype, shape) = match dtype {
                Type::F32 if rows == 1 => ("F32", vec![cols]),
                Type::F32 => ("F32", vec![rows, cols]),
                Type::Bf16 => ("BF16", vec![rows, cols]),
            };
            let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.to_owned(), entry);
        }
        let header = serde_json::to_vec(&header).expect("json");
        [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
    }
}

/// The numbers of a checkpoint, tensor by tensor as in `TENSORS`.
pub fn numbers(file: &[u8]) -> Vec<Vec<f64>> {
    let mut at = 8 + u64::from_le_bytes(file[..8].try_into().expect("8")) as usize;
    let tensor = |(_, dtype, rows, cols): (&str, Type, usize, usize)| {
        let size = if dtype == Type::F32 { 4 } else { 2 };
        let bytes = &file[at..at + rows * cols * size];
        at += bytes.len();
        let number = |b: &[u8]| match dtype {
            Type::F32 => f32::from_le_bytes(b.try_into().expect("4")),
            Type::Bf16 => f32::from_le_bytes([0, 0, b[0], b[1]]),
        };
        bytes.chunks_exact(size).map(|b| f64::from(number(b))).collect()
    };
    TENSORS.into_iter().map(tensor).collect()
}

/// A version, what training had, and the approximation that was judged.
#[derive(Clone)]
pub struct Version {
    pub id: Id,
    pub exact: Vec<u8>,
    pub near: Vec<u8>,
    pub bounds: Option<BoundsRecord>,
}

/// Always the same answer.
pub struct Says(pub Option<f64>);

impl Evaluator for Says {
    fn evaluate(&mut self, _: &Path) -> Option<f64> {
        self.0
    }
}

/// A repository with a policy, and the run that commits to it.
pub struct Run {
    pub p: Place,
    pub training: Training,
    pub step: u64,
    pub all: Vec<Version>,
}

impl Run {
    /// With a policy whose rules of what stays exact are these.
    pub fn new(keep: &str) -> Run {
        let run = Run { p: place(), training: Training::new(7), step: 0, all: Vec::new() };
        run.keep(keep);
        run
    }

    pub fn keep(&self, keep: &str) {
        let text = format!("try = [\"lattice\"]\n[fixed]\nfamily = \"lattice\"\n[keep]\n{keep}\n");
        mdl_repo::set_policy(&self.p.repo, "ages", &text).expect("a policy");
    }

    /// So many versions more.
    pub fn on(&mut self, n: usize) -> &mut Run {
        (0..n).for_each(|_| drop(self.commit(CommitRequest::default())));
        self
    }

    /// One version more.
    pub fn commit(&mut self, request: CommitRequest) -> Version {
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&self.p.repo, "ages").expect("a policy"),
            evaluator: None,
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        self.commit_with(request, &mut lossy)
    }

    pub fn commit_with(&mut self, request: CommitRequest, lossy: &mut LossyRequest<'_>) -> Version {
        let request = self.request(request);
        let done = mdl_repo::commit_lossy(&self.p.repo, &request, lossy, &Silent).expect("a commit");
        let version = Version {
            id: done.id,
            exact: self.training.bytes(),
            near: judged(&self.p.repo, &done.id),
            bounds: done.quality.and_then(|q| q.bounds),
        };
        self.all.push(version.clone());
        self.next();
        version
    }

    /// With the checkpoint and the step.
    pub fn request(&self, request: CommitRequest) -> CommitRequest {
        let content = Content::Memory(Arc::new(self.training.bytes()));
        let file = NewFile { rel: FILE.to_owned(), executable: false, content };
        CommitRequest { files: Some(vec![file]), step: Some(self.step), ..request }
    }

    pub fn next(&mut self) {
        self.training.train();
        self.step += 1;
    }

    pub fn collect(&self) -> GcReport {
        mdl_repo::gc(&self.p.repo, &NOW, &Silent).expect("gc")
    }

    pub fn aged(&self) -> Vec<usize> {
        let record = mdl_repo::pruned(&self.p.repo).expect("the record");
        (0..self.all.len()).filter(|n| record.aged(&self.all[*n].id).is_some()).collect()
    }

    /// Checks that of all versions these give what training had, the others their approximation, and that nothing is
    /// damaged.
    pub fn are_exact(&self, exact: &[usize]) {
        is_clean(&self.p.repo);
        for (n, version) in self.all.iter().enumerate() {
            version.gives(&self.p.repo, exact.contains(&n), &format!("version {n}"));
        }
    }
}

impl Version {
    /// Checks what this version gives.
    pub fn gives(&self, repo: &Repo, exact: bool, what: &str) {
        let file = read(repo, &self.id).expect(what);
        assert_eq!(file == self.exact, exact, "{what}: exact");
        assert!(exact || file == self.near, "{what}: neither exact nor as judged");
        let want = if exact { Fidelity::Exact } else { Fidelity::Approximate };
        assert_eq!(fidelity(repo, &self.id), want, "{what}");
    }
}

pub fn fidelity(repo: &Repo, id: &Id) -> Fidelity {
    let commit = repo.odb().commit(id).expect("a commit");
    mdl_repo::pruned(repo).expect("the record").fidelity(repo.odb(), id, &commit).expect("fidelity")
}

/// The checkpoint that a checkout of a version gives.
pub fn read(repo: &Repo, id: &Id) -> Result<Vec<u8>> {
    let out = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(repo, id, out.path(), &CheckoutOptions::default(), &Silent)?;
    Ok(std::fs::read(out.path().join(FILE)).expect("the file"))
}

/// The approximation of a version, as it was judged.
pub fn judged(repo: &Repo, id: &Id) -> Vec<u8> {
    let commit = repo.odb().commit(id).expect("a commit");
    let files = repo.odb().files(&commit.approximation.unwrap_or(commit.tree)).expect("files");
    repo.odb().read_range(&files[FILE], 0, files[FILE].size).expect("the file")
}

pub fn is_clean(repo: &Repo) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, []);
}
