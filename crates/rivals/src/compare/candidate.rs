//! Writes a checkpoint's files with a reconstruction in place of its tensors.

use crate::{compare::Checkpoint, systems::State};
use mdl_files::Format;
use mdl_store::{RepoError, Result};
use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::Path,
};

/// Writes all files below `folder`, which is there and empty.
pub(super) fn write(checkpoint: &Checkpoint, state: &State, folder: &Path) -> Result<()> {
    let changed = |file: usize| {
        let mut held = checkpoint.tensors.iter().filter(|t| t.file == file);
        held.any(|t| state.tensors.get(&t.name).is_none_or(|k| k.bytes != t.bytes))
    };
    for (i, part) in checkpoint.files.iter().enumerate() {
        let path = folder.join(&part.rel);
        let failed = RepoError::io(format!("cannot write {}", path.display()));
        let done = || -> std::io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::copy(&part.path, &path)?;
            let mut file = OpenOptions::new().write(true).open(&path)?;
            for t in checkpoint.tensors.iter().filter(|t| t.file == i) {
                if let Some(kept) = state.tensors.get(&t.name) {
                    file.seek(SeekFrom::Start(t.offset))?;
                    file.write_all(&kept.bytes)?;
                }
            }
            file.flush()
        };
        // A zip has a sum of every payload, which would no longer be right.
        if matches!(part.format, Format::TorchZip | Format::Npz) && changed(i) {
            return Err(RepoError::User {
                message: format!("{} cannot be evaluated: zip archives carry checksums", part.rel.display()),
                hint: "compare a safetensors file of the same weights".into(),
            });
        }
        done().map_err(failed)?;
    }
    Ok(())
}
