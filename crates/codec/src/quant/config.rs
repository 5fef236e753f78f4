//! A configuration of the quantiser, and the space of them.

use crate::{
    CodecError, Result,
    quant::{MAX_BINS, Role},
};

/// What ranks the numbers to prune (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// |w|.
    Magnitude,
    /// |g w|, g the gradient (or its moving average, section 4.5).
    Sensitivity,
}

/// One point of the paper's search space (Tables 2 and 9), whose bins go on to 256 here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Bins of every tensor that is no embedding, 1 to 256.
    pub bins: u16,
    /// Bins of embeddings, 1 to 256: they bear less (section 5).
    pub embedding_bins: u16,
    /// Fraction of the numbers of each role to set to zero, in [0, 1].
    pub prune: f64,
    /// Fraction of all numbers to keep in bf16, in [0, 1]: half of it by magnitude, half by sensitivity.
    pub protect: f64,
    /// What ranks the numbers to prune.
    pub metric: Metric,
}

impl Config {
    /// How many bins a tensor of this role gets.
    pub fn bins_of(&self, role: Role) -> u16 {
        if role == Role::Embedding { self.embedding_bins } else { self.bins }
    }

    /// # Errors
    /// [`CodecError::BadInput`] for a number outside its range.
    pub fn check(&self) -> Result<()> {
        let bins = 1..=MAX_BINS as u16;
        if !bins.contains(&self.bins) || !bins.contains(&self.embedding_bins) {
            return Err(CodecError::BadInput("the number of bins must be 1 to 256"));
        }
        let fraction = 0.0..=1.0;
        if !fraction.contains(&self.prune) || !fraction.contains(&self.protect) {
            return Err(CodecError::BadInput("fractions to prune and to protect must be in [0, 1]"));
        }
        Ok(())
    }
}

impl Default for Config {
    /// 32 bins everywhere, nothing pruned, the most protected: the finest of Table 9.
    fn default() -> Self {
        Config { bins: 32, embedding_bins: 32, prune: 0.0, protect: 0.01, metric: Metric::Magnitude }
    }
}
