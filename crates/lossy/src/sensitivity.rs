//! Sensitivity of each weight: the gradient's moving average from a file, or Adam's v where the checkpoint has it.
//!
//! Names are matched whole, or by their end where a wrapper put something before them (`model.wte.weight` and
//! `wte.weight`). A moment that only has its parameter's place in the optimizer (`state.3.exp_avg_sq`) is matched where
//! its shape leaves no choice: the order of parameters is not that of a file's tensors, groups of parameters change it
//! too, and among layers of one shape nothing would show it.

use crate::model::{Model, Part, moment};
use mdl_codec::{Dtype, quant::moments::Moment};
use mdl_files::{Extent, FileSource, ReadAt, ScanError, scan};
use mdl_store::{RepoError, Result, values::to_f64};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// Where sensitivities come from.
#[derive(Debug)]
pub(crate) struct Sensitivity {
    grads: Option<(FileSource, HashMap<String, Extent>)>,
    /// Index of the part that is the v of the weight with this name.
    adam: HashMap<String, usize>,
    /// The same for the only weight of this shape.
    by_shape: HashMap<Vec<usize>, usize>,
    /// Whether the v of any weight is known.
    has_adam: bool,
}

/// Whether a moment's name says only which place its parameter has in the optimizer.
fn is_place(weight: &str) -> bool {
    let last = weight.rsplit('.').next().unwrap_or_default();
    !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit())
}

/// Second moments known by their place, by their shape: those whose shape one moment and one other tensor have. None at
/// all where some moment's shape is no tensor's, for then the optimizer is not this model's.
fn alone_in_shape(parts: &[Part]) -> HashMap<Vec<usize>, usize> {
    let (mut tensors, mut found) = (HashMap::new(), HashMap::<_, Vec<usize>>::new());
    let mut seen = HashSet::new();
    for (i, part) in parts.iter().enumerate() {
        match moment(&part.name) {
            None => *tensors.entry(part.shape.as_slice()).or_insert(0) += 1,
            Some((weight, Moment::Second)) if is_place(&weight) => {
                // Some optimizers keep two of a parameter.
                if seen.insert((part.file, weight)) {
                    found.entry(part.shape.as_slice()).or_default().push(i);
                }
            }
            Some(_) => {}
        }
    }
    let have = |shape: &[usize]| tensors.get(shape).copied().unwrap_or(0);
    if found.iter().any(|(shape, moments)| have(shape) < moments.len()) {
        return HashMap::new();
    }
    let alone = found.into_iter().filter_map(|(shape, moments)| match moments[..] {
        [only] if have(shape) == 1 => Some((shape.to_vec(), only)),
        _ => None,
    });
    alone.collect()
}

/// The name, then what is left of it after each dot.
fn ends(name: &str) -> impl Iterator<Item = &str> {
    let dots = name.char_indices().filter(|(_, c)| *c == '.').map(|(i, _)| &name[i + 1..]);
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
        let mut sensitivity = Sensitivity { grads, adam, by_shape: alone_in_shape(&model.parts), has_adam: false };
        sensitivity.has_adam = model.weights().any(|(_, p, _)| sensitivity.second(p).is_some());
        Ok(sensitivity)
    }

    /// Index of the part that is a weight's v.
    fn second(&self, part: &Part) -> Option<usize> {
        let named = ends(&part.name).find_map(|end| self.adam.get(end));
        named.or_else(|| self.by_shape.get(&part.shape)).copied()
    }

    /// Where the sensitivities come from, in a word.
    pub fn source(&self) -> &'static str {
        match (&self.grads, self.has_adam) {
            (Some(_), _) => "gradients",
            (None, true) => "adam",
            (None, false) => "none",
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
        let Some(v) = self.second(part) else { return Ok(None) };
        let v = &model.parts[v];
        let same = v.extent.shape.iter().product::<u64>() == part.extent.shape.iter().product::<u64>();
        let bytes = if same { model.read(v)? } else { return Ok(None) };
        Ok(Some(widen(v.extent.dtype, &bytes)))
    }
}

/// Elements as f32 (f64 is rounded, integers are converted).
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
            return Err(RepoError::Scan { path: path.to_owned(), source });
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
    use super::{super::model::Treatment, *};

    fn part(file: usize, name: &str, shape: &[usize]) -> Part {
        Part {
            file,
            extent: Extent {
                offset: 0,
                dtype: Dtype::F32,
                shape: shape.iter().map(|&d| d as u64).collect(),
                name: name.to_owned(),
            },
            name: name.to_owned(),
            shape: shape.to_vec(),
            treatment: Treatment::Exact,
        }
    }

    #[test]
    fn a_moment_without_a_name_is_matched_where_its_shape_leaves_no_choice() {
        let mut parts = vec![
            part(0, "wte.weight", &[9, 4]),
            part(0, "h.0.weight", &[4, 4]),
            part(0, "h.1.weight", &[4, 4]),
            part(0, "ln.running_mean", &[4]),
            part(0, "ln.weight", &[4]),
            part(1, "state.0.exp_avg", &[9, 4]),
            part(1, "state.0.exp_avg_sq", &[9, 4]),
            part(1, "state.0.max_exp_avg_sq", &[9, 4]),
            part(1, "state.1.exp_avg_sq", &[4, 4]),
            part(1, "state.2.exp_avg_sq", &[4, 4]),
            part(1, "state.3.exp_avg_sq", &[4]),
            part(1, "state.3.step", &[]),
        ];
        // Not the layers, which may be in any order, nor the vector, which may be the buffer's.
        assert_eq!(alone_in_shape(&parts), HashMap::from([(vec![9, 4], 6)]));
        // Two optimizers, or two copies of the weights.
        let other = |name| [parts.clone(), vec![part(2, name, &[9, 4])]].concat();
        assert!(alone_in_shape(&other("state.0.exp_avg_sq")).is_empty());
        assert!(alone_in_shape(&other("ema.wte.weight")).is_empty());
        // An optimizer of something else.
        parts.push(part(1, "state.4.exp_avg_sq", &[7, 7]));
        assert!(alone_in_shape(&parts).is_empty());
    }

    #[test]
    fn names_match_by_their_ends() {
        assert_eq!(ends("model.wte.weight").collect::<Vec<_>>(), ["model.wte.weight", "wte.weight", "weight"]);
        assert_eq!(ends("w").collect::<Vec<_>>(), ["w"]);
    }
}
