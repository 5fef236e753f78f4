//! Tells zip archives apart: a PyTorch file, a NumPy archive, or any other zip.

use crate::{
    bytes::Trouble,
    layout::{Format, Layout, ReadAt, ScanError},
    npz, torch,
    zip::{self, Entry},
};

/// The first bytes of a zip archive that has an entry. PyTorch and NumPy, too, look for an archive nowhere else.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";

/// The layout of a zip archive; `None` where it is neither kind of checkpoint.
///
/// A broken archive is damaged only where its extension or its first entry says that it was a checkpoint: any other
/// broken zip file is a plain file.
pub(crate) fn scan(src: &dyn ReadAt, extension: &str) -> Result<Option<Layout>, ScanError> {
    let entries = match zip::read(src) {
        Ok(entries) => entries,
        Err(Trouble::Io(e)) => return Err(e.into()),
        Err(broken) => {
            let first = zip::first_name(src).map_err(|t| t.in_format(Format::Plain))?;
            return match claimed(extension, &first) {
                Some(format) => Err(broken.in_format(format)),
                None => Ok(None),
            };
        }
    };
    if let Some(prefix) = torch::prefix(&entries) {
        let prefix = prefix.to_owned();
        return torch::scan(src, &entries, &prefix).map(Some).map_err(|t| t.in_format(Format::TorchZip));
    }
    if is_npz(&entries, extension) {
        return npz::scan(src, &entries).map(Some).map_err(|t| t.in_format(Format::Npz));
    }
    Ok(None)
}

/// Every entry is an array; under the right extension one is enough.
fn is_npz(entries: &[Entry], extension: &str) -> bool {
    let is_array = |e: &Entry| e.name.ends_with(".npy");
    let mut all = entries.iter();
    if extension == "npz" { all.any(is_array) } else { !entries.is_empty() && all.all(is_array) }
}

/// The kind of checkpoint that a broken archive was, as far as its first entry and its extension tell.
fn claimed(extension: &str, first: &str) -> Option<Format> {
    if first.ends_with("/data.pkl") || first.ends_with("/.format_version") {
        return Some(Format::TorchZip);
    }
    match extension {
        _ if first.ends_with(".npy") => Some(Format::Npz),
        "npz" => Some(Format::Npz),
        "pt" | "pth" | "ckpt" | "bin" | "ptl" | "jit" => Some(Format::TorchZip),
        _ => None,
    }
}
