//! The tensors of a checkpoint, each with its treatment (quantised, moment, lossless).
//!
//! A PyTorch storage is one run of bytes; what it is for is told by the tensor that spans it, so a part has a *face*:
//! the name and shape that roles, rules and matrices go by.

use crate::{
    policy::{Policy, Verdict},
    policy_toml::Moments,
};
use mdl_codec::{
    Dtype,
    quant::{
        Role,
        moments::{Moment, moment_of},
        stays_lossless,
    },
};
use mdl_files::{Extent, FileSource, Layout, ReadAt, ScanError, scan};
use mdl_store::{RepoError, Result, write::DiskFile};
use std::path::Path;

/// The moment that a tensor is by its name, and the name without the part that says so: that of its weight, or of its
/// parameter's place in the optimizer.
pub(crate) fn moment(name: &str) -> Option<(String, Moment)> {
    let found = moment_of(name)?;
    let parts: Vec<&str> = name.split(['.', '|', '/']).collect();
    let at = parts.iter().rposition(|part| moment_of(part) == Some(found))?;
    let rest = [&parts[..at], &parts[at + 1..]].concat();
    Some((rest.join("."), found))
}

/// How a lossy commit treats a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It stays as it is.
    Exact,
    /// It is a weight in this role.
    Weight(Role),
    /// It is an optimizer's.
    Moment(Moment),
}

/// One tensor.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Index of the file.
    pub file: usize,
    pub extent: Extent,
    /// Name and shape that it goes by.
    pub name: String,
    pub shape: Vec<usize>,
    pub treatment: Treatment,
}

/// The fewest elements of a row: shorter ones count as one row together.
const SHORTEST_ROW: usize = 8;

impl Part {
    /// Its shape as a matrix, whose rows have bounds and steps of their own: a convolution's by output channel, others'
    /// along the last axis, so that neither stacked layers nor positions behind an axis of one count as one row.
    pub fn matrix(&self) -> [usize; 2] {
        let elements: usize = self.shape.iter().product();
        let cols = match self.shape[..] {
            [] | [_] => elements,
            [rows, ..] if self.treatment == Treatment::Weight(Role::Conv) => elements.checked_div(rows).unwrap_or(0),
            [.., last] => last,
        };
        let cols = if cols < SHORTEST_ROW { elements } else { cols };
        [elements.checked_div(cols).unwrap_or(0), cols]
    }
}

/// A checkpoint file that has tensors.
#[derive(Debug)]
pub(crate) struct Container {
    pub file: DiskFile,
    pub source: FileSource,
    pub layout: Layout,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Model {
    pub files: Vec<Container>,
    pub parts: Vec<Part>,
}

impl Model {
    /// Scans the files that are to be committed. Damaged ones have no parts: the commit refuses or takes them as they
    /// are.
    pub fn scan(list: &[DiskFile], policy: &Policy) -> Result<Model> {
        let mut model = Model { files: Vec::new(), parts: Vec::new() };
        for file in list {
            let failed = |e| RepoError::io(format!("cannot read {}", file.path.display()))(e);
            let source = FileSource::open(&file.path).map_err(failed)?;
            let layout = match scan(&source, Path::new(&file.rel)) {
                Ok(layout) if !layout.extents.is_empty() => layout,
                Ok(_) | Err(ScanError::Damaged { .. }) => continue,
                Err(ScanError::Io(e)) => return Err(failed(e)),
            };
            let index = model.files.len();
            for (i, extent) in layout.extents.iter().enumerate() {
                let (name, shape) = face(&layout, i);
                let treatment = treat(policy, &file.rel, &name, &shape, extent.dtype);
                let shape = shape.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
                model.parts.push(Part { file: index, extent: extent.clone(), name, shape, treatment });
            }
            model.files.push(Container { file: file.clone(), source, layout });
        }
        Ok(model)
    }

    /// The bytes of a part.
    pub fn read(&self, part: &Part) -> Result<Vec<u8>> {
        let container = &self.files[part.file];
        let mut bytes = vec![0; part.extent.byte_len().unwrap_or(0) as usize];
        let failed = RepoError::io(format!("cannot read {}", container.file.path.display()));
        container.source.read_at(part.extent.offset, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Parts that are weights, with their roles.
    pub fn weights(&self) -> impl Iterator<Item = (usize, &Part, Role)> {
        self.parts.iter().enumerate().filter_map(|(i, p)| match p.treatment {
            Treatment::Weight(role) => Some((i, p, role)),
            _ => None,
        })
    }

    /// `file:extent`, for records of stored tensors.
    pub fn stored_label(&self, part: &Part) -> String {
        format!("{}:{}", self.files[part.file].file.rel, part.extent.name)
    }

    /// `file:name`, for messages and records.
    pub fn label(&self, part: &Part) -> String {
        format!("{}:{}", self.files[part.file].file.rel, part.name)
    }
}

/// What a policy does to a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorTreatment {
    /// `FILE:NAME`.
    pub label: String,
    /// Its bytes.
    pub bytes: u64,
    /// `exact`, `weight (ROLE)` or `moment`.
    pub treatment: String,
}

/// What a policy would do to the tensors of a checkpoint.
pub fn treatments(policy: &Policy, files: &[DiskFile]) -> Result<Vec<TensorTreatment>> {
    let model = Model::scan(files, policy)?;
    let of = |p: &Part| TensorTreatment {
        label: model.label(p),
        bytes: p.extent.byte_len().unwrap_or(0),
        treatment: match p.treatment {
            Treatment::Exact => "exact".to_owned(),
            Treatment::Weight(role) => format!("weight ({})", role.name()),
            Treatment::Moment(_) => format!("moment ({})", policy.moments.name()),
        },
    };
    Ok(model.parts.iter().map(of).collect())
}

/// Name and shape of the tensor that spans extent `i`, if one does, else the extent's own.
fn face(layout: &Layout, i: usize) -> (String, Vec<u64>) {
    let extent = &layout.extents[i];
    let elements: u64 = extent.shape.iter().product();
    let spans = |v: &&mdl_files::View| {
        let dense = v
            .strides
            .iter()
            .zip(&v.shape)
            .rev()
            .try_fold(1u64, |want, (&s, &d)| if s == want || d == 1 { Some(want * d) } else { None });
        v.extent as usize == i && v.offset == 0 && v.dtype == extent.dtype && dense == Some(elements)
    };
    // An extent of one axis may be a storage; one of more axes is the tensor itself.
    let view = if extent.shape.len() <= 1 { layout.views.iter().find(spans) } else { None };
    match view {
        Some(v) => (v.name.clone(), v.shape.clone()),
        None => (extent.name.clone(), extent.shape.clone()),
    }
}

fn treat(policy: &Policy, path: &str, name: &str, shape: &[u64], dtype: Dtype) -> Treatment {
    let said = policy.verdict(path, name);
    if said == Some(Verdict::Exact) || !matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::BF16 | Dtype::F16) {
        return Treatment::Exact;
    }
    if let Some((_, moment)) = moment(name) {
        let few = shape.iter().product::<u64>() < 256;
        return match policy.moments {
            Moments::Exact => Treatment::Exact,
            _ if few || dtype == Dtype::F64 => Treatment::Exact,
            _ => Treatment::Moment(moment),
        };
    }
    if policy.families.is_empty() {
        return Treatment::Exact;
    }
    match said {
        // What a rule names a weight is one, however small.
        Some(Verdict::Role(role)) if !shape.contains(&0) => Treatment::Weight(role),
        _ => match Role::infer(name, shape) {
            role if stays_lossless(role, shape) => Treatment::Exact,
            role => Treatment::Weight(role),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_files::{Format, View};

    #[test]
    fn a_storage_goes_by_the_tensor_that_spans_it() {
        let extent = Extent { offset: 64, dtype: Dtype::F32, shape: vec![6], name: "archive/data/0".to_owned() };
        let view = |name: &str, offset, shape: &[u64], strides: &[u64]| View {
            name: name.to_owned(),
            extent: 0,
            offset,
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        };
        let mut layout = Layout {
            format: Format::TorchZip,
            extents: vec![extent],
            views: vec![view("part", 8, &[4], &[1]), view("turned", 0, &[3, 2], &[1, 3])],
        };
        assert_eq!(face(&layout, 0), ("archive/data/0".to_owned(), vec![6]));
        layout.views.push(view("h.weight", 0, &[1, 2, 3], &[9, 3, 1]));
        assert_eq!(face(&layout, 0), ("h.weight".to_owned(), vec![1, 2, 3]));
    }

    #[test]
    fn rows_are_what_a_token_a_position_or_a_channel_has() {
        let matrix = |shape: &[usize], role| {
            let extent = Extent { offset: 0, dtype: Dtype::F32, shape: Vec::new(), name: String::new() };
            let treatment = Treatment::Weight(role);
            Part { file: 0, extent, name: String::new(), shape: shape.to_vec(), treatment }.matrix()
        };
        assert_eq!(matrix(&[100, 64], Role::Embedding), [100, 64]);
        assert_eq!(matrix(&[1, 512, 768], Role::Embedding), [512, 768]);
        assert_eq!(matrix(&[12, 64, 64], Role::Linear), [768, 64]);
        assert_eq!(matrix(&[32, 16, 3, 3], Role::Conv), [32, 144]);
        assert_eq!(matrix(&[32, 1, 2, 2], Role::Conv), [1, 128]);
        assert_eq!(matrix(&[4000], Role::Linear), [1, 4000]);
        assert_eq!(matrix(&[4000, 2], Role::Linear), [1, 8000]);
        assert_eq!(matrix(&[0, 5], Role::Linear), [0, 0]);
    }

    #[test]
    fn a_moment_is_known_with_its_weight() {
        let of = moment;
        assert_eq!(of("wte.weight.exp_avg"), Some(("wte.weight".to_owned(), Moment::First)));
        assert_eq!(of("state.3.exp_avg_sq"), Some(("state.3".to_owned(), Moment::Second)));
        assert_eq!(of("fc|momentum_buffer"), Some(("fc".to_owned(), Moment::Momentum)));
        assert_eq!(of("optimizer.exp_avg.wte.weight"), Some(("optimizer.wte.weight".to_owned(), Moment::First)));
        assert_eq!(of("a.weight"), None);
    }
}
