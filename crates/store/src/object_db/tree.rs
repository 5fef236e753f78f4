//! Trees to flat lists of files.

use crate::{RepoError, Result, object_db::Odb};
use mdl_objects::{Entry, Id, Mode, Tree};
use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

/// Directories inside directories: far beyond any file system's path limit.
const MAX_DEPTH: usize = 256;

/// Bytes of the paths of a version's files and directories, with `PER_ENTRY` for each. Directories are shared between
/// paths, so that a few small trees can stand for more files than there is memory.
pub(crate) const MAX_PATHS: usize = 1 << 29;
const PER_ENTRY: usize = 64;

/// Files of a version by their path in the tree.
pub type Files = BTreeMap<String, Entry>;

impl Odb {
    /// All files below a tree.
    pub fn files(&self, tree: &Id) -> Result<Files> {
        let mut out = Files::new();
        self.flatten(tree, "", &mut HashMap::new(), &mut Room(MAX_PATHS), &mut out)?;
        Ok(out)
    }

    fn flatten(&self, tree: &Id, prefix: &str, known: &mut ReadTrees, room: &mut Room, out: &mut Files) -> Result<()> {
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
type ReadTrees = HashMap<Id, Rc<Tree>>;

/// What is left of `MAX_PATHS`.
pub(crate) struct Room(pub usize);

impl Room {
    /// Whether there is room for one more entry, whose name follows a prefix of this length.
    pub fn take(&mut self, prefix: usize, name: &str) -> bool {
        let left = self.0.checked_sub(prefix + name.len() + PER_ENTRY);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}
