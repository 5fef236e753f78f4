//! What a quantiser says about the tensors it made: on which lattice each lies. Neighbours: the lossy commit fills it in,
//! `tensors` passes it to the engine. It must not decide anything: a hint that is wrong is no more than useless.

use mdl_codec::quant::lattice::{Lattice, Params};
use mdl_files::Extent;
use std::{collections::HashMap, sync::Arc};

/// Lattices by the path of a file in the tree and the name of a tensor in it.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    by_name: HashMap<(String, String), Params>,
}

impl Hints {
    /// Notes that a tensor of the file at `path` lies on a lattice.
    pub fn insert(&mut self, path: impl Into<String>, tensor: impl Into<String>, params: Params) {
        self.by_name.insert((path.into(), tensor.into()), params);
    }

    /// The lattice of a tensor, if one is noted that fits its dtype and shape.
    pub(super) fn lattice(&self, path: &str, e: &Extent) -> Option<Arc<Lattice>> {
        if self.by_name.is_empty() {
            return None;
        }
        let params = self.by_name.get(&(path.to_owned(), e.name.clone()))?;
        let shape: Option<Vec<usize>> = e.shape.iter().map(|&d| d.try_into().ok()).collect();
        Lattice::new(params, e.dtype, &shape?).ok().map(Arc::new)
    }
}
