//! Reads elements of a stored tensor, or of a view of one: all of them or a slice, and writes the headers of files that
//! hold such.

mod gather;
mod npy;
mod safetensors;
mod slice;

pub use npy::npy_header;
pub use safetensors::safetensors_header;
pub use slice::{Axis, Slice};

use crate::{Missing, Remedy, RepoError, Result};
use mdl_codec::Dtype;
use mdl_objects::{Id, Manifest, Named, TensorRef, ViewRef};

/// Bytes that a view may show in any case, and times the bytes that are stored: a view may show one element many times
/// (as `torch.expand` makes them), and so a small file more than any machine can send.
const SHOWN_ANYWAY: u64 = 64 << 20;
const TIMES_STORED: u64 = 16;

/// The most bytes that views of so many stored bytes are handed on as.
pub const fn most_shown(stored: u64) -> u64 {
    let most = stored.saturating_mul(TIMES_STORED);
    if most > SHOWN_ANYWAY { most } else { SHOWN_ANYWAY }
}

/// Elements inside a stored tensor.
#[derive(Clone, Debug)]
pub struct Elements {
    tensor: Id,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Bytes from one element of an axis to the next.
    strides: Vec<u64>,
    /// Bytes before the first element.
    offset: u64,
    /// Where the last element ends; 0 if there is none.
    end: u64,
    /// Length of the tensor.
    stored: u64,
    /// All of the tensor, as it is stored.
    is_whole: bool,
}

impl Elements {
    /// All elements of a tensor.
    pub fn whole(t: &TensorRef) -> Elements {
        let mut strides = vec![t.dtype.size() as u64; t.shape.len()];
        for i in (1..t.shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(t.shape[i]);
        }
        Elements {
            tensor: t.id,
            dtype: t.dtype,
            shape: t.shape.clone(),
            strides,
            offset: 0,
            end: t.byte_len().unwrap_or(u64::MAX),
            stored: t.byte_len().unwrap_or(u64::MAX),
            is_whole: true,
        }
    }

    /// The elements of a view, which must lie inside its tensor.
    pub fn view(t: &TensorRef, v: &ViewRef) -> Result<Elements> {
        let outside = || RepoError::corrupt(format!("view {}", v.name), "it leaves its tensor");
        let in_bytes = |stride: &u64| stride.checked_mul(v.dtype.size() as u64);
        let strides = v.strides.iter().map(in_bytes).collect::<Option<_>>().ok_or_else(outside)?;
        let span = v.dtype.span(&v.shape, &v.strides).ok_or_else(outside)?;
        let end = if span == 0 { 0 } else { v.offset.checked_add(span).ok_or_else(outside)? };
        let stored = t.byte_len().unwrap_or(0);
        if end > stored {
            return Err(outside());
        }
        Ok(Elements {
            tensor: t.id,
            dtype: v.dtype,
            shape: v.shape.clone(),
            strides,
            offset: v.offset,
            end,
            stored,
            is_whole: false,
        })
    }

    /// The elements that go by a name in a file: a tensor, or a view of one. `path` is what the file is called in
    /// errors.
    pub fn find(manifest: &Manifest, name: &str, path: &str) -> Result<Elements> {
        match manifest.find(name) {
            Some(Named::Tensor(t)) => Ok(Elements::whole(t)),
            Some(Named::View(t, v)) => Elements::view(t, v),
            None => Err(RepoError::not_found(Missing::Tensor, format!("{name} in {path}"))),
        }
    }

    /// All of every axis.
    pub fn all(&self) -> Vec<Axis> {
        self.shape.iter().map(|&n| Axis::whole(n)).collect()
    }

    /// Bytes that `stream` hands on for these axes. A view may show one element many times, and so more than is stored:
    /// more than [`most_shown`] is refused, as are axes that are not the tensor's, and more than 64 bits can count.
    pub fn byte_len(&self, axes: &[Axis]) -> Result<u64> {
        self.check(axes)?;
        if axes.iter().any(|a| a.count == 0) {
            return Ok(0);
        }
        let size = self.dtype.size() as u64;
        let len = axes.iter().try_fold(size, |n, a| n.checked_mul(a.count));
        let len = len
            .ok_or_else(|| RepoError::user("these are more elements than anyone can hold", "choose a part of them"))?;
        if !self.is_whole && len > most_shown(self.stored) {
            let message = format!("the view shows {} stored bytes as {len}", self.stored);
            return Err(RepoError::user(message, "choose a part of it"));
        }
        Ok(len)
    }

    fn check(&self, axes: &[Axis]) -> Result<()> {
        let mut pairs = axes.iter().zip(&self.shape);
        match axes.len() == self.shape.len() && pairs.all(|(a, &n)| a.is_inside(n)) {
            true => Ok(()),
            false => Err(RepoError::usage("the axes are not those of the tensor", Remedy::ShowShape)),
        }
    }
}

/// The shape of what these axes choose: those chosen by an index are gone.
pub fn shape_of(axes: &[Axis]) -> Vec<u64> {
    axes.iter().filter(|a| !a.single).map(|a| a.count).collect()
}
