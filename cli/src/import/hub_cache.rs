//! A model in the cache of huggingface_hub: `models--OWNER--NAME` with `snapshots`, whose links point at `blobs`.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion, files_below,
    ids::{Hash, Verified},
    mark_of, titled,
};
use crate::commands::prelude::*;
use std::{fs, time::SystemTime};

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

    fn file(&mut self, rel: String, path: &Path) -> Result<SourceFile> {
        let real = fs::canonicalize(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        let id = real.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let hash = match id.len() {
            64 => Some(Hash::Sha256),
            40 => Some(Hash::GitBlob),
            _ => None,
        };
        let hash = hash.filter(|_| id.bytes().all(|b| b.is_ascii_hexdigit()));
        let size = match hash {
            Some(hash) => self.verified.check(&real, hash, &id, &rel)?,
            // Without links, as on some file systems, nothing says what the bytes should be.
            None => {
                self.notes.push(format!("{rel} could not be verified: it is no link to a blob"));
                fs::metadata(&real).map_err(RepoError::io(format!("cannot read {}", real.display())))?.len()
            }
        };
        Ok(SourceFile { rel, executable: false, path: real, size, id, verified: hash.is_some() })
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
        let version =
            |name: String| SourceVersion { message: titled("", &name), key: name, ..SourceVersion::default() };
        Ok(found.into_iter().map(|(_, _, name)| version(name)).collect())
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let below = files_below(&self.dir.join("snapshots").join(&version.key))?;
        below.into_iter().map(|(rel, path)| self.file(rel, &path)).collect()
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::HubCache, &version.key)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
