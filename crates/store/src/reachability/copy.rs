//! Copies encoded payloads from pack to pack, verified on the way.

use crate::{
    Progress, RepoError, Result,
    pack::{NewObject, PackWriter},
    reachability::catalog::{Catalog, Slot},
    storage::Storage,
};

/// Copies one copy of an object into a pack being written, as one of depth `depth`. After an error, such as that the
/// stored bytes changed, the pack being written is of no more use.
pub fn copy(
    catalog: &Catalog,
    storage: &dyn Storage,
    slot: Slot,
    depth: u8,
    into: &mut PackWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let record = catalog.record(slot);
    let pack = &catalog.packs[slot.pack as usize].pack;
    if into.get(&record.id).is_some() {
        return Ok(());
    }
    pack.stream_payload(storage, record, |bytes| {
        into.append(bytes)?;
        progress.advance(bytes.len() as u64);
        Ok(())
    })?;
    into.place(NewObject {
        id: record.id,
        kind: record.kind,
        depth,
        base: record.base,
        grandparent: record.grandparent,
        logical: record.logical,
    });
    // The writer hashed what it was given: that must be what was once written.
    match into.get(&record.id) {
        Some(new) if new.check == record.check => Ok(()),
        _ => Err(RepoError::corrupt(
            format!("{} {} in pack {}", record.kind, record.id.short(), pack.id),
            "stored bytes changed",
        )),
    }
}
