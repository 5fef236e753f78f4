//! A git repository whose large files git-lfs keeps: pointers in git, contents in `.git/lfs/objects`.

use super::{
    Kind, Request, Scratch, Source, SourceFile, SourceVersion, bad,
    git::Git,
    ids::{Hash, Verified},
    mark_of,
};
use crate::commands::prelude::*;
use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

/// Longest pointer: git-lfs takes no longer one for one.
const POINTER: u64 = 1024;

pub struct LfsRepo {
    git: Git,
    revision: String,
    objects: PathBuf,
    scratch: Rc<Scratch>,
    verified: Verified,
    /// Pointers that were read, by their blob; none: the blob is a file.
    pointers: HashMap<String, Option<Pointer>>,
    others: u64,
}

/// What a pointer names.
#[derive(Clone, Debug, PartialEq)]
struct Pointer {
    oid: String,
    size: u64,
}

impl Pointer {
    fn parse(bytes: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(bytes).ok()?;
        let versions = ["version https://git-lfs.github.com/spec/", "version https://hawser.github.com/spec/"];
        versions.iter().any(|v| text.starts_with(v)).then_some(())?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let oid = value("oid")?.strip_prefix("sha256:")?;
        let is_hex = oid.len() == 64 && oid.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then_some(Pointer { oid: oid.to_owned(), size: value("size")?.parse().ok()? })
    }
}

impl LfsRepo {
    pub fn open(request: Request) -> Result<LfsRepo> {
        let git = Git::open(Path::new(&request.place))?;
        let common = git.common_dir()?;
        let storage = git.setting("lfs.storage").map_or_else(|| common.join("lfs"), |dir| common.join(dir));
        Ok(LfsRepo {
            git,
            revision: request.revision.unwrap_or_else(|| "HEAD".to_owned()),
            objects: request.cache.unwrap_or(storage.join("objects")),
            scratch: request.scratch,
            verified: Verified::default(),
            pointers: HashMap::new(),
            others: 0,
        })
    }

    fn pointer(&mut self, oid: &str, size: u64) -> Result<Option<Pointer>> {
        if size > POINTER {
            return Ok(None);
        }
        if let Some(known) = self.pointers.get(oid) {
            return Ok(known.clone());
        }
        let pointer = Pointer::parse(&self.git.text(oid)?);
        self.pointers.insert(oid.to_owned(), pointer.clone());
        Ok(pointer)
    }
}

impl Source for LfsRepo {
    fn versions(&mut self) -> Result<Vec<SourceVersion>> {
        self.git.history(&self.revision)
    }

    fn files(&mut self, version: &SourceVersion) -> Result<Vec<SourceFile>> {
        let (tree, others) = self.git.tree(&version.key)?;
        self.others = self.others.max(others);
        let (mut files, mut used) = (Vec::with_capacity(tree.len()), BTreeSet::new());
        for file in tree {
            let what = format!("{} of {}", file.path, &version.key[..version.key.len().min(10)]);
            let (path, hash, id) = match self.pointer(&file.oid, file.size)? {
                Some(Pointer { oid, .. }) => {
                    let path = self.objects.join(&oid[..2]).join(&oid[2..4]).join(&oid);
                    if !path.is_file() {
                        let hint = "`git lfs fetch --all` in the source brings it; what was imported so far stays";
                        return Err(bad(format!("git-lfs has not fetched {what}"), hint));
                    }
                    (path, Hash::Sha256, oid)
                }
                None => {
                    let (git, verified, oid) = (&mut self.git, &mut self.verified, &file.oid);
                    let check = |path: &Path| verified.check(path, Hash::GitBlob, oid, &what);
                    let path = self.scratch.file(oid, check, |part| git.write(oid, part))?;
                    used.insert(path.clone());
                    (path, Hash::GitBlob, file.oid)
                }
            };
            let size = self.verified.check(&path, hash, &id, &what)?;
            files.push(SourceFile { rel: file.path, executable: file.executable, path, size, id, verified: true });
        }
        self.scratch.keep(&used);
        Ok(files)
    }

    fn mark(&self, version: &SourceVersion) -> (String, String) {
        mark_of(Kind::GitLfs, &version.key)
    }

    fn notes(&self) -> Vec<String> {
        let note = format!("left out links and other repositories, {} in a version", self.others);
        (self.others > 0).then_some(note).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_told_from_files() {
        let oid = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 6\n");
        assert_eq!(Pointer::parse(text.as_bytes()), Some(Pointer { oid: oid.to_owned(), size: 6 }));
        for bad in ["", "hello", "version https://git-lfs.github.com/spec/v1\noid sha256:../../x\nsize 6\n"] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None);
        }
    }
}
