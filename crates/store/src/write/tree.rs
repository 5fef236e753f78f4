//! Flat lists of files to trees.

use super::Ingest;
use crate::{
    RepoError, Result,
    object_db::{Files, MAX_PATHS, Room},
};
use mdl_objects::{Entry, Id, Kind, Mode, Tree};
use std::collections::BTreeMap;

#[derive(Default)]
struct Dir {
    dirs: BTreeMap<String, Dir>,
    files: BTreeMap<String, Entry>,
}

/// Stores the trees of these files (paths to entries, whose names are taken from the paths); returns the root's id.
pub fn store_trees(ingest: &mut Ingest<'_>, files: &Files) -> Result<Id> {
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
