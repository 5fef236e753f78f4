//! What objects point at.

use crate::{Result, error::bad_object};
use mdl_objects::{Commit, Id, Kind, Manifest, Mode, Tag, Tree};

/// What an object points at, with the kinds these must have.
pub fn references(kind: Kind, id: &Id, bytes: &[u8]) -> Result<Vec<(Id, Kind)>> {
    let bad = bad_object(id);
    Ok(match kind {
        Kind::Blob | Kind::Tensor => Vec::new(),
        Kind::Tag => vec![(Tag::decode(bytes).map_err(bad)?.target, Kind::Commit)],
        Kind::Tree => {
            let tree = Tree::decode(bytes).map_err(bad)?;
            tree.entries.iter().map(|e| (e.id, kind_of(e.mode))).collect()
        }
        Kind::Manifest => {
            let m = Manifest::decode(bytes).map_err(bad)?;
            let blobs = m.skeleton.iter().map(|c| (c.id, Kind::Blob));
            blobs.chain(m.tensors.iter().map(|t| (t.id, Kind::Tensor))).collect()
        }
        Kind::Commit => {
            let c = Commit::decode(bytes).map_err(bad)?;
            let parents = c.parents.iter().map(|p| (*p, Kind::Commit));
            let blobs = c.report.iter().chain(&c.side).map(|r| (*r, Kind::Blob));
            [(c.tree, Kind::Tree)].into_iter().chain(parents).chain(blobs).collect()
        }
    })
}

/// The kind of object behind a tree's entry.
pub fn kind_of(mode: Mode) -> Kind {
    match mode {
        Mode::Blob => Kind::Blob,
        Mode::Manifest => Kind::Manifest,
        Mode::Tree => Kind::Tree,
    }
}
