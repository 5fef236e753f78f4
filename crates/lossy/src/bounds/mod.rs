//! Error bounds: how far a reconstruction may be from its tensor, whatever the gate says.
//!
//! A gate sees what its data touch and nothing else. A bound holds for every row of every tensor: the Euclidean norm of
//! the error over that of the row, and over that of the row's change since the parent (the *update*). A row is an index
//! of the first axis; a tensor of one axis is one row. Where the denominator is zero the row is exact.
//!
//! `yardstick` measures rows and how far they moved since the `earlier` version, or `since` a checkpoint outside;
//! `steps` holds a lattice's steps within what that allows, `inherit` finds rows that the base gives as well,
//! `quantise` makes reconstructions and measures them, `rows` has their errors.

pub(crate) mod earlier;
pub(crate) mod inherit;
pub(crate) mod quantise;
pub(crate) mod rows;
pub(crate) mod since;
pub(crate) mod steps;
pub(crate) mod yardstick;

use serde::{Deserialize, Serialize};

/// The largest errors that a policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Relative to the weight.
    pub weight: f64,
    /// Relative to the update.
    pub update: f64,
    /// How many times `update` a row that moves fast may have: one that changes by 2 % of itself or more.
    pub fast: f64,
    /// Relative to the weight, of a tensor that has no earlier version to tell its update.
    pub first: f64,
}

/// A change of a row, relative to it, from which on it moves fast; up to half of that it moves slowly. A run that
/// writes its weights mends in a few intervals what a fine-tune keeps to its end (docs/design/0005).
const FAST: f64 = 0.02;

impl Default for Bounds {
    fn default() -> Self {
        Bounds { weight: 0.15, update: 2.0, fast: 2.0, first: 0.002 }
    }
}

impl Bounds {
    /// Whether any is looser than by default.
    pub fn are_loosened(&self) -> bool {
        let default = Bounds::default();
        let fast = |b: &Bounds| b.update * b.fast;
        self.weight > default.weight
            || self.update > default.update
            || fast(self) > fast(&default)
            || self.first > default.first
    }

    /// Whether each is a number from 0 up, and `fast` one from 1 up; infinity is none at all.
    pub(crate) fn are_valid(&self) -> bool {
        [self.weight, self.update, self.first].iter().all(|b| *b >= 0.0) && self.fast >= 1.0
    }

    /// The bound relative to the update of a row that changed by `rate` of itself: it grows between slow and fast.
    pub(crate) fn of_update(&self, rate: f64) -> f64 {
        let part = (rate / FAST * 2.0 - 1.0).clamp(0.0, 1.0);
        // Nothing known of the row is no reason for more.
        if part > 0.0 { self.update * (1.0 + part * (self.fast - 1.0)) } else { self.update }
    }

    /// Whether they bound nothing.
    pub(crate) fn are_open(&self) -> bool {
        [self.weight, self.update, self.first].iter().all(|b| b.is_infinite())
    }
}

/// The bounds of a commit and how much of them was used, as the quality record keeps them. A bound that is absent is
/// none; an error is absent where nothing has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundsRecord {
    /// The policy's: relative to the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Relative to the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<f64>,
    /// How many times that rows have which move fast; absent: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast: Option<f64>,
    /// Relative to the weight, without an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<f64>,
    /// Whether any is looser than by default.
    #[serde(default)]
    pub loosened: bool,
    /// Largest error of a row, relative to the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_row: Option<f64>,
    /// Error of all tensors whose update is known, relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_error: Option<f64>,
    /// Largest error of a row, relative to its update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_row_update: Option<f64>,
    /// Rows of quantised tensors that are exact because of a bound.
    #[serde(default)]
    pub exact_rows: u64,
    /// Weights that are exact because of a bound.
    #[serde(default)]
    pub exact_tensors: u64,
    /// Rows whose update could not be seen beside the parent's error: they have that error again.
    #[serde(default)]
    pub hidden_rows: u64,
}

impl BoundsRecord {
    /// The bounds, before anything is quantised.
    pub(crate) fn new(bounds: &Bounds) -> BoundsRecord {
        let finite = |b: f64| Some(b).filter(|b| b.is_finite());
        BoundsRecord {
            weight: finite(bounds.weight),
            update: finite(bounds.update),
            fast: finite(bounds.fast).filter(|f| *f > 1.0 && bounds.update.is_finite()),
            first: finite(bounds.first),
            loosened: bounds.are_loosened(),
            ..BoundsRecord::default()
        }
    }

    /// In words: `bounds: weight 0.15, update 2 to 4, first 0.002`, and whether they are loosened.
    pub fn text(&self) -> String {
        let one = |name: &str, bound: Option<f64>| match bound {
            Some(b) => format!("{name} {b}"),
            None => format!("{name} none"),
        };
        let update = match (self.update, self.fast) {
            (Some(slow), Some(fast)) => format!("update {slow} to {}", slow * fast),
            (update, _) => one("update", update),
        };
        let all = [one("weight", self.weight), update, one("first", self.first)].join(", ");
        format!("bounds: {all}{}", if self.loosened { " (loosened)" } else { "" })
    }
}
