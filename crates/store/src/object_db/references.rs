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
        Kind::Manifest => Manifest::decode(bytes).map_err(bad)?.parts().collect(),
        Kind::Commit => {
            let c = Commit::decode(bytes).map_err(bad)?;
            c.parents.iter().map(|p| (*p, Kind::Commit)).chain(c.contents()).collect()
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
