//! Merges one tensor of several versions, block by block on the threads of the current pool.

use crate::{
    MergeError, Method, Strategy,
    blocks::{Block, ELEMENTS},
    element::{check_float, round},
    linear, slerp, task_vectors,
};
use mdl_codec::Dtype;
use rayon::prelude::*;

/// One tensor of several versions, of one dtype and shape, as little-endian bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'a> {
    /// What tells the tensor from the others of a checkpoint: DARE's draws go by it.
    pub name: &'a str,
    /// Dtype: a float.
    pub dtype: Dtype,
    /// That of the common ancestor, if there is one.
    pub base: Option<&'a [u8]>,
    /// Those of the versions, in order.
    pub versions: &'a [&'a [u8]],
}

/// Sets the elements of a block.
pub(crate) type Kernel<'a> = Box<dyn Fn(&Block, &mut [f64]) + Sync + 'a>;

impl Tensors<'_> {
    pub(crate) fn elements(&self) -> usize {
        self.versions.first().map_or(0, |bytes| bytes.len() / self.dtype.size())
    }

    fn check(&self) -> Result<(), MergeError> {
        check_float(self.dtype)?;
        let expected = self.versions.first().map_or(0, |bytes| bytes.len());
        match self.base.iter().chain(self.versions).find(|bytes| bytes.len() != expected) {
            Some(bytes) => Err(MergeError::Length { expected, found: bytes.len() }),
            None => Ok(()),
        }
    }
}

/// The merged tensor, in the versions' dtype.
///
/// # Errors
/// The elements are no floats or not of one length; the method needs a base, another number of versions or weights, or
/// other parameters.
pub fn merge(strategy: &Strategy, tensors: &Tensors<'_>) -> Result<Vec<u8>, MergeError> {
    let strategy = strategy.resolved(tensors.versions.len())?;
    let tensors = of_method(&strategy, tensors)?;
    let first = tensors.versions[0];
    if strategy.keeps_equal() && tensors.base.iter().chain(tensors.versions).all(|bytes| *bytes == first) {
        return Ok(first.to_vec());
    }
    let kernel = kernel(&strategy, &tensors);
    let size = tensors.dtype.size();
    let mut out = vec![0; first.len()];
    out.par_chunks_mut(ELEMENTS * size).enumerate().for_each(|(number, bytes)| {
        let mut values = vec![0.0; bytes.len() / size];
        kernel(&Block::read(&tensors, number), &mut values);
        round(tensors.dtype, &values, bytes);
    });
    Ok(out)
}

/// The merged elements before they are rounded to the dtype, without regard to equal versions.
///
/// # Errors
/// As [`merge`].
pub fn merge_f64(strategy: &Strategy, tensors: &Tensors<'_>) -> Result<Vec<f64>, MergeError> {
    let strategy = strategy.resolved(tensors.versions.len())?;
    let tensors = of_method(&strategy, tensors)?;
    let kernel = kernel(&strategy, &tensors);
    let mut out = vec![0.0; tensors.elements()];
    out.par_chunks_mut(ELEMENTS).enumerate().for_each(|(number, values)| {
        kernel(&Block::read(&tensors, number), values);
    });
    Ok(out)
}

/// What the method looks at: the base only if it needs one.
fn of_method<'a>(strategy: &Strategy, tensors: &Tensors<'a>) -> Result<Tensors<'a>, MergeError> {
    let mut tensors = *tensors;
    if !strategy.method.needs_base() {
        tensors.base = None;
    } else if tensors.base.is_none() {
        return Err(MergeError::NoBase(strategy.method.name()));
    }
    tensors.check()?;
    Ok(tensors)
}

fn kernel<'a>(strategy: &'a Strategy, tensors: &Tensors<'a>) -> Kernel<'a> {
    match strategy.method {
        Method::Average => linear::average(),
        Method::Weighted => linear::weighted(&strategy.weight, strategy.normalize == Some(true)),
        Method::Slerp => slerp::slerp(strategy.t.unwrap_or(0.5), tensors),
        Method::TaskArithmetic | Method::Ties | Method::DareLinear | Method::DareTies => {
            task_vectors::task_vectors(strategy, tensors)
        }
    }
}
