//! Reconstructions within bounds: a tensor on a lattice whose every row is as close as it has to be.

use crate::{
    bounds::Bounds,
    bounds::inherit::Inherited,
    bounds::rows::{RowErrors, Rows, over},
    bounds::steps::Steps,
    bounds::yardstick::Yardstick,
};
use mdl_codec::{
    CodecError, Dtype, Engine,
    quant::lattice::{Lattice, Outcome, Params},
};
use std::sync::Arc;

/// One tensor's reconstruction.
#[derive(Debug)]
pub(crate) struct Reconstruction {
    pub bytes: Vec<u8>,
    /// How far it is from the tensor.
    pub error: RowErrors,
    pub lattice: Option<Arc<Lattice>>,
    /// What its error is expected to be, row by row.
    pub steps: Params,
}

/// Why a tensor stays as it is.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The quantiser cannot hold it.
    Quantiser,
    /// A bound leaves no room.
    Bound,
}

/// How often steps are made finer where they leave more error than the bounds allow; rows that still have more are
/// then exact.
const REFINEMENTS: usize = 4;
/// Passes over a tensor, at the most.
const PASSES: usize = 16;

/// A tensor that is to be quantised.
pub(crate) struct Tensor<'a> {
    pub dtype: Dtype,
    pub shape: &'a [usize],
    pub raw: &'a [u8],
    pub yard: &'a Yardstick,
    /// The rows that it inherits, and what from.
    pub inherited: Option<(&'a Inherited, &'a [u8])>,
}

impl Tensor<'_> {
    /// Puts it on the lattice of these steps, finer where the bounds ask for it. What was quantised is measured: no row
    /// has more error than its bounds allow. Rows that no step serves are exact; those that it inherits are the base's.
    pub fn on_lattice(
        &self,
        engine: &dyn Engine,
        mut steps: Steps,
        bounds: &Bounds,
    ) -> Result<Result<Reconstruction, Kept>, CodecError> {
        let Tensor { dtype, raw, yard, inherited, .. } = *self;
        let mut bytes = vec![0; raw.len()];
        let own: Vec<usize> = inherited.iter().flat_map(|(rows, _)| rows.rows.iter().map(|row| row.0)).collect();
        steps.keep(&own);
        for refinement in 0.. {
            let chosen = steps.lattice();
            if chosen.1.len() == yard.rows.len() && own.is_empty() || refinement > PASSES {
                return Ok(Err(Kept::Bound));
            }
            let Ok(lattice) = Lattice::new(&chosen.0, dtype, self.shape) else { break };
            let left_out = Rows { width: yard.cols * dtype.size(), rows: &chosen.1 };
            let on_lattice = left_out.zeroed(raw);
            match engine.quantise(&lattice, 0, on_lattice.as_deref().unwrap_or(raw), &mut bytes) {
                Ok(Outcome::Quantised) => left_out.copy(raw, &mut bytes),
                _ => break,
            }
            if let Some((rows, base)) = inherited {
                rows.write(dtype, yard.cols, base, &mut bytes);
            }
            let errors = yard.errors(dtype, raw, &bytes);
            let over = over(yard, bounds, &errors);
            if over.is_empty() {
                let all = engine.deviation(dtype, raw, &bytes)?;
                let error = RowErrors::new(all, yard, &errors, chosen.1.len() - own.len());
                let steps = Steps::record(&chosen, yard.cols, inherited.map_or(&[], |(rows, _)| &rows.rows));
                return Ok(Ok(Reconstruction { bytes, error, lattice: Some(Arc::new(lattice)), steps }));
            }
            match refinement {
                REFINEMENTS.. => steps.keep(&over),
                _ => steps.refine(&over),
            }
        }
        Ok(Err(Kept::Quantiser))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::yardstick::Earlier;
    use mdl_codec::CpuEngine;
    use proptest::prelude::*;

    /// Numbers of every kind: ordinary ones of very different scales, zeros, the largest, the smallest, none.
    fn number() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => (-1.0f32..1.0, -30i32..10).prop_map(|(x, e)| x * (e as f32).exp2()),
            1 => Just(0.0),
            1 => any::<f32>(),
        ]
    }

    fn bytes(dtype: Dtype, values: &[f32]) -> Vec<u8> {
        let one = |v: &f32| match dtype {
            Dtype::F32 => v.to_le_bytes().to_vec(),
            // Any bits are a number of 16 bits.
            _ => (v.to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        };
        values.iter().flat_map(one).collect()
    }

    proptest! {
        #[test]
        fn no_row_of_any_tensor_has_more_error_than_its_bounds_allow(
            (rows, cols) in (1usize..20, 1usize..40),
            values in prop::collection::vec(number(), 800),
            moves in prop::collection::vec((number(), -24i32..2), 20),
            dtype in prop::sample::select(vec![Dtype::F32, Dtype::BF16, Dtype::F16]),
            (step, weight, update, fast) in (-300i16..200, 0.0f64..0.5, 0.0f64..5.0, 1.0f64..3.0),
            earlier in prop::sample::select(vec![0u8, 1, 2, 3, 4]),
            seed in prop::option::of(any::<u64>()),
        ) {
            let before = &values[..rows * cols];
            let now: Vec<f32> = before.iter().enumerate().map(|(i, v)| {
                let (by, scale) = moves[i / cols];
                if scale < -20 { *v } else { v + by * (scale as f32).exp2() }
            }).collect();
            let (raw, before) = (bytes(dtype, &now), bytes(dtype, before));
            let last = Params { step: step - 20, ..Params::default() };
            let given = Earlier {
                bytes: &before,
                steps: (earlier == 2).then_some(&last),
                kept: (earlier == 3).then_some(&last),
                outside: earlier == 4,
            };
            let shape = [rows, cols];
            let yard = Yardstick::new(dtype, cols, &raw, (earlier > 0).then_some(&given));
            let bounds = Bounds { weight, update, fast, first: weight / 4.0 };
            let wish = Params { step, seed, ..Params::default() };
            let steps = Steps::new(&wish, &yard, &bounds, matches!(earlier, 2 | 3).then_some(&last));
            let tensor = Tensor { dtype, shape: &shape, raw: &raw, yard: &yard, inherited: None };
            if let Ok(done) = tensor.on_lattice(&CpuEngine::new(), steps, &bounds).unwrap() {
                let width = cols * dtype.size();
                let errors = yard.errors(dtype, &raw, &done.bytes);
                for (i, row) in yard.rows.iter().enumerate() {
                    let same = raw[i * width..][..width] == done.bytes[i * width..][..width];
                    let within = errors[i] <= row.allowance(&bounds);
                    prop_assert!(same || within, "row {i}: {} of {row:?}", errors[i]);
                }
                prop_assert!(done.error.worst_row.sqrt() <= weight + 1e-9 || earlier == 2);
            }
        }
    }

    #[test]
    fn a_row_that_is_no_number_stays_and_the_others_are_quantised() {
        let mut values: Vec<f32> = (0..64).map(|i| (i as f32).sin()).collect();
        values[17] = f32::NAN;
        let raw = bytes(Dtype::F32, &values);
        let yard = Yardstick::new(Dtype::F32, 16, &raw, None);
        let bounds = Bounds::default();
        let steps = Steps::new(&Params::default(), &yard, &bounds, None);
        let tensor = Tensor { dtype: Dtype::F32, shape: &[4, 16], raw: &raw, yard: &yard, inherited: None };
        let done = tensor.on_lattice(&CpuEngine::new(), steps, &bounds).unwrap().expect("a reconstruction");
        assert_eq!(done.bytes[64..128], raw[64..128]);
        assert_eq!(done.error.exact_rows, 1);
        assert!(done.error.all.rel_l2() > 0.0 && done.error.all.rel_l2() <= bounds.first);
        assert_ne!(done.bytes[..64], raw[..64]);
        assert_eq!(done.steps.rows[1], 0);
    }
}
