//! Recognises a file's format and calls its scanner.

use crate::{
    archive,
    bytes::{bad, head},
    gguf,
    layout::{Format, Layout, ReadAt, ScanError},
    npy, safetensors,
    torch::legacy,
};
use std::path::Path;

/// How a pickle of protocol 2 or newer begins: any object may be saved as `.pt`, without tensors or torch's own frame.
const PICKLE: &[u8] = b"\x80";

/// Finds the tensors of a file.
///
/// Content decides what the file is; the extension of `path_hint` only where content cannot (safetensors has no magic,
/// a zip cut short has no directory). What is no known container has the plain layout. Only headers, directories and
/// pickles are read, never payloads, and nothing is executed.
///
/// # Errors
/// `Damaged` where the file is of a known format but its structure is wrong; `Io` on an I/O error.
pub fn scan(src: &dyn ReadAt, path_hint: &Path) -> Result<Layout, ScanError> {
    let extension = path_hint.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    let layout = recognise(src, &extension)?;
    layout.check(src.size()).or_else(|broken| bad(broken).map_err(|t| t.in_format(layout.format)))?;
    Ok(layout)
}

fn recognise(src: &dyn ReadAt, extension: &str) -> Result<Layout, ScanError> {
    let first = head(src, legacy::MAGIC_ROOM)?;
    let found = if first.starts_with(gguf::MAGIC) {
        gguf::scan(src).map_err(|t| t.in_format(Format::Gguf))?
    } else if first.starts_with(npy::MAGIC) {
        Some(npy::scan(src).map_err(|t| t.in_format(Format::Npy))?)
    } else if first.starts_with(archive::MAGIC) {
        archive::scan(src, extension)?
    } else if let Some(after) = legacy::magic(&first) {
        legacy::scan(src, after).map_err(|t| t.in_format(Format::TorchLegacy))?
    } else {
        let found = safetensors::scan(src, extension == "safetensors").map_err(|t| t.in_format(Format::Safetensors))?;
        if found.is_none() {
            refuse_pretence(&first, extension)?;
        }
        found
    };
    Ok(found.unwrap_or_else(Layout::plain))
}

/// A file whose name promises a checkpoint and whose first bytes are of none is nearly always one that is still being
/// written, or whose writing failed. `.bin` may be anything, so there only having no bytes says so.
fn refuse_pretence(first: &[u8], extension: &str) -> Result<(), ScanError> {
    let (format, starts): (Format, &[&[u8]]) = match extension {
        "pt" | "pth" => (Format::TorchZip, &[b"PK", PICKLE]),
        "bin" | "ckpt" => (Format::TorchZip, &[b""]),
        "npy" => (Format::Npy, &[]),
        // An archive may begin with something else.
        "npz" => (Format::Npz, &[b""]),
        "gguf" => (Format::Gguf, &[]),
        _ => return Ok(()),
    };
    let reason = if first.is_empty() {
        "it is empty"
    } else if starts.iter().any(|s| first.starts_with(s)) {
        return Ok(());
    } else {
        "its first bytes are not those of such a file"
    };
    bad(format!("{reason} (incompletely written?)")).map_err(|t| t.in_format(format))
}
