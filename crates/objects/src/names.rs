//! Tensor names: those a user knows, and those of the storages behind them.

use crate::{Manifest, TensorRef, ViewRef};
use std::collections::HashSet;

/// What is put behind the name of a storage that a tensor on it goes by.
const STORAGE: &str = "#storage";

/// What a tensor name stands for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// A tensor as it is stored.
    Tensor(&'a TensorRef),
    /// Elements inside a stored tensor.
    View(&'a TensorRef, &'a ViewRef),
}

impl Manifest {
    /// Names by which the tensors are listed, in their order. A storage is stored under the name of a tensor on it, so
    /// that the next version finds its delta base; where that tensor is a view (transposed, a part of the storage), the
    /// name is the view's, as in the program that wrote the file, and the storage is listed as `NAME#storage`.
    pub fn listed_names(&self) -> Vec<String> {
        let own = |v: &&ViewRef| self.tensors.get(v.tensor as usize).is_some_and(|t| t.name == v.name);
        let hidden: HashSet<u32> = self.views.iter().filter(own).map(|v| v.tensor).collect();
        let name = |(i, t): (usize, &TensorRef)| {
            let is_hidden = u32::try_from(i).is_ok_and(|i| hidden.contains(&i));
            format!("{}{}", t.name, if is_hidden { STORAGE } else { "" })
        };
        self.tensors.iter().enumerate().map(name).collect()
    }

    /// What goes by a name: the view before the storage it is called like.
    pub fn find(&self, name: &str) -> Option<Named<'_>> {
        let owner = |v: &ViewRef| self.tensors.get(v.tensor as usize);
        let own = |v: &&ViewRef| v.name == name && owner(v).is_some_and(|t| t.name == name);
        let view = |v| owner(v).map(|t| Named::View(t, v));
        if let Some(found) = self.views.iter().find(own).and_then(view) {
            return Some(found);
        }
        let stored = self.tensors.iter().find(|t| t.name == name).map(Named::Tensor);
        let viewed = || self.views.iter().find(|v| v.name == name).and_then(view);
        stored.or_else(viewed).or_else(|| {
            let plain = name.strip_suffix(STORAGE)?;
            self.tensors.iter().find(|t| t.name == plain).map(Named::Tensor)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Id;
    use mdl_codec::Dtype;

    fn manifest(tensors: &[&str], views: &[(&str, u32)]) -> Manifest {
        let tensor = |name: &&str| TensorRef {
            name: (*name).to_owned(),
            offset: 0,
            dtype: Dtype::F32,
            shape: vec![4],
            id: Id::from_bytes([0; 32]),
        };
        let view = |(name, tensor): &(&str, u32)| ViewRef {
            name: (*name).to_owned(),
            tensor: *tensor,
            offset: 0,
            dtype: Dtype::F32,
            shape: vec![2],
            strides: vec![2],
        };
        Manifest {
            format: 2,
            size: 0,
            skeleton: Vec::new(),
            tensors: tensors.iter().map(tensor).collect(),
            views: views.iter().map(view).collect(),
        }
    }

    #[test]
    fn a_name_is_the_views_and_the_storage_is_marked() {
        let m = manifest(&["a", "b"], &[("a", 0), ("tied", 1)]);
        assert_eq!(m.listed_names(), ["a#storage", "b"]);
        assert!(matches!(m.find("a"), Some(Named::View(_, v)) if v.shape == [2]));
        assert!(matches!(m.find("a#storage"), Some(Named::Tensor(t)) if t.name == "a"));
        assert!(matches!(m.find("tied"), Some(Named::View(t, _)) if t.name == "b"));
        assert!(matches!(m.find("b"), Some(Named::Tensor(_))));
        assert_eq!(m.find("c"), None);
    }

    #[test]
    fn a_view_of_another_storage_hides_nothing() {
        let m = manifest(&["a", "a#2"], &[("a", 1)]);
        assert_eq!(m.listed_names(), ["a", "a#2"]);
        assert!(matches!(m.find("a"), Some(Named::Tensor(_))));
    }
}
