//! The quality record of a commit: the policy, what was measured, and where the next search begins, so that any clone
//! goes on from it.

use crate::{bins::Books, bounds::BoundsRecord};
use mdl_codec::quant::search::{Gate, Progress};
use mdl_objects::Commit;
use mdl_store::{RepoError, Result};
use serde::{Deserialize, Serialize};

/// The record (docs/format.md, "Quality record"): JSON, so that later versions can add to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Name of the policy.
    pub policy: String,
    /// `lattice`, `bins`, or `lossless` where nothing passed.
    pub family: String,
    /// The configuration in words.
    pub configuration: String,
    /// The gate in words, such as `progress 0.25`.
    pub gate: String,
    /// `lower-is-better` or `higher-is-better`.
    pub direction: String,
    /// The evaluator's number for the exact checkpoint; none: nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<f64>,
    /// The evaluator's number for what was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// The worst number that would have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Candidates that were evaluated, the exact one not counted.
    #[serde(default)]
    pub evaluations: u32,
    /// Largest deviation of a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs: Option<f64>,
    /// Deviation of all quantised weights together, relative to them (Euclidean norms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2: Option<f64>,
    /// What bounds the error of each row, whatever the gate says, and how much of it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoundsRecord>,
    /// Where sensitivities came from: `gradients`, `adam` or `none`.
    #[serde(default)]
    pub sensitivity: String,
    /// Optimizer moments: `exact`, `log8`, `log4` or `factored`.
    #[serde(default)]
    pub moments: String,
    /// Bytes that the exact contents take beside the approximation that the rest of this record is about. None: the
    /// approximation is all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_bytes: Option<u64>,
    /// Deviations from the policy, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Where the next search begins.
    #[serde(default)]
    pub(crate) state: State,
}

/// Search state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Quality of the exact checkpoint, the last few improvements, the smoothed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The family that won last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// The lattice's parameter, in sixteenths of an octave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lattice: Option<i32>,
    /// Level of the bins' parameter, or place in the cube.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<Vec<usize>>,
    /// The cube's metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub books: Option<Books>,
    /// The version that training was last restored from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<String>,
    /// Whether the allocation is among the commit's side blobs, after the policy's text.
    pub allocation: bool,
    /// Whether the steps of the tensors are, after these.
    pub steps: bool,
}

impl State {
    pub fn progress(&self) -> Progress {
        Progress { last: self.last, gains: self.gains.clone(), gain: self.gain }
    }
}

impl Quality {
    /// The record of a commit; none if it was made without a policy.
    pub fn from_commit(commit: &Commit) -> Result<Option<Quality>> {
        let parse = |text: &String| {
            serde_json::from_str(text).map_err(|e| RepoError::corrupt("quality record of a commit", e.to_string()))
        };
        commit.quality.as_ref().map(parse).transpose()
    }

    /// Its text in a commit.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| RepoError::io("cannot write the quality record")(e.into()))
    }

    /// Whether the commit is lossy and nothing was measured.
    pub fn unevaluated(&self) -> bool {
        self.family != "lossless" && self.measured.is_none()
    }
}

/// A gate in words.
pub(crate) fn gate_text(gate: Gate) -> String {
    match gate {
        Gate::Progress(rho) => format!("progress {rho}"),
        Gate::Epsilon(epsilon) => format!("epsilon {epsilon}"),
    }
}
