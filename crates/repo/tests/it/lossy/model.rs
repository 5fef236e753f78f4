//! A small model that is trained a little from version to version, and a measure of how far a stored one is from it.
#![allow(dead_code, reason = "each crate's tests use their part")]

use crate::support::Noise;
use mdl_repo::{CommitRequest, Committed, Evaluator, Quality};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub const FILE: &str = "model.safetensors";

/// For policies under which the gate alone decides.
pub const NO_BOUNDS: &str = "[bounds]\nweight = inf\nupdate = inf\nfirst = inf\n";

/// For policies under which no version is exact.
pub const NONE_EXACT: &str = "[keep]\nexact_latest = 0\n";

/// Measures a checkpoint by how far its one file is from the exact one: `loss + weight * relative squared deviation`.
pub struct Distance {
    pub exact: Vec<u8>,
    pub loss: f64,
    pub weight: f64,
    /// Every directory it was shown, and what its file held.
    pub seen: Vec<(PathBuf, Vec<u8>)>,
}

pub fn numbers(file: &[u8]) -> Vec<f64> {
    let start = 8 + u64::from_le_bytes(file[..8].try_into().expect("8")) as usize;
    let each = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().expect("4")));
    file[start..].chunks_exact(4).map(each).collect()
}

impl Evaluator for Distance {
    fn evaluate(&mut self, dir: &Path) -> Option<f64> {
        let file = fs::read(dir.join(FILE)).expect("the candidate has the file");
        let pairs: Vec<(f64, f64)> = numbers(&self.exact).into_iter().zip(numbers(&file)).collect();
        let apart: f64 = pairs.iter().map(|(a, b)| (a - b) * (a - b)).sum();
        let size: f64 = pairs.iter().map(|(a, _)| a * a).sum();
        self.seen.push((dir.to_owned(), file));
        Some(self.loss + self.weight * apart / size)
    }
}

pub fn request(step: u64) -> CommitRequest {
    CommitRequest { message: format!("step {step}"), step: Some(step), ..CommitRequest::default() }
}

pub fn quality(done: &Committed) -> &Quality {
    done.quality.as_ref().expect("a quality record")
}

/// A model of two matrices and a vector; weights move a little from version to version.
pub struct Model {
    pub noise: Noise,
    pub tensors: Vec<(&'static str, Vec<u64>, Vec<f32>)>,
}

impl Model {
    pub fn new() -> Model {
        let mut noise = Noise(77);
        let mut of =
            |name, shape: &[u64]| (name, shape.to_vec(), noise.weights(shape.iter().product::<u64>() as usize));
        let tensors =
            vec![of("wte.weight", &[256, 64]), of("h.0.mlp.fc.weight", &[160, 200]), of("h.0.ln.weight", &[200])];
        Model { noise, tensors }
    }

    pub fn train(&mut self) {
        for (_, _, values) in &mut self.tensors {
            let moves = self.noise.weights(values.len());
            values.iter_mut().zip(moves).for_each(|(v, m)| *v += 0.02 * m);
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let shaped: Vec<_> = self.tensors.iter().map(|(n, s, v)| (*n, s.as_slice(), v.as_slice())).collect();
        crate::support::shaped(&shaped)
    }

    pub fn judge(&self, step: u64) -> Distance {
        Distance { exact: self.bytes(), loss: 2.0 - 0.01 * step as f64, weight: 1.0, seen: Vec::new() }
    }
}
