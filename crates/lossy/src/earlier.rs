//! The version that updates are counted from: the parent, or what training was restored from since.

use crate::{
    allocate::Allocation,
    model::{Container, Model},
    yardstick::{Earlier, Yardstick},
};
use mdl_objects::tensor_id;
use mdl_store::{
    Result,
    object_db::{Files, Odb},
    write::{BaseTensors, bases_of},
};
use std::collections::BTreeMap;

/// The version that updates are counted from.
pub(crate) struct EarlierVersion<'a> {
    pub files: Files,
    /// The steps of its tensors, where it is not what training had.
    pub steps: Option<&'a Allocation>,
}

impl EarlierVersion<'_> {
    /// The yardsticks of all weights that are not stored already: those stay as they are, so that a checked-out version
    /// that is committed again costs nothing.
    pub fn yardsticks(&self, odb: &Odb, model: &Model) -> Result<BTreeMap<usize, Yardstick>> {
        let tensors = |c: &Container| bases_of(odb, self.files.get(&c.file.rel));
        let tensors = model.files.iter().map(tensors).collect::<Result<Vec<BaseTensors>>>()?;
        let mut yardsticks = BTreeMap::new();
        for (i, part, _) in model.weights() {
            let (raw, extent) = (model.read(part)?, &part.extent);
            if odb.contains(&tensor_id(extent.dtype, &extent.shape, &raw))? {
                continue;
            }
            // A version whose contents are gone tells nothing.
            let before = tensors[part.file].get(&extent.name).and_then(|id| {
                let tensor = odb.tensor(id).ok()?;
                (tensor.header().dtype == extent.dtype && tensor.byte_len() == raw.len() as u64)
                    .then(|| tensor.read().ok())?
            });
            let steps = self.steps.and_then(|steps| steps.get(&model.label(part)));
            let earlier = before.as_deref().map(|bytes| Earlier { bytes, steps });
            yardsticks.insert(i, Yardstick::new(extent.dtype, &part.shape, &raw, earlier.as_ref()));
        }
        Ok(yardsticks)
    }
}
