//! Ingests files of the work tree: not read where the stat cache knows them, refused where they change meanwhile.

use crate::{
    Result,
    write::{FileState, Ingest, Ingested, Sink, WriteOut, changed, expose_writes, recall, remember},
};
use mdl_objects::{Entry, Mode};
use std::path::Path;

/// Times that a file is written out before it counts as one that is being written to.
const WRITE_OUTS: u32 = 3;

/// Ingests a file unless its state says that it is what it was and the repository has it.
pub fn ingest_cached(ingest: &mut Ingest<'_>, path: &Path, rel: &str, parent: Option<&Entry>) -> Result<Ingested> {
    let state = FileState::from_path(path)?;
    if let Some(known) = recall(ingest.odb, path, &state) {
        let stored = match &ingest.sink {
            Sink::Ids => true,
            // Of what a check could not read all is looked at again.
            Sink::Pack(_) => !ingest.odb.has_unreadable()? && ingest.odb.contains_file(known.mode, &known.id)?,
        };
        if stored {
            ingest.progress.advance(known.size);
            if let (Sink::Pack(_), Mode::Manifest) = (&ingest.sink, known.mode) {
                ingest.report.total += ingest.odb.manifest(&known.id)?.tensors.len() as u64;
            }
            return Ok(known);
        }
    }
    // What was left alone for a while is worth waiting for, since it will be remembered.
    let write_out = if state.settled() { WriteOut::Wait } else { WriteOut::Begin };
    let (state, told) = exposed(path, rel, write_out, state)?;
    // Asked before the file is read: reading a long one takes longer than settling.
    let settled = state.settled() && write_out == WriteOut::Wait;
    let done = ingest.file(path, rel, parent)?;
    let after = FileState::from_path(path)?;
    if after.written_since(&state) {
        return Err(changed(rel));
    }
    if told && settled && after == state {
        remember(ingest.odb, path, &state, &done);
    }
    Ok(done)
}

/// The state of a file whose pages have been written out, and whether writes through memory maps move it from now on. A
/// page that is written to again before all are out would be left out of that: a file that moves meanwhile is written
/// out once more.
fn exposed(path: &Path, rel: &str, write_out: WriteOut, mut before: FileState) -> Result<(FileState, bool)> {
    for _ in 0..WRITE_OUTS {
        let told = expose_writes(path, write_out)?;
        let state = FileState::from_path(path)?.after_tick();
        if !state.written_since(&before) {
            return Ok((state, told));
        }
        before = state;
    }
    Err(changed(rel))
}
