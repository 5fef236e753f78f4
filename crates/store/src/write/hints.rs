//! Quantiser hints: on which lattice each quantised tensor lies.

use mdl_codec::quant::lattice::Lattice;
use mdl_files::Extent;
use std::{collections::HashMap, sync::Arc};

/// Lattices by the path of a file in the tree and the name of a tensor in it.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    by_name: HashMap<(String, String), Arc<Lattice>>,
}

impl Hints {
    /// Notes that a tensor of the file at `path` lies on a lattice.
    pub fn insert(&mut self, path: impl Into<String>, tensor: impl Into<String>, lattice: Arc<Lattice>) {
        self.by_name.insert((path.into(), tensor.into()), lattice);
    }

    /// Adds all that others note.
    pub fn extend(&mut self, others: Hints) {
        self.by_name.extend(others.by_name);
    }

    /// The lattice of a tensor, if one is noted.
    pub(super) fn lattice(&self, path: &str, e: &Extent) -> Option<Arc<Lattice>> {
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(path.to_owned(), e.name.clone())).cloned()
    }
}
