//! What the tests of this crate share: repositories with histories of small models, and a peer that fails on purpose.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../../repo/tests/it/support/mod.rs"]
mod repo;
#[path = "../../../../codec/tests/it/xorshift.rs"]
mod xorshift;

use mdl_objects::Id;
use mdl_remote::{
    Advertised, DirectPeer, Peer, ReadPart, Take,
    sync::{Bundle, Piece, RefMove, TransferPlan, Want},
};
use mdl_repo::{CheckoutOptions, Progress, PrunedMark, Repo, RepoError, Result, Silent};
use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use xorshift::Xorshift;

pub use repo::{Place, add_object, engine, fresh, place};

/// The repository at a path as a peer.
pub fn near(place: &Place) -> DirectPeer {
    let repo = Repo::open(place.dir.path(), engine()).expect("open").without_index();
    let scratch = place.dir.path().join(".mdl");
    DirectPeer::new(repo, &scratch)
}

/// Deterministic noise.
pub fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut noise = Xorshift::seeded(seed);
    (0..n).map(|_| (noise.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).collect()
}

/// A safetensors file of one f32 vector per name.
pub fn model(tensors: &[(&str, Vec<f32>)]) -> Vec<u8> {
    let (mut head, mut at) = (Vec::new(), 0);
    for (name, values) in tensors {
        let end = at + 4 * values.len();
        let n = values.len();
        head.push(format!(r#""{name}":{{"dtype":"F32","shape":[{n}],"data_offsets":[{at},{end}]}}"#));
        at = end;
    }
    let mut json = format!("{{{}}}", head.join(","));
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(json.as_bytes());
    for (_, values) in tensors {
        values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    }
    out
}

impl Place {
    /// Commits `n` versions of a model that trains a little each time.
    pub fn train(&self, n: u64) -> Vec<Id> {
        self.train_by(n, 1e-3)
    }

    /// The same, each time by about so much.
    pub fn train_by(&self, n: u64, rate: f32) -> Vec<Id> {
        let mut weights = noise(1, 60_000);
        let embed = noise(2, 20_000);
        (0..n)
            .map(|step| {
                let grads = noise(100 + step, weights.len());
                weights.iter_mut().zip(&grads).for_each(|(w, g)| *w += rate * g);
                let head: Vec<f32> = weights.iter().take(5_000).map(|w| w * 2.0).collect();
                let bytes = model(&[("embed", embed.clone()), ("body", weights.clone()), ("head", head)]);
                self.write("model.safetensors", &bytes);
                self.write("step.txt", step.to_string().as_bytes());
                self.commit(&format!("step {step}")).id
            })
            .collect()
    }
}

/// Files of a version, by way of a checkout elsewhere.
pub fn files(repo: &Repo, id: &Id) -> Vec<(String, Vec<u8>)> {
    let out = TempDir::new().expect("temp dir");
    mdl_repo::checkout_to(repo, id, out.path(), &CheckoutOptions::default(), &Silent).expect("checkout");
    let mut found = Vec::new();
    read_all(out.path(), &mut found);
    found.sort();
    found
}

fn read_all(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).expect("dir").flatten() {
        if entry.path().is_dir() {
            read_all(&entry.path(), found);
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push((name, std::fs::read(entry.path()).expect("file")));
    }
}

/// A peer that counts, breaks off in the middle of the nth read, or returns a flipped bit there.
pub struct Flaky {
    pub inner: DirectPeer,
    pub reads: AtomicU64,
    pub carried: AtomicU64,
    pub fail_at: Option<u64>,
    pub flip_at: Option<u64>,
    pub plans: Mutex<Vec<u64>>,
    pub whole: bool,
}

impl Flaky {
    pub fn new(inner: DirectPeer) -> Flaky {
        Flaky {
            inner,
            reads: AtomicU64::new(0),
            carried: AtomicU64::new(0),
            fail_at: None,
            flip_at: None,
            plans: Mutex::default(),
            whole: false,
        }
    }
}

impl Peer for Flaky {
    fn refs(&self) -> Result<Advertised> {
        self.inner.refs()
    }

    fn plan(&self, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
        let plan = self.inner.plan(want, progress)?;
        let bytes = plan.encode()?;
        self.plans.lock().expect("lock").push(bytes.len() as u64);
        TransferPlan::decode(&bytes)
    }

    fn plan_standalone(&self, tensors: &[Id], progress: &dyn Progress) -> Result<Option<TransferPlan>> {
        match self.whole {
            // As a server does, but with the pack among the repository's own.
            true => {
                mdl_remote::sync::plan_standalone(self.inner.repo(), tensors, self.inner.repo().storage(), progress)
                    .map(Some)
            }
            false => Ok(None),
        }
    }

    fn read(&self, pieces: &[Piece], take: &mut Take<'_>) -> Result<()> {
        let n = self.reads.fetch_add(1, Ordering::SeqCst);
        let mut bytes = Vec::new();
        self.inner.read(pieces, &mut |some| {
            bytes.extend_from_slice(some);
            Ok(())
        })?;
        let half = bytes.len() / 2;
        if Some(n) == self.flip_at {
            bytes[half] ^= 4;
        }
        if Some(n) == self.fail_at {
            bytes.truncate(half);
        }
        self.carried.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        take(&bytes)?;
        match Some(n) == self.fail_at {
            true => Err(RepoError::user("the line is cut", "")),
            false => Ok(()),
        }
    }

    fn missing(&self, ids: &[Id]) -> Result<HashSet<Id>> {
        self.inner.missing(ids)
    }

    fn known(&self, commits: &[Id]) -> Result<HashSet<Id>> {
        self.inner.known(commits)
    }

    fn bundle_bytes(&self) -> u64 {
        self.inner.bundle_bytes()
    }

    fn send(&self, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
        self.inner.send(bundles, read, progress)
    }

    fn note_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()> {
        self.inner.note_pruned(pruned)
    }

    fn move_refs(&self, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>> {
        self.inner.move_refs(moves, message)
    }
}
