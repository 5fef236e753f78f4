//! How the tensors of a file are stored, for listings.

use crate::repo::Repo;
use mdl_files::Format;
use mdl_objects::{Kind, Manifest, TensorRef};
use mdl_store::{Result, read::TensorReader};
use serde::Serialize;
use std::ops::Range;

/// A tensor in a file, and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredTensor {
    /// Name, as listings show it.
    pub name: String,
    /// Whether a view goes by the tensor's own name, which is therefore listed as `NAME#storage`.
    pub storage: bool,
    /// Element type.
    pub dtype: &'static str,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Decoded bytes.
    pub logical_bytes: u64,
    /// The tensor, in hexadecimal digits.
    pub id: String,
    /// Bytes in the pack.
    pub stored_bytes: u64,
    /// How its segments are encoded; "mixed" where they are not all alike.
    pub scheme: &'static str,
    /// Deltas down to the chain root.
    pub depth: u8,
    /// Its delta base.
    pub base: Option<String>,
}

/// The name of a container's code in a manifest.
pub fn format_name(code: u8) -> &'static str {
    const NAMES: [(Format, &str); 7] = [
        (Format::Plain, "plain"),
        (Format::Safetensors, "safetensors"),
        (Format::TorchZip, "torch"),
        (Format::TorchLegacy, "torch"),
        (Format::Npz, "npz"),
        (Format::Npy, "npy"),
        (Format::Gguf, "gguf"),
    ];
    NAMES.iter().find(|(f, _)| *f as u8 == code).map_or("unknown", |n| n.1)
}

/// The tensors of a file, in its order, and how they are stored.
pub fn tensors_of(repo: &Repo, manifest: &Manifest) -> Result<Vec<StoredTensor>> {
    tensors_in(repo, manifest, 0..manifest.tensors.len())
}

/// Some of the tensors of a file, by their place in it, and how they are stored.
pub fn tensors_in(repo: &Repo, manifest: &Manifest, places: Range<usize>) -> Result<Vec<StoredTensor>> {
    let names = manifest.listed_names();
    let all = manifest.tensors.iter().zip(names);
    let some = all.skip(places.start).take(places.len());
    some.map(|(t, name)| stored_tensor(repo, t, name)).collect()
}

fn stored_tensor(repo: &Repo, t: &TensorRef, name: String) -> Result<StoredTensor> {
    let record = repo.odb().find(&t.id, Kind::Tensor)?.record;
    let reader = repo.odb().tensor(&t.id)?;
    Ok(StoredTensor {
        storage: name != t.name,
        name,
        dtype: t.dtype.name(),
        shape: t.shape.clone(),
        logical_bytes: reader.byte_len(),
        id: t.id.to_hex(),
        stored_bytes: record.len,
        scheme: scheme(&reader)?,
        depth: u8::try_from(reader.chain_len()).unwrap_or(u8::MAX),
        base: reader.header().base.map(|id| id.to_hex()),
    })
}

fn scheme(reader: &TensorReader<'_>) -> Result<&'static str> {
    let mut found = None;
    for i in 0..reader.segments() {
        let name = reader.scheme(i)?.name();
        if found.is_some_and(|f| f != name) {
            return Ok("mixed");
        }
        found = Some(name);
    }
    Ok(found.unwrap_or("stored"))
}
