//! A git repository whose data DVC keeps: `.dvc` files and `dvc.lock` in git, contents in DVC's cache.
//!
//! A version has what DVC tracks, and not the code beside it.

use super::{
    Kind, Request, Source, SourceFile, SourceVersion, bad,
    git::{Git, TreeFile},
    ids::{Hash, Verified, md5_hex},
    mark_of,
};
use crate::commands::prelude::*;
use mdl_remote::foreign::dvc::{self, Out, join};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
};

/// The file of a pipeline's outputs.
const LOCK: &str = "dvc.lock";
/// Files whose bytes are compared with the id of a text that had other line ends.
const TEXT: u64 = 64 << 20;

pub struct DvcRepo {
    git: Git,
    revision: String,
    cache: PathBuf,
    verified: Verified,
    /// What is tracked, by version.
    outs: HashMap<String, BTreeMap<String, Out>>,
    parsed: HashMap<String, Vec<(String, Out)>>,
    notes: Vec<String>,
}

impl DvcRepo {
    pub fn open(request: Request) -> Result<DvcRepo> {
        let dir = PathBuf::from(&request.place);
        let git = Git::open(&dir)?;
        let cache = request.cache.unwrap_or_else(|| cache_of(&dir));
        let revision = request.revision.unwrap_or_else(|| "HEAD".to_owned());
        let (outs, parsed, verified) = (HashMap::new(), HashMap::new(), Verified::default());
        Ok(DvcRepo { git, revision, cache, verified, outs, parsed, notes: Vec::new() })
    }

    /// What the files of a commit say is tracked, by its path in the repository.
    fn tracked(&mut self, files: &[TreeFile]) -> Result<BTreeMap<String, Out>> {
        let mut outs = BTreeMap::new();
        for file in files {
            let (dir, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
            if name != LOCK && !(name.ends_with(".dvc") && name.len() > 4) {
                continue;
            }
            let key = format!("{dir}/{}", file.oid);
            if !self.parsed.contains_key(&key) {
                let found = dvc::tracked(&self.git.text(&file.oid)?, name == LOCK).map_err(|e| {
                    let hint = "is it DVC's, and without merge conflicts?";
                    bad(format!("{} cannot be read: {e}", file.path), hint)
                })?;
                let placed = found.into_iter().filter_map(|(wdir, out)| match join(&[dir, &wdir, &out.path]) {
                    Some(path) => Some((path, out)),
                    None => {
                        self.notes.push(format!("left out {}: it lies outside of the repository", out.path));
                        None
                    }
                });
                let placed = placed.collect();
                self.parsed.insert(key.clone(), placed);
            }
            outs.extend(self.parsed.get(&key).into_iter().flatten().cloned());
        }
        outs.retain(|_, out| out.md5.is_some());
        Ok(outs)
    }

    /// Where the cache has an id: since DVC 3 below `files/md5`, before directly.
    fn object(&self, id: &str) -> Option<PathBuf> {
        let (first, rest) = dvc::place_of(id)?;
        let places = [self.cache.join("files/md5"), self.cache.clone()];
        places.into_iter().map(|p| p.join(first).join(rest)).find(|p| p.is_file())
    }

    fn file(&mut self, rel: String, id: &str, out: &Out) -> Result<SourceFile> {
        let path = self.object(id).ok_or_else(|| missing(&rel))?;
        let size = self.checked(&path, id, &rel, out)?;
        Ok(SourceFile { rel, executable: out.isexec, path, size, id: id.to_owned(), verified: true })
    }

    fn checked(&mut self, path: &Path, id: &str, rel: &str, out: &Out) -> Result<u64> {
        let done = self.verified.check(path, Hash::Md5, id, rel);
        let size = fs::metadata(path).map_or(u64::MAX, |m| m.len());
        if done.is_err() && out.hash.is_none() && size <= TEXT {
            let bytes = fs::read(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
            if md5_hex(&unix_lines(&bytes)) == id {
                return Ok(size);
            }
        }
        done
    }
}

impl Source for DvcRepo {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        let (mut versions, mut before) = (Vec::new(), BTreeMap::new());
        for version in self.git.history(&self.revision)? {
            let outs = self.tracked(&self.git.tree(&version.key)?.0)?;
            let ids: BTreeMap<String, Option<String>> = outs.iter().map(|(p, o)| (p.clone(), o.md5.clone())).collect();
            // Commits of code alone are no versions, unless a tag names one.
            if ids.is_empty() || ids == before && version.tags.is_empty() {
                continue;
            }
            before = ids;
            self.outs.insert(version.key.clone(), outs);
            versions.push(version);
        }
        Ok(versions)
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let mut files = Vec::new();
        for (path, out) in self.outs.get(&version.key).cloned().unwrap_or_default() {
            let Some(id) = out.md5.clone() else { continue };
            if !id.ends_with(".dir") {
                files.push(self.file(path, &id, &out)?);
                continue;
            }
            let list = self.object(&id).ok_or_else(|| missing(&path))?;
            self.verified.check(&list, Hash::Md5, id.trim_end_matches(".dir"), &path)?;
            let bytes = fs::read(&list).map_err(RepoError::io(format!("cannot read {}", list.display())))?;
            let listed = dvc::listing(&bytes, &path).map_err(|e| {
                bad(format!("the listing of {path} cannot be read: {e}"), "`dvc fetch` brings it again")
            })?;
            for (rel, md5) in listed {
                files.push(self.file(rel, &md5, &out)?);
            }
        }
        Ok(files)
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::Dvc, &version.key)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

fn missing(rel: &str) -> CliError {
    let hint = "`dvc fetch --all-commits` in the source brings it, --cache names another cache; what was imported so \
                far stays";
    bad(format!("DVC's cache does not have {rel}"), hint)
}

/// The cache that the settings name, else `.dvc/cache`.
fn cache_of(dir: &Path) -> PathBuf {
    let own = dir.join(".dvc");
    let named = ["config.local", "config"]
        .iter()
        .find_map(|file| dvc::cache_setting(&fs::read_to_string(own.join(file)).ok()?));
    named.map_or_else(|| own.join("cache"), |path| own.join(path))
}

fn unix_lines(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (i, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(i + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_on_unix() {
        assert_eq!(unix_lines(b"a\r\nb\rc\n"), b"a\nb\rc\n");
    }
}
