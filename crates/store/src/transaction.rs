//! Write transactions: a change to a repository, from its first look at what is stored to the last ref that it moves.
//!
//! Every step that protects what the change relies on from a collector is part of the step that needs it, so that none
//! can be left out: `begin` locks and lists the packs, `pack` pins what will be referred to, `publish` checks that the
//! lock still holds before the pack gets its name, and `update_ref` and `note` pin and check before anything comes to
//! refer to objects.

use crate::{
    Missing, RepoError, Result, Store,
    lock::WriteGuard,
    object_db::add_object,
    pack::{PackId, PackWriter, Record, encode_tail},
    refs::{Head, RefName},
    storage::Key,
};
use mdl_objects::{Id, Kind, Signature};
use std::{
    ops::{Deref, DerefMut},
    path::Path,
};

/// A change that has begun. While it lives no collector deletes what it relies on.
#[derive(Debug)]
pub struct WriteTransaction<'s> {
    store: &'s Store,
    held: WriteGuard,
}

/// A pack that is being written within a transaction. Dropped before it is published, it leaves nothing.
#[derive(Debug)]
pub struct NewPack(PackWriter);

impl Deref for NewPack {
    type Target = PackWriter;

    fn deref(&self) -> &PackWriter {
        &self.0
    }
}

impl DerefMut for NewPack {
    fn deref_mut(&mut self) -> &mut PackWriter {
        &mut self.0
    }
}

impl<'s> WriteTransaction<'s> {
    /// Takes the write lock, then forgets which packs were known before.
    ///
    /// # Errors
    /// As [`Store::write_lock`].
    pub fn begin(store: &'s Store) -> Result<WriteTransaction<'s>> {
        let held = store.write_lock()?;
        store.odb.refresh();
        Ok(WriteTransaction { store, held })
    }

    /// Makes sure that these objects, as far as they exist, stay.
    ///
    /// # Errors
    /// `Overtaken`: one is being deleted; an I/O error.
    pub fn pin(&self, objects: impl IntoIterator<Item = Id>) -> Result<()> {
        self.store.pin(&self.held, objects)
    }

    /// Begins a pack. What its objects refer to, or are deltas of, is below `relied_on` or new.
    ///
    /// # Errors
    /// As `pin`.
    pub fn pack(&self, relied_on: impl IntoIterator<Item = Id>) -> Result<NewPack> {
        self.pin(relied_on)?;
        PackWriter::new(&*self.store.storage).map(NewPack)
    }

    /// Makes a pack durable and visible; none if nothing was put into it.
    ///
    /// # Errors
    /// `Overtaken`, `LockLost`: there is no pack. An I/O error: there is no pack, or a whole one.
    pub fn publish(&self, pack: NewPack) -> Result<Option<PackId>> {
        if pack.is_empty() {
            return Ok(None);
        }
        let id = pack.0.finish(|id| self.held.check_publishable(id))?;
        self.store.odb.note_pack(id)?;
        Ok(Some(id))
    }

    /// Turns a file into a pack with these records; its payloads are the file's first `len` bytes.
    ///
    /// # Errors
    /// As `publish`.
    pub fn adopt(&self, file: &Path, records: &[Record], len: u64) -> Result<PackId> {
        let (id, tail) = encode_tail(records, len);
        self.held.check_publishable(id)?;
        self.store.storage.adopt(file, len, &tail, &id.key())?;
        self.store.odb.note_pack(id)?;
        Ok(id)
    }

    /// Stores one object that is no tensor, in a pack of its own unless the repository has it.
    ///
    /// # Errors
    /// As `pack` and `publish`.
    pub fn add(&self, kind: Kind, content: &[u8], relied_on: impl IntoIterator<Item = Id>) -> Result<Id> {
        let mut pack = self.pack(relied_on)?;
        let id = add_object(&self.store.odb, &mut pack, kind, content)?;
        self.publish(pack)?;
        Ok(id)
    }

    /// Writes a small value that refers to objects which were stored or pinned here.
    ///
    /// # Errors
    /// `Overtaken`, `LockLost`: nothing was written. An I/O error: the value is the old one or the new one.
    pub fn note(&self, key: &Key, value: &[u8], objects: impl IntoIterator<Item = Id>) -> Result<()> {
        self.pin(objects)?;
        self.held.revalidate()?;
        self.store.storage.put(key, value)
    }

    /// Moves (or with `new` none deletes) a ref that stands at `expected`.
    ///
    /// # Errors
    /// There is no such object; otherwise as [`Refs::update`](crate::refs::Refs::update).
    pub fn update_ref(
        &self,
        name: &RefName,
        expected: Option<Id>,
        new: Option<Id>,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        self.require(new)?;
        self.store.refs.update(&self.held, name, expected, new, who, message)
    }

    /// Points HEAD from `expected` to `new`.
    ///
    /// # Errors
    /// There is no such commit; `Conflict` where it points elsewhere; an I/O error.
    pub fn move_head(&self, expected: &Head, new: &Head, who: &Signature, message: &str) -> Result<()> {
        let commit = match new {
            Head::Detached(id) => Some(*id),
            Head::Branch(_) => None,
        };
        self.require(commit)?;
        self.store.refs.move_head(&self.held, expected, new, who, message)
    }

    /// No ref may point at an object that is not there.
    fn require(&self, object: Option<Id>) -> Result<()> {
        let Some(id) = object else { return Ok(()) };
        if self.store.odb.locate(&id)?.is_none() {
            return Err(RepoError::not_found(Missing::Object, id));
        }
        self.pin([id])
    }
}
