//! An earlier checkpoint outside of the repository, which tells a first version's update.

use crate::model::{Model, Part};
use mdl_files::{FileSource, Layout, ReadAt, ScanError, scan};
use mdl_store::{RepoError, Result};
use std::{collections::HashMap, path::Path};

/// Its files, by the place of the model's that they go on in.
#[derive(Debug, Default)]
pub(crate) struct Since(HashMap<usize, (FileSource, Layout)>);

impl Since {
    /// Opens a directory with files of the model's names, or the only file of one.
    pub fn open(path: &Path, model: &Model) -> Result<Since> {
        let mut found = HashMap::new();
        for (i, container) in model.files.iter().enumerate() {
            let file = match path.is_dir() {
                true => path.join(&container.file.rel),
                false => path.to_owned(),
            };
            if !file.is_file() || !path.is_dir() && model.files.len() > 1 {
                continue;
            }
            let failed = |e| RepoError::io(format!("cannot read {}", file.display()))(e);
            let source = FileSource::open(&file).map_err(failed)?;
            match scan(&source, &file) {
                Ok(layout) => found.insert(i, (source, layout)),
                Err(ScanError::Damaged { .. }) => None,
                Err(ScanError::Io(e)) => return Err(failed(e)),
            };
        }
        if found.is_empty() {
            return Err(RepoError::user(
                format!("no file of this checkpoint has an earlier state in {}", path.display()),
                "name the directory of an earlier checkpoint of the run, or its only file",
            ));
        }
        Ok(Since(found))
    }

    /// The bytes that a tensor had, if it was of the same type and length.
    pub fn read(&self, part: &Part) -> Result<Option<Vec<u8>>> {
        let Some((source, layout)) = self.0.get(&part.file) else { return Ok(None) };
        let alike = |e: &&mdl_files::Extent| e.name == part.extent.name && e.dtype == part.extent.dtype;
        let found = layout.extents.iter().find(alike).filter(|e| e.byte_len() == part.extent.byte_len());
        let Some((extent, len)) = found.and_then(|e| Some((e, e.byte_len()?))) else { return Ok(None) };
        let mut bytes = vec![0; len as usize];
        source.read_at(extent.offset, &mut bytes).map_err(RepoError::io("cannot read the earlier checkpoint"))?;
        Ok(Some(bytes))
    }
}
