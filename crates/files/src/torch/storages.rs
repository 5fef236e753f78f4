//! Makes an extent and views of each storage, from what the pickle said about it.

use super::tensors::{StorageRef, Tensor};
use crate::{
    layout::{Extent, Layout, View},
    resolve::{count, dense_strides},
};
use mdl_codec::Dtype;
use std::collections::HashMap;

/// What a pickle says about its storages, by key.
#[derive(Default)]
pub(super) struct StorageTable {
    storages: HashMap<Vec<u8>, StorageEntry>,
}

/// What a pickle says about one storage.
pub(super) struct StorageEntry {
    /// How many storages were mentioned before it.
    pub(super) order: usize,
    /// Type and length by the first persistent id.
    pub(super) storage: StorageRef,
    /// The named tensors on it.
    tensors: Vec<(String, Tensor)>,
}

impl StorageTable {
    /// A storage is mentioned.
    pub(super) fn saw(&mut self, key: &[u8], storage: StorageRef) {
        // No second allocation for a key that is known: a hostile pickle can mention a long one many times.
        if !self.storages.contains_key(key) {
            let found = StorageEntry { order: self.storages.len(), storage, tensors: Vec::new() };
            self.storages.insert(key.to_vec(), found);
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&StorageEntry> {
        self.storages.get(key)
    }

    /// A tensor hangs under `name`.
    pub(super) fn named(&mut self, key: &[u8], name: String, tensor: Tensor) {
        if let Some(found) = self.storages.get_mut(key) {
            found.tensors.push((name, tensor));
        }
    }
}

/// A storage as the file has it.
pub(super) struct Storage {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What it is called where no tensor lends its name.
    pub(super) fallback: String,
}

/// Adds the storage's extent and views. With `foreign` byte order nothing is typed, but the name still counts.
pub(super) fn push(storage: Storage, found: Option<&StorageEntry>, foreign: bool, layout: &mut Layout) {
    let mut tensors: Vec<&(String, Tensor)> = found.map_or_else(Vec::new, |f| f.tensors.iter().collect());
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let mut extent = Extent {
        offset: storage.offset,
        dtype: Dtype::Opaque,
        shape: vec![storage.len],
        name: tensors.first().map_or(storage.fallback, |(name, _)| name.clone()),
    };
    let index = u32::try_from(layout.extents.len()).unwrap_or(u32::MAX);
    if !foreign && let Some(found) = found {
        type_whole(&mut extent, found.storage, storage.len);
        let mut views: Vec<View> = tensors.iter().filter_map(|(n, t)| view(n, t, index, storage.len)).collect();
        if let Some(owner) = views.iter().position(|v| covers(v, storage.len)) {
            let owner = views.remove(owner);
            (extent.name, extent.dtype, extent.shape) = (owner.name, owner.dtype, owner.shape);
        }
        layout.views.append(&mut views);
    }
    layout.extents.push(extent);
}

/// Types the extent by its storage, where the lengths agree.
fn type_whole(extent: &mut Extent, storage: StorageRef, len: u64) {
    let Some(dtype) = storage.dtype else { return };
    if storage.count.checked_mul(dtype.size() as u64) == Some(len) {
        extent.dtype = dtype;
        extent.shape = vec![storage.count];
    }
}

/// The view that a tensor is, if it has a known type and stays inside its storage.
fn view(name: &str, tensor: &Tensor, extent: u32, len: u64) -> Option<View> {
    let dtype = tensor.dtype?;
    let view = View {
        name: name.into(),
        extent,
        offset: tensor.offset.checked_mul(dtype.size() as u64)?,
        dtype,
        shape: tensor.shape.clone(),
        strides: tensor.strides.clone(),
    };
    let end = view.offset.checked_add(view.span()?)?;
    (end <= len).then_some(view)
}

/// Whether a view is the whole extent in its own order.
fn covers(view: &View, len: u64) -> bool {
    let size = count(&view.shape).and_then(|n| n.checked_mul(view.dtype.size() as u64));
    let dense = dense_strides(&view.shape);
    let mut in_order = view.shape.iter().zip(view.strides.iter().zip(&dense));
    view.offset == 0 && size == Some(len) && (len == 0 || in_order.all(|(&d, (s, w))| d == 1 || s == w))
}
