//! A model in the cache of huggingface_hub: `models--OWNER--NAME` with `snapshots`, whose links point at `blobs`.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion, bad,
    ids::{Hash, Verified},
    mark_of,
};
use crate::commands::prelude::*;
use std::{fs, time::SystemTime};

/// How deep a snapshot is listed.
const DEPTH: usize = 32;

pub struct HubCache {
    dir: PathBuf,
    verified: Verified,
    notes: Vec<String>,
}

impl HubCache {
    pub fn open(request: Request) -> Result<HubCache> {
        let dir = PathBuf::from(&request.place);
        if !dir.join("snapshots").is_dir() {
            return Err(refused(format!("{} has no snapshots", dir.display()), "name a directory models--OWNER--NAME"));
        }
        Ok(HubCache { dir, verified: Verified::default(), notes: Vec::new() })
    }

    fn list(&mut self, dir: &Path, rel: &str, depth: usize, files: &mut Vec<SourceFile>) -> Result<()> {
        let failed = || RepoError::io(format!("cannot list {}", dir.display()));
        for entry in fs::read_dir(dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(bad(format!("a file in {} has a name that is not UTF-8", dir.display()), ""));
            };
            let rel = if rel.is_empty() { name } else { format!("{rel}/{name}") };
            let path = entry.path();
            if path.is_dir() && depth > 0 {
                self.list(&path, &rel, depth - 1, files)?;
                continue;
            }
            let real = fs::canonicalize(&path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
            let id = real.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|b| b.is_ascii_hexdigit());
            let size = match id.len() {
                64 if is_id => self.verified.check(&real, Hash::Sha256, &id, &rel)?,
                40 if is_id => self.verified.check(&real, Hash::GitBlob, &id, &rel)?,
                // Without links, as on some file systems, nothing says what the bytes should be.
                _ => {
                    self.notes.push(format!("{rel} could not be verified: it is no link to a blob"));
                    fs::metadata(&real).map_err(RepoError::io(format!("cannot read {}", real.display())))?.len()
                }
            };
            files.push(SourceFile { rel, executable: false, path: real, size, id });
        }
        Ok(())
    }
}

impl Source for HubCache {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let failed = || RepoError::io(format!("cannot list {}", self.dir.display()));
        let main = fs::read_to_string(self.dir.join("refs/main")).unwrap_or_default();
        let mut found: Vec<(bool, SystemTime, String)> = Vec::new();
        for entry in fs::read_dir(self.dir.join("snapshots")).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_dir()) {
                let made = entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((name == main.trim(), made, name));
            }
        }
        // The cache has no history: in the order that they came, what `main` is at last.
        found.sort();
        let version = |name: String| SourceVersion {
            message: format!("revision {}", &name[..name.len().min(10)]),
            key: name,
            ..SourceVersion::default()
        };
        Ok(found.into_iter().map(|(_, _, name)| version(name)).collect())
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let mut files = Vec::new();
        self.list(&self.dir.join("snapshots").join(&version.key), "", DEPTH, &mut files)?;
        Ok(files)
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::HubCache, &version.key)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
