//! A git repository whose large files git-lfs keeps: pointers in git, contents in `.git/lfs/objects`.

use super::{
    Kind, Request, Scratch, Source, SourceFile, SourceVersion, bad,
    git::Git,
    ids::{Hash, Verified},
    mark_of, short,
};
use crate::commands::prelude::*;
use mdl_remote::foreign::lfs::{LONGEST, Pointer};
use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

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
        if size > LONGEST {
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
            let what = format!("{} of {}", file.path, short(&version.key));
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
