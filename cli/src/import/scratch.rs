//! A directory for files that are not versions yet: what is downloaded, or comes out of git. What is in it after a kill
//! is used again, if it is what it should be.

use crate::commands::prelude::*;
use mdl_repo::IMPORT_DIR;
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, fs};

#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    /// Ends with this, where the repository has no directory.
    temporary: Option<tempfile::TempDir>,
}

impl Scratch {
    /// One for each source: two imports side by side must not clear away each other's files.
    pub fn make(repo: &Repo, source: &str) -> Result<Scratch> {
        let failed = || RepoError::io("cannot make a directory for what is imported");
        if let Some(own) = repo.dir() {
            let name: String = hex::encode(Sha256::digest(source)).chars().take(16).collect();
            let dir = own.join(IMPORT_DIR).join(name);
            fs::create_dir_all(&dir).map_err(failed())?;
            return Ok(Scratch { dir, temporary: None });
        }
        let temporary = tempfile::TempDir::new().map_err(failed())?;
        Ok(Scratch { dir: temporary.path().to_owned(), temporary: Some(temporary) })
    }

    /// The file of this name, which `fill` writes unless it is there. One that `check` refuses is made once more: a
    /// power cut, or a run before, may have left it so.
    pub fn file(
        &self,
        name: &str,
        mut check: impl FnMut(&Path) -> Result<u64>,
        mut fill: impl FnMut(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let (path, part) = (self.dir.join(name), self.dir.join(format!("{name}.part")));
        if path.is_file() {
            if check(&path).is_ok() {
                return Ok(path);
            }
            let _ = fs::remove_file(&path);
        }
        fill(&part)?;
        if check(&part).is_err() {
            let _ = fs::remove_file(&part);
            fill(&part)?;
            check(&part)?;
        }
        // Its name says that it is whole: the bytes are on disk before.
        fs::File::open(&part)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&part, &path))
            .map_err(RepoError::io(format!("cannot write {}", path.display())))?;
        Ok(path)
    }

    /// Clears away all but these: a history of large models must not lie here as a whole, and what one version lacks,
    /// the next one hardly has.
    pub fn keep(&self, used: &BTreeSet<PathBuf>) {
        for old in fs::read_dir(&self.dir).into_iter().flatten().flatten().filter(|e| !used.contains(&e.path())) {
            let _ = fs::remove_file(old.path());
        }
    }

    /// Clears it away.
    pub fn remove(self) {
        // It only takes room.
        let _ = fs::remove_dir_all(&self.dir);
        if let Some(all) = self.dir.parent().filter(|_| self.temporary.is_none()) {
            // Another import may have its own there.
            let _ = fs::remove_dir(all);
        }
    }
}
