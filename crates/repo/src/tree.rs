//! Trees as flat lists of files, and back. Neighbours: `commit` builds, everything that walks a version flattens. It must
//! not know files on disk.

use crate::{RepoError, Result, ingest::Ingest, odb::Odb};
use mdl_objects::{Entry, Id, Kind, Mode, Tree};
use std::collections::BTreeMap;

/// Directories inside directories: far beyond any file system's path limit.
const MAX_DEPTH: usize = 256;

/// Files of a version by their path in the tree.
pub type Files = BTreeMap<String, Entry>;

impl Odb {
    /// All files below a tree.
    ///
    /// # Errors
    /// Absent or damaged trees; the medium failed.
    pub fn files(&self, tree: &Id) -> Result<Files> {
        let mut out = Files::new();
        self.flatten(tree, "", 0, &mut out)?;
        Ok(out)
    }

    fn flatten(&self, tree: &Id, prefix: &str, depth: usize, out: &mut Files) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(RepoError::corrupt(
                format!("tree {}", tree.short()),
                "directories nest too deep",
            ));
        }
        for e in self.tree(tree)?.entries {
            let path = format!("{prefix}{}", e.name);
            if e.mode == Mode::Tree {
                self.flatten(&e.id, &format!("{path}/"), depth + 1, out)?;
            } else {
                out.insert(path, e);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Dir {
    dirs: BTreeMap<String, Dir>,
    files: BTreeMap<String, Entry>,
}

/// Stores the trees of these files (paths to entries, whose names are taken from the paths); returns the root's id.
pub(crate) fn store(ingest: &mut Ingest<'_>, files: &Files) -> Result<Id> {
    let mut root = Dir::default();
    for (path, entry) in files {
        let mut dir = &mut root;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_some() {
                dir = dir.dirs.entry(part.to_owned()).or_default();
            } else {
                dir.files.insert(
                    part.to_owned(),
                    Entry {
                        name: part.to_owned(),
                        ..entry.clone()
                    },
                );
            }
        }
    }
    store_dir(ingest, root).map(|e| e.id)
}

fn store_dir(ingest: &mut Ingest<'_>, dir: Dir) -> Result<Entry> {
    let mut entries: BTreeMap<String, Entry> = dir.files;
    for (name, sub) in dir.dirs {
        let entry = Entry {
            name: name.clone(),
            ..store_dir(ingest, sub)?
        };
        entries.insert(name, entry);
    }
    let tree = Tree {
        entries: entries.into_values().collect(),
    };
    let size = tree.entries.iter().map(|e| e.size).sum();
    let id = ingest.object(Kind::Tree, &tree.encode())?;
    Ok(Entry {
        name: String::new(),
        mode: Mode::Tree,
        executable: false,
        size,
        id,
    })
}
