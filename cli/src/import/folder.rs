//! A directory of a training run: each entry with tensors is a version, in the order of training.

use super::{Request, Source, SourceFile, SourceVersion};
use crate::{
    checkpoints::{
        SOURCE,
        find::{WatchedEntry, look},
        name::title,
        trainer,
        whole::{Whole, check},
    },
    commands::prelude::*,
};
use mdl_repo::DiskFile;
use std::collections::HashMap;

pub struct Folder {
    dir: PathBuf,
    entries: HashMap<String, WatchedEntry>,
    notes: Vec<String>,
}

impl Folder {
    pub fn open(request: Request) -> Result<Folder> {
        let dir = PathBuf::from(&request.place);
        if !dir.is_dir() {
            return Err(not_found(Missing::Directory, dir.display()));
        }
        Ok(Folder { dir, entries: HashMap::new(), notes: Vec::new() })
    }
}

impl Source for Folder {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let found = look(&self.dir, &[]).map_err(RepoError::io(format!("cannot list {}", self.dir.display())))?;
        let (temporary, mut entries): (Vec<_>, Vec<_>) = found.entries.into_iter().partition(|e| e.temporary);
        self.notes.extend(temporary.iter().map(|e| format!("left out {}: its name says it is not complete", e.name)));
        entries.retain(has_tensors);
        entries.retain(|e| match check_linked(e) {
            Whole::Yes | Whole::NoTensors => true,
            Whole::No(why) => {
                self.notes.push(format!("left out {}: {why}", e.name));
                false
            }
        });
        entries.iter_mut().for_each(|e| trainer::ask(&e.path, &mut e.place));
        entries.sort_by_key(WatchedEntry::order);
        let version = |e: &WatchedEntry| SourceVersion {
            key: e.name.clone(),
            message: title(&e.name).to_owned(),
            step: e.place.step,
            epoch: e.place.epoch,
            metrics: e.place.metrics.clone(),
            ..SourceVersion::default()
        };
        let versions = entries.iter().map(version).collect();
        self.entries = entries.into_iter().map(|e| (e.name.clone(), e)).collect();
        Ok(versions)
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let Some(entry) = self.entries.get(&version.key) else { return Ok(Vec::new()) };
        // Links are followed here: the version has what they point at.
        let list = mdl_repo::walk(&entry.path, true)?;
        let file = |f: DiskFile| SourceFile {
            // Nothing says which contents are the same: each file counts.
            id: format!("{}/{}", version.key, f.rel),
            rel: f.rel,
            executable: f.executable,
            path: f.path,
            size: f.size,
            verified: false,
        };
        Ok(list.into_iter().map(file).collect())
    }

    // A watch's mark: what one of both has taken, the other knows.
    fn mark(&self, version: &SourceVersion) -> (String, String) {
        (SOURCE.to_owned(), version.key.clone())
    }

    fn is_same(&self, repo: &Repo, version: &SourceVersion, tree: &Id) -> Result<bool> {
        let Some(entry) = self.entries.get(&version.key) else { return Ok(false) };
        Ok(mdl_repo::identify_linked(repo, &entry.path, &mdl_repo::Silent)? == *tree)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// Whether a checkpoint is whole, with what links in it point at.
fn check_linked(entry: &WatchedEntry) -> Whole {
    match mdl_repo::walk(&entry.path, true) {
        Err(error) => Whole::No(error.to_string()),
        Ok(list) => {
            let stamp = list.into_iter().map(|f| (f.rel, (f.size, 0))).collect();
            check(&WatchedEntry { stamp, ..entry.clone() })
        }
    }
}

/// Whether a directory has a file with tensors by its name: others beside checkpoints (logs, code) are no versions.
fn has_tensors(entry: &WatchedEntry) -> bool {
    const ENDINGS: [&str; 8] = ["safetensors", "ckpt", "pt", "pth", "bin", "npz", "npy", "gguf"];
    let ending = |rel: &String| Path::new(rel).extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    entry.stamp.keys().any(|rel| ending(rel).is_some_and(|e| ENDINGS.contains(&e.as_str()) || e == "distcp"))
}
