//! The object database: finds an object in whichever pack has it and gives back its verified content.

mod checksums_ok;
mod digests;
mod index;
mod lookup;
mod promisor;
pub mod references;
mod spare;
mod tree;
pub mod unreadable;

pub(crate) use checksums_ok::ChecksumsOk;
pub use index::Digests;
pub(crate) use index::{Hint, Index, PackSet};
pub use references::{kind_of, references};
pub use tree::Files;
pub(crate) use tree::{MAX_PATHS, Room};

use crate::{
    Missing, RepoError, Result,
    cache::TensorCache,
    error::bad_object,
    pack::{
        NewObject, Pack, PackId, PackWriter, Record,
        payload::{content, wrap},
    },
    storage::Storage,
};
use lookup::{IndexState, State};
use mdl_codec::Engine;
use mdl_codec::locks::Mutex;
use mdl_objects::{Commit, Id, Kind, Manifest, Mode, Tag, Tree};
pub use promisor::Promisor;
use spare::Spare;
use std::{path::PathBuf, sync::Arc};

/// How often packs may be replaced under a reader before it gives up. A pack that is gone for good is not listed again.
const OVERTAKEN: u32 = 8;

/// Where a copy of an object is.
#[derive(Clone, Debug)]
pub struct Location {
    /// The pack.
    pub pack: Arc<Pack>,
    /// The record in it.
    pub record: Record,
}

/// All objects of a repository.
#[derive(Debug)]
pub struct Odb {
    storage: Arc<dyn Storage>,
    engine: Arc<dyn Engine>,
    index_dir: Option<PathBuf>,
    state: Mutex<State>,
    promisor: Option<Arc<dyn Promisor>>,
    /// Whether objects that are not here may be at another repository.
    partial: bool,
    pub(crate) checksums_ok: ChecksumsOk,
    cache: Option<TensorCache>,
    pub(crate) spare: Spare,
}

impl Odb {
    /// Objects in `storage`, encoded and decoded by `engine`; `index_dir` is where the disposable index may live.
    pub fn new(storage: Arc<dyn Storage>, engine: Arc<dyn Engine>, index_dir: Option<PathBuf>) -> Odb {
        Odb {
            storage,
            engine,
            index_dir,
            state: Mutex::default(),
            promisor: None,
            partial: false,
            checksums_ok: ChecksumsOk::default(),
            cache: None,
            spare: Spare::default(),
        }
    }

    /// Keeps decoded tensors in this cache.
    pub fn set_cache(&mut self, cache: TensorCache) {
        self.cache = Some(cache);
    }

    /// The cache of decoded tensors, if there is one.
    pub fn cache(&self) -> Option<&TensorCache> {
        self.cache.as_ref()
    }

    /// The storage below.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The engine, to be shared.
    pub fn shared_engine(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    /// Does without an index for good: in a forked child, where the threads that sled counts on are the parent's.
    pub fn forgo_index(&mut self) {
        self.index_dir = None;
        self.release_index();
    }

    /// Lets other processes have the index. It is opened again when needed.
    pub fn release_index(&self) {
        self.lock().index = IndexState::Closed;
    }

    /// Runs `f` with the index, if it can be opened.
    pub fn with_index<T>(&self, f: impl FnOnce(&Index) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        self.open_index(&mut state).ok()?;
        match &state.index {
            IndexState::Open(index) => f(index),
            _ => None,
        }
    }

    /// Forgets which packs exist, so that the next look-up lists them anew.
    pub fn refresh(&self) {
        let mut state = self.lock();
        state.listed = false;
        state.all = None;
    }

    /// As `refresh`, after packs were replaced: the index is opened anew too when it is next needed.
    pub fn reopen(&self) {
        self.release_index();
        self.refresh();
    }

    /// Runs `f`, and again if a pack that it read has been replaced since packs were listed: several collections may
    /// come and go during a slow read.
    pub fn retry_on_repack<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..OVERTAKEN {
            match f() {
                Err(RepoError::NotFound { what, .. }) if what.is_stored() => self.reopen(),
                done => return done,
            }
        }
        f()
    }

    /// Where an object is: of several copies the one with the fewest deltas to follow. An object in a pack that cannot
    /// be read counts as absent.
    pub fn locate(&self, id: &Id) -> Result<Option<Location>> {
        self.search(&mut self.lock(), id)
    }

    /// As `locate`, but an object that is not there is an error: that of a pack that cannot be read, if there is one.
    pub fn need(&self, id: &Id, what: Missing) -> Result<Location> {
        match self.need_here(id, what) {
            // Of a partial repository: the promisor may fetch it.
            Err(RepoError::NotFound { .. }) if self.fetch_from_promisor(id)? => self.need_here(id, what),
            found => found,
        }
    }

    fn need_here(&self, id: &Id, what: Missing) -> Result<Location> {
        let mut state = self.lock();
        match self.search(&mut state, id)? {
            Some(found) => Ok(found),
            // It may yet exist in a pack that could not be read.
            None => Err(state.failed.as_ref().map_or_else(|| RepoError::not_found(what, id), RepoError::repeat)),
        }
    }

    /// Whether the packs known when they were last listed have an object: what a writer asks for every new object.
    pub fn contains(&self, id: &Id) -> Result<bool> {
        Ok(self.stored(id)?.is_some())
    }

    /// As `contains`, of an object of a kind.
    pub fn contains_kind(&self, id: &Id, kind: Kind) -> Result<bool> {
        Ok(self.stored(id)?.is_some_and(|l| l.record.kind == kind))
    }

    /// Where an object is, if it need not be stored again: a copy that a check could not read, or in a pack that is
    /// doomed, does not count.
    fn stored(&self, id: &Id) -> Result<Option<Location>> {
        let mut state = self.lock();
        let found = match self.look(&mut state, id)? {
            Some(l) if state.doomed.packs.contains_key(&l.pack.id) => self.look_among_kept(&mut state, id),
            found => found,
        };
        Ok(found.filter(|l| !state.unreadable.contains(&(l.pack.id, *id))))
    }

    /// Whether a file is stored with all that it is made of. In a whole repository its manifest says so, since that
    /// is only ever stored after its tensors, in the same pack, and gc keeps them together. In a partial one a
    /// manifest comes without them.
    pub fn contains_file(&self, mode: Mode, id: &Id) -> Result<bool> {
        if !self.contains_kind(id, kind_of(mode))? {
            return Ok(false);
        }
        if !self.partial || mode != Mode::Manifest {
            return Ok(true);
        }
        for (part, _) in self.manifest(id)?.parts() {
            if !self.contains(&part)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a check found copies that cannot be read: then no short cut says what is stored.
    pub fn has_unreadable(&self) -> Result<bool> {
        let mut state = self.lock();
        self.list(&mut state)?;
        Ok(!state.unreadable.is_empty())
    }

    /// Whether the repository has an object.
    pub fn has(&self, id: &Id) -> Result<bool> {
        Ok(self.locate(id)?.is_some())
    }

    /// Where an object of a kind is, as `need`; one of another kind is not found.
    pub fn find(&self, id: &Id, kind: Kind) -> Result<Location> {
        let found = self.need(id, kind.into())?;
        match found.record.kind == kind {
            true => Ok(found),
            false => Err(RepoError::not_found(kind, format!("{id} (it is a {})", found.record.kind))),
        }
    }

    /// Canonical bytes of an object that is no tensor, verified against its id.
    pub fn read(&self, id: &Id, kind: Kind) -> Result<Vec<u8>> {
        self.retry_on_repack(|| {
            let Location { pack, record } = self.find(id, kind)?;
            content(&*self.storage, &pack, &record)
        })
    }

    /// A commit. Commits are remembered in the index, so that walking history opens few packs.
    pub fn commit(&self, id: &Id) -> Result<Commit> {
        let cached = self.with_index(|index| index.commit(id)).filter(|b| Id::from_content(Kind::Commit, b) == *id);
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                let bytes = self.read(id, Kind::Commit)?;
                self.with_index(|index| index.put_commit(id, &bytes));
                bytes
            }
        };
        Commit::decode(&bytes).map_err(bad_object(id))
    }

    /// A tree.
    pub fn tree(&self, id: &Id) -> Result<Tree> {
        Tree::decode(&self.read(id, Kind::Tree)?).map_err(bad_object(id))
    }

    /// A manifest.
    pub fn manifest(&self, id: &Id) -> Result<Manifest> {
        Manifest::decode(&self.read(id, Kind::Manifest)?).map_err(bad_object(id))
    }

    /// An annotated tag.
    pub fn tag(&self, id: &Id) -> Result<Tag> {
        Tag::decode(&self.read(id, Kind::Tag)?).map_err(bad_object(id))
    }

    /// Ids (of any kind) that begin with these hex digits, at most `limit`.
    pub fn ids_with_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<(Id, Kind)>> {
        let Some((low, high)) = prefix_range(prefix) else { return Ok(Vec::new()) };
        let ids = match self.with_index(|index| index.ids_from(&low, &high, limit)) {
            Some(ids) => ids,
            None => {
                let mut state = self.lock();
                self.list(&mut state)?;
                let all = self.read_all(&mut state);
                let (low, high) = (Id::from_bytes(low), Id::from_bytes(high));
                let mut ids: Vec<Id> = all.into_keys().filter(|id| *id >= low && *id <= high).collect();
                ids.sort();
                ids.truncate(limit);
                ids
            }
        };
        ids.into_iter().filter_map(|id| self.locate(&id).transpose().map(|l| l.map(|l| (id, l.record.kind)))).collect()
    }

    /// Tells the database of a pack that was just written.
    pub fn note_pack(&self, id: PackId) -> Result<()> {
        let mut state = self.lock();
        let pack = self.load(&mut state, id)?;
        state.all = None;
        if let IndexState::Open(index) = &state.index
            && index.add_pack(&pack).is_none()
        {
            state.index = IndexState::Absent;
        }
        Ok(())
    }
}

fn prefix_range(prefix: &str) -> Option<([u8; 32], [u8; 32])> {
    if prefix.is_empty() || prefix.len() > 64 || prefix.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let end = |fill: &str| format!("{prefix}{}", fill.repeat(64 - prefix.len())).parse::<Id>().ok();
    Some((*end("0")?.as_bytes(), *end("f")?.as_bytes()))
}

/// Adds an object that is no tensor to a pack, unless the repository or the pack has it.
pub(crate) fn add_object(odb: &Odb, pack: &mut PackWriter, kind: Kind, content: &[u8]) -> Result<Id> {
    let id = Id::from_content(kind, content);
    if pack.get(&id).is_none() && !odb.contains(&id)? {
        let object = NewObject { id, kind, depth: 0, base: None, grandparent: None, logical: content.len() as u64 };
        let payload = wrap(content);
        pack.add(object, &payload)?;
    }
    Ok(id)
}
