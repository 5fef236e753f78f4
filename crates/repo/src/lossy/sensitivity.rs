//! How much each weight matters: the gradient's moving average from a file, or Adam's v where the checkpoint has it. Neighbours:
//! `allocate` shapes the lattice by it, `make` protects and prunes by it. It must not know policies.
//!
//! Names are matched whole, or by their end where a wrapper put something before them (`model.wte.weight` and `wte.weight`).

use super::model::{Model, Part, moment};
use crate::{RepoError, Result, values::to_f64};
use mdl_codec::Dtype;
use mdl_codec::quant::moments::Moment;
use mdl_files::{Extent, FileSource, ReadAt, ScanError, scan};
use std::{collections::HashMap, path::Path};

/// Where sensitivities come from.
#[derive(Debug)]
pub(crate) struct Sensitivity {
    grads: Option<(FileSource, HashMap<String, Extent>)>,
    /// Index of the part that is the v of the weight with this name.
    adam: HashMap<String, usize>,
}

/// The name, then what is left of it after each dot.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    let dots = name
        .char_indices()
        .filter(|(_, c)| *c == '.')
        .map(|(i, _)| &name[i + 1..]);
    std::iter::once(name).chain(dots)
}

impl Sensitivity {
    /// Opens the gradients' file, if there is one, and finds Adam's v among the model's tensors.
    ///
    /// # Errors
    /// A file that is not there or no safetensors file (or other container).
    pub fn open(model: &Model, grads: Option<&Path>) -> Result<Sensitivity> {
        let grads = grads.map(gradients).transpose()?;
        let second = |(i, p): (usize, &Part)| match moment(&p.name) {
            Some((weight, Moment::Second)) => Some((weight, i)),
            _ => None,
        };
        let adam = model.parts.iter().enumerate().filter_map(second).collect();
        Ok(Sensitivity { grads, adam })
    }

    /// Where the sensitivities come from, in a word.
    pub fn source(&self) -> &'static str {
        match (&self.grads, self.adam.is_empty()) {
            (Some(_), _) => "gradients",
            (None, false) => "adam",
            (None, true) => "none",
        }
    }

    /// Gradients of a weight: dtype and bytes; none where they are unknown or of another length.
    pub fn gradient(&self, part: &Part) -> Result<Option<(Dtype, Vec<u8>)>> {
        let Some((source, names)) = &self.grads else {
            return Ok(None);
        };
        let elements = part.extent.byte_len().unwrap_or(0) / part.extent.dtype.size() as u64;
        let found = ends(&part.name).find_map(|end| names.get(end));
        let Some(extent) = found.filter(|e| e.shape.iter().product::<u64>() == elements) else {
            return Ok(None);
        };
        let mut bytes = vec![0; extent.byte_len().unwrap_or(0) as usize];
        let failed = RepoError::io("cannot read the gradients");
        source.read_at(extent.offset, &mut bytes).map_err(failed)?;
        Ok(Some((extent.dtype, bytes)))
    }

    /// Mean squared gradients of a weight's elements, or what stands for them.
    pub fn squares(&self, model: &Model, part: &Part) -> Result<Option<Vec<f32>>> {
        if let Some((dtype, bytes)) = self.gradient(part)? {
            return Ok(Some(widen(dtype, &bytes).into_iter().map(|g| g * g).collect()));
        }
        let Some(&v) = ends(&part.name).find_map(|end| self.adam.get(end)) else {
            return Ok(None);
        };
        let v = &model.parts[v];
        let same = v.extent.shape.iter().product::<u64>() == part.extent.shape.iter().product::<u64>();
        let bytes = if same { model.read(v)? } else { return Ok(None) };
        Ok(Some(widen(v.extent.dtype, &bytes)))
    }
}

/// Elements as f32 (f64 is rounded); of integers what they count.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let mut wide = Vec::new();
    to_f64(dtype, bytes, &mut wide);
    wide.into_iter().map(|x| x as f32).collect()
}

fn gradients(path: &Path) -> Result<(FileSource, HashMap<String, Extent>)> {
    let failed = |e| RepoError::io(format!("cannot read {}", path.display()))(e);
    let source = FileSource::open(path).map_err(failed)?;
    let layout = match scan(&source, path) {
        Ok(layout) => layout,
        Err(ScanError::Io(e)) => return Err(failed(e)),
        Err(source) => {
            return Err(RepoError::Scan {
                path: path.to_owned(),
                source,
            });
        }
    };
    if layout.extents.is_empty() {
        return Err(RepoError::user(
            format!("{} holds no tensors", path.display()),
            "gradients are given as a safetensors file whose tensors have the weights' names",
        ));
    }
    let names = layout.extents.into_iter().map(|e| (e.name.clone(), e)).collect();
    Ok((source, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_their_ends() {
        assert_eq!(
            ends("model.wte.weight").collect::<Vec<_>>(),
            ["model.wte.weight", "wte.weight", "weight"]
        );
        assert_eq!(ends("w").collect::<Vec<_>>(), ["w"]);
    }
}
