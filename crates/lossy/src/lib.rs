//! Lossy commits: a checkpoint's weights are replaced by reconstructions that are smaller to store and, by the policy's
//! limits, good enough.
//!
//! A [`Policy`] says what may be tried and lost. [`prepare`] makes candidates, directories with the files as a checkout
//! would give them or tensors in memory, has an [`Evaluator`] measure them, and gives the smallest that passes the
//! [`Gate`], with the [`Quality`] record of how it was found.
//!
//! `policy` (parsed from `policy_toml`) says what may be tried and lost, `policy_store` stores policies in the
//! repository. `model` lists the tensors, `sensitivity` what matters, `allocate` the lattices' steps, `bins` thresholds
//! and codebooks. `bounds` holds what is made of them within what a row may be moved. `make` makes a candidate, in a
//! `candidate` directory or in memory, sized against its decoded bases (`decoded`), and `trials` has it judged.
//! `search` searches through the `families` and their parameters (`parameters`), each search pass a `search_pass` of
//! what is known. `record` is what a commit remembers of all that, `bound_costs` what a plan says of each bound.
//!
//! ```
//! use mdl_lossy::Policy;
//!
//! let policy = Policy::parse("half", "try = [\"lattice\"]")?;
//! assert_eq!(policy.name, "half");
//! assert!(Policy::parse("half", "try = [\"nothing\"]").is_err());
//! # Ok::<(), mdl_store::RepoError>(())
//! ```

mod allocate;
mod bins;
mod bound_costs;
mod bounds;
mod candidate;
mod decoded;
mod evaluator;
mod families;
mod make;
mod model;
mod moments;
mod parameters;
mod policy;
mod policy_store;
mod policy_toml;
mod record;
mod search;
mod search_pass;
mod sensitivity;
mod trials;

pub use model::treatments;
pub use policy_store::{policies, policy, remove_policy, set_policy};
pub use search::{plan, prepare};

pub use bounds::{Bounds, BoundsRecord};
pub use model::TensorTreatment;
pub use policy::{BUILT_IN, DEFAULT, Policy};
pub use policy_store::StoredPolicy;
pub use policy_toml::{ExactBest, Family, KeepExact, Moments};
pub use record::Quality;
pub use trials::Trial;

pub use bound_costs::BoundCost;
pub use candidate::{Scratch, sweep_candidates};
pub use evaluator::CommandEvaluator;
pub use make::ReplacedTensor;
pub use search::{Checkpoint, Prepared};

pub use mdl_codec::quant::search::{Direction, Gate};

use mdl_codec::CodecError;
use mdl_store::RepoError;
use std::path::{Path, PathBuf};

/// Measures checkpoints.
pub trait Evaluator {
    /// The quality of the checkpoint whose files `dir` holds, as one number. None where it could not be measured (it
    /// failed, took too long, gave NaN): a candidate is then rejected.
    fn evaluate(&mut self, dir: &Path) -> Option<f64>;

    /// Whether the evaluator has given up on the commit: nothing is then committed.
    fn gave_up(&self) -> bool {
        false
    }

    /// How many checkpoints it measures side by side. With more than one, candidates that the search may ask for next
    /// are measured beside the one that it asks for; what is committed stays the same.
    fn width(&self) -> usize {
        1
    }

    /// The quality of each of these checkpoints, at most `width` of them, in their order.
    fn evaluate_all(&mut self, dirs: &[&Path]) -> Vec<Option<f64>> {
        dirs.iter().map(|dir| self.evaluate(dir)).collect()
    }

    /// Whether it takes tensors in memory: it is then asked by `evaluate_tensors` alone, and no directories are made.
    fn takes_tensors(&self) -> bool {
        false
    }

    /// The quality of the checkpoint with these tensors in the place of its own, for at most `width` candidates, in
    /// their order. Nothing is replaced in the exact checkpoint, which comes first and alone. Moments are listed if
    /// their file has weights.
    fn evaluate_tensors(&mut self, candidates: &[Vec<ReplacedTensor>]) -> Vec<Option<f64>> {
        vec![None; candidates.len()]
    }
}

/// How a lossy commit is to be made.
pub struct LossyRequest<'a> {
    /// The policy.
    pub policy: Policy,
    /// Measures candidates; none: only the policy's fixed configuration can be used.
    pub evaluator: Option<&'a mut dyn Evaluator>,
    /// Which way the evaluator's number improves.
    pub direction: Direction,
    /// Gradients' moving average, tensors named as the weights.
    pub grads: Option<PathBuf>,
    /// An earlier checkpoint of the run, its directory or only file: tells updates where no version does.
    pub since: Option<PathBuf>,
}

impl std::fmt::Debug for LossyRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossyRequest").field("policy", &self.policy.name).finish_non_exhaustive()
    }
}

/// The quantiser refused what it was given: a configuration that does not go with the model.
pub(crate) fn refused(e: CodecError) -> RepoError {
    RepoError::user(
        format!("the quantiser cannot do this: {e}"),
        "try another policy; a plan shows what a policy would do",
    )
}
