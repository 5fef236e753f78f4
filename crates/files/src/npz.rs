//! Finds the arrays of a NumPy archive.

use crate::{
    bytes::Trouble,
    layout::{Format, Layout, ReadAt},
    npy,
    resolve::unique,
    zip::Entry,
};

/// The layout of an archive of `.npy` entries: every stored one whose elements are plain is an extent. Compressed
/// entries stay in the skeleton.
pub(crate) fn scan(src: &dyn ReadAt, entries: &[Entry]) -> Result<Layout, Trouble> {
    let mut layout = Layout { format: Format::Npz, ..Layout::plain() };
    for entry in entries.iter().filter(|e| e.stored) {
        let Some(name) = entry.name.strip_suffix(".npy") else { continue };
        let array = npy::read(src, entry.payload, entry.len).map_err(|trouble| match trouble {
            Trouble::Bad(reason) => Trouble::Bad(format!("entry {:?}: {reason}", crate::check::short(&entry.name))),
            io => io,
        })?;
        if let Some(array) = array {
            array.push(name, &mut layout);
        }
    }
    // Names that were not UTF-8 may have become equal.
    unique(&mut layout.extents);
    Ok(layout)
}
