//! Flat lists of files to trees, and back.

use crate::{RepoError, Result, ingest::Ingest, odb::Odb};
use mdl_objects::{Entry, Id, Kind, Mode, Tree};
use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

/// Directories inside directories: far beyond any file system's path limit.
const MAX_DEPTH: usize = 256;

/// Bytes of the paths of a version's files and directories, with `PER_ENTRY` for each. Directories are shared between
/// paths, so that a few small trees can stand for more files than there is memory.
const MAX_PATHS: usize = 1 << 29;
const PER_ENTRY: usize = 64;

/// Files of a version by their path in the tree.
pub type Files = BTreeMap<String, Entry>;

impl Odb {
    /// All files below a tree.
    ///
    /// # Errors
    /// Absent or damaged trees, or ones that stand for more files than any writer's; an I/O error.
    pub fn files(&self, tree: &Id) -> Result<Files> {
        let mut out = Files::new();
        let mut known = Known::default();
        self.flatten(tree, "", &mut known, &mut Room(MAX_PATHS), &mut out)?;
        Ok(out)
    }

    fn flatten(&self, tree: &Id, prefix: &str, known: &mut Known, room: &mut Room, out: &mut Files) -> Result<()> {
        let depth = prefix.bytes().filter(|b| *b == b'/').count();
        if depth > MAX_DEPTH {
            return Err(RepoError::corrupt(format!("tree {}", tree.short()), "directories nest too deep"));
        }
        let found = match known.get(tree) {
            Some(found) => found.clone(),
            None => known.entry(*tree).or_insert(Rc::new(self.tree(tree)?)).clone(),
        };
        for e in &found.entries {
            if !room.take(prefix.len(), &e.name) {
                return Err(RepoError::corrupt(
                    format!("tree {}", tree.short()),
                    "it stands for more files than any writer's",
                ));
            }
            let path = format!("{prefix}{}", e.name);
            if e.mode == Mode::Tree {
                self.flatten(&e.id, &format!("{path}/"), known, room, out)?;
            } else {
                out.insert(path, e.clone());
            }
        }
        Ok(())
    }
}

/// Trees read before: one that is shared is read once.
type Known = HashMap<Id, Rc<Tree>>;

/// What is left of `MAX_PATHS`.
struct Room(usize);

impl Room {
    /// Whether there is room for one more entry, whose name follows a prefix of this length.
    fn take(&mut self, prefix: usize, name: &str) -> bool {
        let left = self.0.checked_sub(prefix + name.len() + PER_ENTRY);
        self.0 = left.unwrap_or(0);
        left.is_some()
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
                dir.files.insert(part.to_owned(), Entry { name: part.to_owned(), ..entry.clone() });
            }
        }
    }
    store_dir(ingest, root, 0, &mut Room(MAX_PATHS)).map(|e| e.id)
}

fn store_dir(ingest: &mut Ingest<'_>, dir: Dir, prefix: usize, room: &mut Room) -> Result<Entry> {
    let mut entries: BTreeMap<String, Entry> = dir.files;
    for (name, sub) in dir.dirs {
        let entry = Entry { name: name.clone(), ..store_dir(ingest, sub, prefix + name.len() + 1, room)? };
        entries.insert(name, entry);
    }
    if !entries.keys().all(|name| room.take(prefix, name)) {
        return Err(RepoError::user("more files than fit one version", "commit fewer, or name some in .mdlignore"));
    }
    let tree = Tree { entries: entries.into_values().collect() };
    let size = tree.entries.iter().map(|e| e.size).sum();
    let id = ingest.object(Kind::Tree, &tree.encode())?;
    Ok(Entry { name: String::new(), mode: Mode::Tree, executable: false, size, id })
}
