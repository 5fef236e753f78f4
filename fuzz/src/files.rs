//! Targets: checkpoint files. A layout is consistent, its checksums fit, and a commit gives the same bytes back.

use crate::{mend, repo};
use mdl_files::{Layout, ReadAt, ScanError, checksums, scan};
use mdl_repo::{CommitRequest, Content, NewFile, Silent};
use std::{path::Path, sync::Arc};

/// Longest file that is committed as well.
const LONGEST: usize = 256 << 10;

fn scanned(data: &[u8], name: &str) -> Option<Layout> {
    let bytes = data.to_vec();
    match scan(&bytes, Path::new(name)) {
        Ok(layout) => {
            assert!(layout.check(bytes.size()).is_ok(), "a layout breaks its promises");
            assert!(scan(&bytes, Path::new(name)).is_ok_and(|again| again == layout));
            mended(bytes, &layout);
            Some(layout)
        }
        Err(ScanError::Damaged { reason, .. }) => {
            assert!(!reason.is_empty() && reason.len() < 2000, "a reason of {} bytes", reason.len());
            None
        }
        Err(ScanError::Io(_)) => unreachable!("memory does not fail"),
    }
}

/// Checksums that do not fit are written anew; then all fit, and the structure is what it was.
fn mended(mut bytes: Vec<u8>, layout: &Layout) {
    let Ok(patches) = checksums(&bytes, layout.format) else {
        return;
    };
    for (at, patch) in &patches {
        let at = usize::try_from(*at).expect("inside the file");
        let place = bytes.get_mut(at..at + patch.len()).expect("inside the file");
        place.copy_from_slice(patch);
    }
    // A directory whose records lie over each other, or in a payload, cannot have all of them right.
    if !patches.is_empty() {
        let _ = checksums(&bytes, layout.format);
    }
}

/// safetensors.
pub fn safetensors(data: &[u8]) {
    scanned(data, "a.safetensors");
    scanned(data, "a");
}

/// PyTorch archives, and PyTorch files from before the zip.
pub fn torch(data: &[u8]) {
    scanned(data, "a.pt");
}

/// A pickle in a PyTorch archive that is sound otherwise.
pub fn pickle(data: &[u8]) {
    let archive = mend::zip::torch(data);
    let layout = scanned(&archive, "a.pt");
    assert!(layout.is_some(), "an archive is refused for what its pickle says");
}

/// `.npz` and `.npy`.
pub fn npz(data: &[u8]) {
    scanned(data, if data.starts_with(b"PK") { "a.npz" } else { "a.npy" });
}

/// GGUF.
pub fn gguf(data: &[u8]) {
    scanned(data, "a.gguf");
}

/// Any file, named by the first byte: what was committed comes back, byte for byte, and the repository is sound.
pub fn ingest(data: &[u8]) {
    const NAMES: [&str; 7] = ["a.safetensors", "a.pt", "a.npz", "a.npy", "a.gguf", "a.bin", "a"];
    let Some((kind, data)) = data.split_first().filter(|(_, d)| d.len() <= LONGEST) else {
        return;
    };
    let name = NAMES[usize::from(*kind) % NAMES.len()];
    let (_, repo) = repo::fresh();
    let file = NewFile { rel: name.to_owned(), executable: false, content: Content::Memory(Arc::new(data.to_vec())) };
    let request = CommitRequest {
        files: Some(vec![file]),
        message: "fuzz".to_owned(),
        allow_damaged: kind & 0x80 != 0,
        ..CommitRequest::default()
    };
    let Ok(committed) = mdl_repo::commit(&repo, &request, &Silent) else {
        return;
    };
    let files = mdl_repo::files(&repo, &committed.id).expect("what was committed is listed");
    let entry = files.get(name).expect("the file is in its version");
    let back = repo.odb().read_range(entry, 0, entry.size).expect("what was committed is read");
    assert!(back == data, "a file came back changed");
    let report = mdl_repo::fsck(&repo, true, &Silent).expect("a check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
