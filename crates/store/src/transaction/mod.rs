//! Write transactions: a change to a repository, from its first look at what is stored to the last ref that it moves.
//! There is no other way to write.
//!
//! Every step that protects what the change relies on from a collector is part of the step that needs it, so that none
//! can be left out:
//!
//! * `begin` takes the write lock, and only then are packs listed: what is found from then on is not deleted by a
//!   collector that began before. `begin_at` also pins a commit that perhaps nothing else reaches.
//! * `pack` pins what will be referred to before the first byte is written.
//! * `publish` checks that the lock still holds, right before the pack is synced and gets its name, and notes it.
//! * `update_ref` looks the new target up and pins it, appends the line to the log, checks the lock, and swaps: no move
//!   is missing in the log, and no ref points at what a collector may take. `move_head` and `set_head` do the same, but
//!   that HEAD's log follows.
//! * A move of a ref is held against the store's guard, if it has one, before anything is written.
//! * `note` pins and checks before a small value comes to refer to objects.
//!
//! What works below this, collections and compactions, goes through a [`MaintenanceLock`].

mod maintenance;

pub use maintenance::MaintenanceLock;

use crate::{
    Missing, RepoError, Result, Store,
    lock::{self, WriteGuard},
    object_db::add_object,
    pack::{PackId, PackWriter, Record, encode_tail},
    refs::{HEAD, HEADS, Head, LogEntry, MAX_REF, RefName, head_bytes, parse_id, ref_bytes},
    storage::{Key, Storage, Swap},
};
use mdl_objects::{Id, Kind, Signature};
use std::{
    collections::BTreeSet,
    ops::{Deref, DerefMut},
    path::Path,
};

/// A change that has begun. While it lives no collector deletes what it relies on.
#[derive(Debug)]
#[must_use = "collectors are kept away only while it lives"]
pub struct WriteTransaction<'s> {
    store: &'s Store,
    held: WriteGuard,
}

/// A pack in a storage that is no repository, such as one on its way to another.
#[derive(Debug)]
pub struct PackApart(PackWriter);

impl PackApart {
    /// Begins it.
    pub fn new(storage: &dyn Storage) -> Result<PackApart> {
        PackWriter::new(storage).map(PackApart)
    }

    /// Makes it durable and visible, where the repository that its objects came from still has them.
    pub fn finish(self, from: &WriteTransaction<'_>) -> Result<PackId> {
        from.finish(self.0)
    }
}

impl Deref for PackApart {
    type Target = PackWriter;

    fn deref(&self) -> &PackWriter {
        &self.0
    }
}

impl DerefMut for PackApart {
    fn deref_mut(&mut self) -> &mut PackWriter {
        &mut self.0
    }
}

impl<'s> WriteTransaction<'s> {
    /// Takes the write lock, then forgets which packs were known before. A collection that was cut off is finished
    /// first, where locks keep other processes out.
    pub fn begin(store: &'s Store) -> Result<WriteTransaction<'s>> {
        let held = store.write_lock()?;
        store.odb.refresh();
        Ok(WriteTransaction { store, held })
    }

    /// Begins a change that makes a ref point at a commit which perhaps nothing else reaches. Refused where there is no
    /// such commit, or it is being deleted.
    pub fn begin_at(store: &'s Store, commit: &Id) -> Result<WriteTransaction<'s>> {
        let begun = WriteTransaction::begin(store)?;
        // Not `commit`, which the index may remember of one that was collected.
        store.odb.need(commit, Missing::Commit)?;
        begun.pin([*commit])?;
        Ok(begun)
    }

    /// Makes sure that these objects, as far as they exist, are in packs that are not doomed: packs are taken off
    /// the list; `Overtaken` where one is being deleted. What an object refers to needs no asking, since no pack is
    /// deleted that one which stays needs.
    pub fn pin(&self, objects: impl IntoIterator<Item = Id>) -> Result<()> {
        if !self.held.watches() {
            return Ok(());
        }
        let odb = &self.store.odb;
        let mut packs = BTreeSet::new();
        for id in objects {
            if !odb.contains(&id)? {
                let found = odb.locate(&id)?.map(|l| l.pack.id);
                packs.extend(found.filter(|p| odb.is_doomed(p)));
            }
        }
        self.rescue(&packs)
    }

    /// Takes packs off the list of doomed ones.
    fn rescue(&self, packs: &BTreeSet<PackId>) -> Result<()> {
        if !packs.is_empty() {
            self.store.odb.avoid(&lock::rescue(&*self.store.storage, packs)?);
        }
        Ok(())
    }

    /// Checks the lock right before something comes to refer to objects that were looked up under it. `Overtaken`,
    /// `LockLost`: nothing may be built on them.
    pub fn revalidate(&self) -> Result<()> {
        self.held.revalidate()
    }

    /// Begins a pack. What its objects refer to, or are deltas of, is below `relied_on` or new.
    pub fn pack(&self, relied_on: impl IntoIterator<Item = Id>) -> Result<PackWriter> {
        self.pin(relied_on)?;
        PackWriter::new(&*self.store.storage)
    }

    /// Makes a pack durable and visible; none if nothing was put into it. `Overtaken`, `LockLost`: there is no pack.
    /// After an I/O error there is no pack, or a whole one.
    pub fn publish(&self, pack: PackWriter) -> Result<Option<PackId>> {
        if pack.is_empty() {
            return Ok(None);
        }
        let id = self.finish(pack)?;
        self.store.odb.note_pack(id)?;
        Ok(Some(id))
    }

    /// Makes a pack durable and visible; readers of this handle find it once it is noted.
    fn finish(&self, pack: PackWriter) -> Result<PackId> {
        pack.finish(|id| self.held.check_publishable(id))
    }

    /// Turns a file into a pack with these records; its payloads are the file's first `len` bytes.
    pub fn adopt(&self, file: &Path, records: &[Record], len: u64) -> Result<PackId> {
        let (id, tail) = encode_tail(records, len);
        self.held.check_publishable(id)?;
        self.store.storage.adopt(file, len, &tail, &id.key())?;
        self.store.odb.note_pack(id)?;
        Ok(id)
    }

    /// Stores one object that is no tensor, in a pack of its own unless the repository has it.
    pub fn add(&self, kind: Kind, content: &[u8], relied_on: impl IntoIterator<Item = Id>) -> Result<Id> {
        let mut pack = self.pack(relied_on)?;
        let id = add_object(&self.store.odb, &mut pack, kind, content)?;
        self.publish(pack)?;
        Ok(id)
    }

    /// The same for several objects, in one pack.
    pub fn add_all(&self, objects: &[(Kind, Vec<u8>)], relied_on: impl IntoIterator<Item = Id>) -> Result<Vec<Id>> {
        let mut pack = self.pack(relied_on)?;
        let add = |(kind, content): &(Kind, Vec<u8>)| add_object(&self.store.odb, &mut pack, *kind, content);
        let ids = objects.iter().map(add).collect::<Result<_>>()?;
        self.publish(pack)?;
        Ok(ids)
    }

    /// Writes a small value that refers to objects which were stored or pinned here. `Overtaken`, `LockLost`: nothing
    /// was written. After an I/O error the value is the old one or the new one.
    pub fn note(&self, key: &Key, value: &[u8], objects: impl IntoIterator<Item = Id>) -> Result<()> {
        self.pin(objects)?;
        self.held.revalidate()?;
        self.store.storage.put(key, value)
    }

    /// Moves (or with `new` none deletes) a ref that is at `expected` (none: does not exist).
    ///
    /// # Errors
    /// There is no such object; `Overtaken` where a collector may be about to delete it; `Conflict` where the ref is
    /// elsewhere; a name that collides with a directory of names: the ref stays where it was. An I/O error.
    pub fn update_ref(
        &self,
        name: &RefName,
        expected: Option<Id>,
        new: Option<Id>,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        self.require(new)?;
        self.swap_ref(name, &LogEntry::new(expected, new, who, message))
    }

    /// Points HEAD from `expected` to `new`; `Conflict` where it points elsewhere.
    pub fn move_head(&self, expected: &Head, new: &Head, who: &Signature, message: &str) -> Result<()> {
        self.require(new.detached())?;
        let refs = &self.store.refs;
        let made = LogEntry::new(refs.tip(expected)?, refs.tip(new)?, who, message);
        self.hold_head(new, &made)?;
        refs.note_begin(&made);
        if matches!(new, Head::Detached(_)) {
            self.held.revalidate()?;
        }
        let lost = refs.storage.swap(HEAD.key(), Some(&head_bytes(expected)), Some(&head_bytes(new)))?;
        if matches!(lost, Swap::Lost(_)) {
            let now = refs.head()?;
            self.hold_head(&now, &made)?;
            let name = match now {
                Head::Branch(branch) => format!("HEAD (now on branch {branch})"),
                Head::Detached(_) => HEAD.to_string(),
            };
            return Err(RepoError::Conflict { name, expected: made.old, found: refs.head_commit()? });
        }
        self.head_moved(new, &made);
        Ok(())
    }

    /// Moves the branch that HEAD is on, or a detached HEAD, from one commit to another.
    pub fn advance(&self, head: &Head, from: Option<Id>, to: Id, who: &Signature, message: &str) -> Result<()> {
        match head {
            Head::Branch(name) => self.update_ref(&RefName::branch(name)?, from, Some(to), who, message),
            Head::Detached(_) => self.move_head(head, &Head::Detached(to), who, message),
        }
    }

    /// Points HEAD elsewhere, wherever it points now.
    pub fn set_head(&self, head: &Head, who: &Signature, message: &str) -> Result<()> {
        self.require(head.detached())?;
        let refs = &self.store.refs;
        let made = LogEntry::new(refs.head_commit().ok().flatten(), refs.tip(head)?, who, message);
        let value = head_bytes(head);
        let mut found = refs.storage.get_within(HEAD.key(), MAX_REF)?;
        self.hold_head(head, &made)?;
        refs.note_begin(&made);
        self.held.revalidate()?;
        // By swaps, so that it cannot fall between another's look and move.
        while let Swap::Lost(other) = refs.storage.swap(HEAD.key(), found.as_deref(), Some(&value))? {
            found = other;
        }
        self.head_moved(head, &made);
        Ok(())
    }

    /// As `update_ref`, to a target that was looked up or stored.
    fn swap_ref(&self, name: &RefName, made: &LogEntry) -> Result<()> {
        let (refs, expected) = (&self.store.refs, made.old);
        if let Some(guard) = &self.store.guard {
            guard.check(self.store, name, made.old, made.new)?;
        }
        if expected.is_none() {
            refs.check_free(name)?;
        }
        refs.log(name, made)?;
        let on_it = || matches!(refs.head(), Ok(Head::Branch(b)) if name.strip_prefix(HEADS) == Some(b.as_str()));
        if let Some(seen) = refs.work_tree_base().filter(|_| on_it()) {
            seen.begin(made.new);
        }
        let as_bytes = |id: Option<Id>| id.as_ref().map(ref_bytes);
        let (old, value) = (as_bytes(expected), as_bytes(made.new));
        // Last of all: from here to the swap nothing may take long.
        if made.new.is_some() {
            self.held.revalidate()?;
        }
        if let Swap::Lost(found) = refs.storage.swap(name.key(), old.as_deref(), value.as_deref())? {
            let found = found.map(|bytes| parse_id(name, &bytes)).transpose()?;
            return Err(RepoError::Conflict { name: name.to_string(), expected, found });
        }
        if on_it() {
            refs.log_head(made);
            refs.work_tree_base().inspect(|seen| seen.end(made.new));
        }
        Ok(())
    }

    /// Before HEAD is detached: a commit that perhaps nothing else keeps gets a ref where collectors look.
    fn hold_head(&self, head: &Head, made: &LogEntry) -> Result<()> {
        let refs = &self.store.refs;
        let (Some(name), Head::Detached(id)) = (&refs.worktree, head) else {
            return Ok(());
        };
        loop {
            let found = refs.get(name)?;
            if found == Some(*id) {
                return Ok(());
            }
            match self.swap_ref(name, &LogEntry { old: found, new: Some(*id), ..made.clone() }) {
                Err(RepoError::Conflict { .. }) => {}
                done => return done,
            }
        }
    }

    /// After it: the move is logged, and the ref that kept a detached HEAD before is deleted (its log is kept).
    fn head_moved(&self, head: &Head, made: &LogEntry) {
        let refs = &self.store.refs;
        refs.log_head(made);
        if made.old != made.new {
            refs.work_tree_base().inspect(|seen| seen.end(made.new));
        }
        if let (Some(name), Head::Branch(_)) = (&refs.worktree, head)
            && let Ok(Some(id)) = refs.get(name)
        {
            // A ref that stays keeps more than needed, which is harmless.
            let _ = self.swap_ref(name, &LogEntry { old: Some(id), new: None, ..made.clone() });
        }
    }

    /// No ref may point at an object that is not there.
    fn require(&self, object: Option<Id>) -> Result<()> {
        let Some(id) = object else { return Ok(()) };
        if self.store.odb.locate(&id)?.is_none() {
            // Of one that a collector has taken since it was looked up the writer is told that, and begins anew.
            self.held.revalidate()?;
            return Err(RepoError::not_found(Missing::Object, id));
        }
        self.pin([id])
    }
}
