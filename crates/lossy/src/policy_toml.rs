//! Keys of a policy's TOML.

use crate::bounds::Bounds;
use mdl_codec::quant::{Config, Metric};
use serde::Deserialize;

/// A way to quantise weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// An absolute lattice with dither.
    Lattice,
    /// The paper's bins.
    Bins,
}

/// Where a codebook comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Book {
    /// The parent's, as it is.
    Keep,
    /// The parent's, moved along with the weights.
    Warm,
    /// The optimum.
    Fresh,
}

/// How the space of bins is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BinsSearch {
    /// One parameter, the number of bins; the first choice of every other list.
    #[default]
    Ladder,
    /// The paper's cube: guided exhaustive search, then delta neighbourhoods.
    Cube,
}

/// How optimizer moments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moments {
    /// Every bit is kept.
    #[default]
    Exact,
    /// 8-bit logarithmic levels.
    Log8,
    /// 4-bit logarithmic levels.
    Log4,
    /// First moments in steps of sqrt(v), second ones as row x column.
    Factored,
}

impl Moments {
    /// As a policy spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Moments::Exact => "exact",
            Moments::Log8 => "log8",
            Moments::Log4 => "log4",
            Moments::Factored => "factored",
        }
    }
}

/// Which versions keep their exact contents beside the approximation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepExact {
    /// The newest of each branch; 0: none is stored exactly.
    pub exact_latest: u64,
    /// The best by a metric.
    pub exact_best: Option<ExactBest>,
}

/// The best versions by a metric.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactBest {
    /// Name of the metric.
    pub metric: String,
    /// How many.
    #[serde(default = "one")]
    pub n: u64,
    /// Whether less is better; none: as the metric's name says.
    #[serde(default)]
    pub lower_is_better: Option<bool>,
}

fn one() -> u64 {
    1
}

impl KeepExact {
    /// Whether any version keeps its exact contents.
    pub fn keeps_exact(&self) -> bool {
        self.exact_latest > 0 || self.exact_best.is_some()
    }
}

impl Default for KeepExact {
    fn default() -> Self {
        KeepExact { exact_latest: 1, exact_best: None }
    }
}

/// The lattice's part of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LatticePolicy {
    /// Distance of the steps that are tried, in sixteenths of an octave.
    pub grid: i16,
    /// Whether offsets are drawn anew after each restore.
    pub dither: bool,
    /// Whether rows and columns get steps of their own by sensitivity.
    pub allocation: bool,
}

impl Default for LatticePolicy {
    fn default() -> Self {
        LatticePolicy { grid: 8, dither: true, allocation: true }
    }
}

/// The bins' part of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BinsPolicy {
    /// How to search.
    pub search: BinsSearch,
    /// Numbers of bins, coarse to fine.
    pub bins: Vec<u16>,
    /// Numbers of bins for embeddings, coarse to fine; none: as many as elsewhere.
    pub embedding_bins: Option<Vec<u16>>,
    /// Fractions to prune, most to least.
    pub prune: Vec<f64>,
    /// Fractions to protect, least to most.
    pub protect: Vec<f64>,
    /// Metrics to prune by.
    pub metrics: Vec<String>,
    /// Codebooks to try.
    pub codebooks: Vec<Book>,
}

impl Default for BinsPolicy {
    fn default() -> Self {
        let bins = vec![4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 160, 192, 240];
        BinsPolicy {
            search: BinsSearch::Ladder,
            bins,
            embedding_bins: None,
            prune: vec![0.0],
            protect: vec![0.0],
            metrics: vec!["magnitude".to_owned()],
            codebooks: vec![Book::Keep, Book::Warm, Book::Fresh],
        }
    }
}

impl BinsPolicy {
    /// The metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let of = |m: &String| match m.as_str() {
            "sensitivity" => Metric::Sensitivity,
            _ => Metric::Magnitude,
        };
        self.metrics.iter().map(of).collect()
    }
}

/// The fixed configuration, for commits without an evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// The family.
    pub family: Family,
    /// Lattice: log2 of the step, relative to the weights' standard deviation (geometric mean over the elements); none:
    /// the steps that the bounds give.
    #[serde(default)]
    pub step: Option<f64>,
    /// Bins: their number.
    #[serde(default)]
    pub bins: Option<u16>,
    /// Bins: their number in embeddings.
    #[serde(default)]
    pub embedding_bins: Option<u16>,
    /// Bins: fraction to prune.
    #[serde(default)]
    pub prune: f64,
    /// Bins: fraction to protect.
    #[serde(default)]
    pub protect: f64,
}

impl Fixed {
    /// The configuration of bins.
    pub fn config(&self) -> Config {
        let bins = self.bins.unwrap_or(32);
        Config {
            bins,
            embedding_bins: self.embedding_bins.unwrap_or(bins),
            prune: self.prune,
            protect: self.protect,
            metric: Metric::Magnitude,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GateText {
    pub progress: Option<f64>,
    pub epsilon: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OptimizerText {
    pub moments: Moments,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    #[serde(rename = "match")]
    pub pattern: String,
    pub role: Option<String>,
    #[serde(default)]
    pub exact: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    #[serde(rename = "try")]
    pub families: Vec<Family>,
    #[serde(default)]
    pub gate: GateText,
    #[serde(default)]
    pub bounds: Bounds,
    #[serde(default)]
    pub keep: KeepExact,
    #[serde(default)]
    pub lattice: LatticePolicy,
    #[serde(default)]
    pub bins: BinsPolicy,
    #[serde(default)]
    pub optimizer: OptimizerText,
    #[serde(default)]
    pub fixed: Option<Fixed>,
    #[serde(default = "max_depth")]
    pub max_depth: u8,
    #[serde(default)]
    pub tensor: Vec<RuleText>,
}

/// Quantised deltas are small and quick to decode: chains may be longer than lossless ones.
fn max_depth() -> u8 {
    48
}
