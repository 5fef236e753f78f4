//! The lattice coder as a baseline system: a step for each tensor, shaped by rows and columns where gradients are
//! given.

use crate::systems::{Coder, Kept, SystemPlan, Tensor, count, from_segments, segments};
use mdl_codec::{
    Dtype, Result,
    quant::{
        Values,
        lattice::{Lattice as Grid, Outcome, Params},
    },
};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Lattice {
    /// In units of the root mean square: the tensor's, or that of all tensors together.
    pub(super) step: f64,
    pub(super) scale: Scale,
    /// Whether gradients shape the steps.
    pub(super) sensitivity: bool,
}

/// Whose root mean square is the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// The tensor's: relative errors are alike.
    Tensor,
    /// The checkpoint's: one step for all, which makes the squared error of the whole smallest.
    Model,
}

fn rms(values: &[f32]) -> f64 {
    let square: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    (square / values.len().max(1) as f64).sqrt()
}

impl Coder for Lattice {
    fn takes(&self, t: &Tensor<'_>) -> bool {
        t.quantisable() && t.dtype != Dtype::F64
    }

    fn plan(&self, tensors: &[&Tensor<'_>]) -> Result<SystemPlan> {
        let (mut sum, mut n) = (0.0, 0.0);
        for t in tensors {
            let wide = Values::new(t.dtype, t.bytes)?.to_f32();
            let square = rms(&wide).powi(2) * wide.len() as f64;
            if square.is_finite() {
                (sum, n) = (sum + square, n + wide.len() as f64);
            }
        }
        Ok(SystemPlan { rms: (sum / f64::max(n, 1.0)).sqrt(), ..SystemPlan::default() })
    }

    fn encode(&self, t: &Tensor<'_>, plan: &SystemPlan, parent: Option<&Kept>) -> Result<Option<Vec<u8>>> {
        let unit = match self.scale {
            Scale::Tensor => rms(&Values::new(t.dtype, t.bytes)?.to_f32()),
            Scale::Model => plan.rms,
        };
        let step = (16.0 * (self.step * unit).log2()).round();
        if !(-1280.0..=1280.0).contains(&step) {
            return Ok(None);
        }
        let params = match t.gradient.filter(|_| self.sensitivity) {
            Some(g) => {
                let mut squares = Values::new(Dtype::F32, g)?.to_f32();
                squares.iter_mut().for_each(|g| *g *= *g);
                Params::from_sensitivity(step as i16, None, t.shape, &squares)
            }
            None => Params { step: step as i16, ..Params::default() },
        };
        let grid = Grid::new(&params, t.dtype, t.shape)?;
        let mut bytes = vec![0; t.bytes.len()];
        if grid.quantise(0, t.bytes, &mut bytes)? != Outcome::Quantised {
            return Ok(None);
        }
        segments(t.dtype, &bytes, parent, Some(&Arc::new(grid))).map(Some)
    }

    fn decode(&self, body: &[u8], dtype: Dtype, shape: &[usize], parent: Option<&Kept>) -> Result<Kept> {
        let n = count(shape) * dtype.size();
        Ok(Kept::new(dtype, shape, from_segments(dtype, body, n, parent)?))
    }
}
