//! Errors of merges.

use mdl_codec::Dtype;

/// Why tensors cannot be merged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// The elements are no numbers that can be averaged.
    #[error("{0} elements cannot be averaged")]
    NotFloat(Dtype),
    /// The versions' tensors are not of one length.
    #[error("tensors of {expected} and {found} bytes cannot be merged")]
    Length {
        /// Bytes of the first.
        expected: usize,
        /// Bytes of another.
        found: usize,
    },
    /// The method takes another number of versions.
    #[error("{method} takes {takes} versions, not {given}")]
    Versions {
        /// Name of the method.
        method: &'static str,
        /// What it takes.
        takes: &'static str,
        /// How many there are.
        given: usize,
    },
    /// The method starts from a common ancestor, and there is none.
    #[error("{0} starts from a common ancestor, and there is none")]
    NoBase(&'static str),
    /// There are not as many weights as versions.
    #[error("there are {versions} versions and {weights} weights")]
    Weights {
        /// Weights given.
        weights: usize,
        /// Versions given.
        versions: usize,
    },
    /// The weights add up to zero, so nothing can be divided by their sum.
    #[error("the weights add up to zero")]
    ZeroWeights,
    /// A parameter is out of its range.
    #[error("{parameter} is {value}; it lies {range}")]
    Parameter {
        /// Its name.
        parameter: &'static str,
        /// What was given.
        value: f64,
        /// Where it may lie.
        range: &'static str,
    },
    /// A parameter that the method does not have.
    #[error("{method} has no {parameter}")]
    Unused {
        /// Name of the method.
        method: &'static str,
        /// Name of the parameter.
        parameter: &'static str,
    },
}
