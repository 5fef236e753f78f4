//! Gathers all tensors of a version into one safetensors file.
//!
//! Names are those that a program finds in the files: of a storage with a view of its own name the view, and every
//! further view too, as a file of its own would hold it. Tensors with wide elements come first, as the safetensors
//! library lays them out.

use crate::{
    content::Sink,
    problem::{Problem, Result},
};
use mdl_objects::{Manifest, Mode, TensorRef};
use mdl_repo::{Elements, Files, Missing, Odb, Repo, RepoError, most_shown, safetensors_header};
use std::collections::HashMap;

/// Most tensors in one file: its header is held in memory, and the format bounds it.
const MAX_TENSORS: usize = 1_000_000;

/// A file to be written.
pub(super) struct Gathered {
    head: Vec<u8>,
    parts: Vec<Elements>,
    pub(super) len: u64,
}

impl Gathered {
    /// Of the tensors in these files.
    pub(super) fn new(repo: &Repo, files: &Files) -> Result<Gathered> {
        let mut found: Vec<(&str, String, Elements)> = Vec::new();
        let mut stored = 0u64;
        for (path, entry) in files.iter().filter(|(_, e)| e.mode == Mode::Manifest) {
            let manifest = repo.odb().manifest(&entry.id)?;
            if found.len() + manifest.tensors.len() + manifest.views.len() > MAX_TENSORS {
                return Err(Problem::too_large(format!("more than {MAX_TENSORS} tensors")));
            }
            let lengths = manifest.tensors.iter().filter_map(TensorRef::byte_len);
            stored = lengths.fold(stored, u64::saturating_add);
            for (name, elements) in inside(&manifest)? {
                found.push((path, name, elements));
            }
        }
        if found.is_empty() {
            return Err(RepoError::not_found(Missing::Tensor, "in these files").into());
        }
        let mut files_with: HashMap<&str, usize> = HashMap::new();
        for (_, name, _) in &found {
            *files_with.entry(name).or_default() += 1;
        }
        let named = |(path, name, _): &(&str, String, Elements)| match files_with.get(name.as_str()) {
            Some(1) => name.clone(),
            _ => format!("{path}:{name}"),
        };
        let names: Vec<String> = found.iter().map(named).collect();
        let mut all: Vec<_> = names.into_iter().zip(found.into_iter().map(|(.., elements)| elements)).collect();
        all.sort_by_key(|(_, e)| std::cmp::Reverse(e.dtype.size()));
        let listed: Vec<_> = all.iter().map(|(name, e)| (name.as_str(), e.dtype, e.shape.as_slice())).collect();
        let head = safetensors_header(&listed)?;
        let mut shown = 0u64;
        for (_, e) in &all {
            let sum = shown.checked_add(e.byte_len(&e.all())?);
            shown = sum.ok_or_else(|| Problem::too_large("the version is longer than a file can be"))?;
        }
        if shown > most_shown(stored) {
            let message = format!("the tensors show {stored} stored bytes as {shown}");
            return Err(Problem::too_large(message).hint("choose files with `only`, or single tensors"));
        }
        let len = shown.saturating_add(head.len() as u64);
        Ok(Gathered { head, parts: all.into_iter().map(|(_, e)| e).collect(), len })
    }

    /// Writes it.
    pub(super) fn stream_files(&self, odb: &Odb, sink: Sink<'_>) -> Result<()> {
        sink(&self.head)?;
        self.parts.iter().try_for_each(|e| Ok(e.stream(odb, &e.all(), sink)?))
    }
}

/// What a program finds in a file, by name.
fn inside(manifest: &Manifest) -> Result<Vec<(String, Elements)>> {
    let mut out = Vec::new();
    for (t, listed) in manifest.tensors.iter().zip(manifest.listed_names()) {
        // Listed under another name: a view has its own.
        if listed == t.name {
            out.push((listed, Elements::whole(t)));
        }
    }
    for v in &manifest.views {
        let outside = || RepoError::corrupt(format!("view {}", v.name), "it is in no tensor");
        let t = manifest.tensors.get(v.tensor as usize).ok_or_else(outside)?;
        out.push((v.name.clone(), Elements::view(t, v)?));
    }
    Ok(out)
}
