//! The object database: finds an object in whichever pack has it and gives back its verified content. Neighbours: packs
//! and the index below; everything else above. It must not know refs or the work tree.

use crate::{
    RepoError, Result,
    error::bad_object,
    index::Index,
    pack::{NewObject, PACK_DIR, Pack, PackId, PackWriter, Record},
    storage::Storage,
};
use mdl_codec::Engine;
use mdl_objects::{Commit, Id, Kind, Manifest, Tag, Tree};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Largest object that is held in memory whole (everything but tensors). Writers cut blobs far below this.
pub(crate) const MAX_WHOLE: u64 = 1 << 30;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 3;

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
}

#[derive(Debug, Default)]
struct State {
    /// Every pack known to exist, with its footer if it was needed.
    packs: BTreeMap<PackId, Option<Arc<Pack>>>,
    listed: bool,
    index: IndexState,
    /// Every object of every pack; built when there is no index to ask.
    all: Option<HashMap<Id, (PackId, u8)>>,
}

#[derive(Debug, Default)]
enum IndexState {
    #[default]
    Closed,
    Open(Index),
    /// Held by somebody else, or broken: do without until `release`.
    Absent,
}

impl Odb {
    /// Objects in `storage`, encoded and decoded by `engine`; `index_dir` is where the disposable index may live.
    pub fn new(storage: Arc<dyn Storage>, engine: Arc<dyn Engine>, index_dir: Option<PathBuf>) -> Odb {
        Odb {
            storage,
            engine,
            index_dir,
            state: Mutex::default(),
        }
    }

    /// The storage below.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other processes have the index. It is opened again when needed.
    pub fn release_index(&self) {
        self.lock().index = IndexState::Closed;
    }

    /// Runs `f` with the index, if it can be had.
    pub(crate) fn with_index<T>(&self, f: impl FnOnce(&Index) -> Option<T>) -> Option<T> {
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

    /// As `refresh`, after packs were replaced: the index is brought up to date too when it is next needed.
    pub fn renew(&self) {
        self.release_index();
        self.refresh();
    }

    /// Runs `f`, and once more if a pack it read has been replaced since packs were listed.
    pub(crate) fn again<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        match f() {
            Err(RepoError::NotFound {
                what: "stored file" | "pack",
                ..
            }) => {
                self.renew();
                f()
            }
            done => done,
        }
    }

    /// Names of all packs.
    ///
    /// # Errors
    /// The medium failed.
    pub fn packs(&self) -> Result<Vec<PackId>> {
        let mut state = self.lock();
        self.list(&mut state)?;
        Ok(state.packs.keys().copied().collect())
    }

    /// Opens a pack.
    ///
    /// # Errors
    /// It is gone or damaged; the medium failed.
    pub fn pack(&self, id: PackId) -> Result<Arc<Pack>> {
        self.load(&mut self.lock(), id)
    }

    fn list(&self, state: &mut State) -> Result<()> {
        if state.listed {
            return Ok(());
        }
        let listed = self.storage.list(PACK_DIR)?;
        let mut old = std::mem::take(&mut state.packs);
        for id in listed.iter().filter_map(|s| PackId::from_key(&s.key)) {
            state.packs.insert(id, old.remove(&id).flatten());
        }
        state.listed = true;
        Ok(())
    }

    fn load(&self, state: &mut State, id: PackId) -> Result<Arc<Pack>> {
        if let Some(Some(pack)) = state.packs.get(&id) {
            return Ok(pack.clone());
        }
        let pack = Arc::new(Pack::open(&*self.storage, id)?);
        state.packs.insert(id, Some(pack.clone()));
        Ok(pack)
    }

    /// Opens the index and brings it up to the packs that exist.
    fn open_index(&self, state: &mut State) -> Result<()> {
        self.list(state)?;
        let Some(dir) = self.index_dir.as_deref() else {
            return Ok(());
        };
        if !matches!(state.index, IndexState::Closed) {
            return Ok(());
        }
        state.index = match Index::open(dir) {
            Some(index) if self.sync_index(state, &index)? => IndexState::Open(index),
            _ => IndexState::Absent,
        };
        Ok(())
    }

    /// Indexes packs the index has not seen; starts afresh where it knows packs that are gone.
    fn sync_index(&self, state: &mut State, index: &Index) -> Result<bool> {
        let Some(mut known) = index.packs() else {
            return Ok(false);
        };
        if known.iter().any(|p| !state.packs.contains_key(p)) {
            if index.clear_packs().is_none() {
                return Ok(false);
            }
            known.clear();
        }
        let missing: Vec<PackId> = state.packs.keys().filter(|p| !known.contains(p)).copied().collect();
        for id in missing {
            // A damaged pack must not make the rest unreachable; reading one of its objects will say so.
            let Ok(pack) = self.load(state, id) else { continue };
            if index.add_pack(&pack).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where an object is: of several copies the one with the fewest deltas to follow.
    ///
    /// # Errors
    /// The medium failed. An object in a damaged pack counts as absent.
    pub fn locate(&self, id: &Id) -> Result<Option<Location>> {
        let mut state = self.lock();
        if let Some(found) = self.locate_once(&mut state, id)? {
            return Ok(Some(found));
        }
        // Another process may have added or compacted packs since they were listed.
        let before = state.packs.len();
        state.listed = false;
        self.list(&mut state)?;
        if state.packs.len() == before && matches!(state.index, IndexState::Open(_)) && state.all.is_none() {
            return Ok(None);
        }
        if let IndexState::Open(index) = std::mem::take(&mut state.index)
            && self.sync_index(&mut state, &index)?
        {
            state.index = IndexState::Open(index);
        }
        state.all = None;
        self.locate_once(&mut state, id)
    }

    fn locate_once(&self, state: &mut State, id: &Id) -> Result<Option<Location>> {
        self.open_index(state)?;
        if state.all.is_none()
            && let IndexState::Open(index) = &state.index
        {
            match index.find(id) {
                Some(None) => return Ok(None),
                Some(Some(hint)) => {
                    if let Some(found) = self.follow(state, hint.pack, id) {
                        return Ok(Some(found));
                    }
                    // The index lied: believe the packs, and let the next opening build it anew.
                    if let IndexState::Open(index) = std::mem::replace(&mut state.index, IndexState::Absent) {
                        let _ = index.clear_packs();
                    }
                }
                None => state.index = IndexState::Absent,
            }
        }
        let all = match state.all.take() {
            Some(all) => all,
            None => self.read_all(state),
        };
        let hit = all.get(id).copied();
        state.all = Some(all);
        Ok(hit.and_then(|(pack, _)| self.follow(state, pack, id)))
    }

    fn follow(&self, state: &mut State, pack: PackId, id: &Id) -> Option<Location> {
        let pack = self.load(state, pack).ok()?;
        let record = pack.get(id)?.clone();
        Some(Location { pack, record })
    }

    fn read_all(&self, state: &mut State) -> HashMap<Id, (PackId, u8)> {
        let mut all: HashMap<Id, (PackId, u8)> = HashMap::new();
        let ids: Vec<PackId> = state.packs.keys().copied().collect();
        for id in ids {
            let Ok(pack) = self.load(state, id) else { continue };
            for r in pack.records() {
                let slot = all.entry(r.id).or_insert((id, r.depth));
                if r.depth < slot.1 {
                    *slot = (id, r.depth);
                }
            }
        }
        all
    }

    /// Whether the packs known when they were last listed have an object: what a writer asks for every new object.
    ///
    /// # Errors
    /// The medium failed.
    pub fn contains(&self, id: &Id) -> Result<bool> {
        Ok(self.locate_once(&mut self.lock(), id)?.is_some())
    }

    /// Whether the repository has an object.
    ///
    /// # Errors
    /// The medium failed.
    pub fn has(&self, id: &Id) -> Result<bool> {
        Ok(self.locate(id)?.is_some())
    }

    /// Where an object of a kind is.
    ///
    /// # Errors
    /// There is none, or it is of another kind.
    pub fn find(&self, id: &Id, kind: Kind) -> Result<Location> {
        let found = self.locate(id)?.ok_or_else(|| RepoError::not_found(kind.name(), id))?;
        if found.record.kind == kind {
            Ok(found)
        } else {
            Err(RepoError::not_found(
                kind.name(),
                format!("{id} (it is a {})", found.record.kind),
            ))
        }
    }

    /// Canonical bytes of an object that is no tensor, verified against its id.
    ///
    /// # Errors
    /// Absent, damaged, or the medium failed.
    pub fn read(&self, id: &Id, kind: Kind) -> Result<Vec<u8>> {
        self.again(|| self.read_once(id, kind))
    }

    fn read_once(&self, id: &Id, kind: Kind) -> Result<Vec<u8>> {
        let Location { pack, record } = self.find(id, kind)?;
        let what = || format!("{kind} {}", id.short());
        if record.logical > MAX_WHOLE || record.len > MAX_WHOLE {
            return Err(RepoError::corrupt(what(), "larger than any writer makes it"));
        }
        let payload = pack.payload(&*self.storage, &record)?;
        let bytes = unwrap_payload(&payload, record.logical as usize).map_err(|e| RepoError::corrupt(what(), e))?;
        if Id::of(kind, &bytes) != *id {
            return Err(RepoError::corrupt(what(), "its content is not what its id says"));
        }
        Ok(bytes)
    }

    /// A commit. Commits are remembered in the index, so that walking history opens few packs.
    ///
    /// # Errors
    /// Absent, damaged, or the medium failed.
    pub fn commit(&self, id: &Id) -> Result<Commit> {
        let cached = self
            .with_index(|index| index.commit(id))
            .filter(|b| Id::of(Kind::Commit, b) == *id);
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                let bytes = self.read(id, Kind::Commit)?;
                self.with_index(|index| {
                    index.put_commit(id, &bytes);
                    Some(())
                });
                bytes
            }
        };
        Commit::decode(&bytes).map_err(bad_object(id))
    }

    /// A tree.
    ///
    /// # Errors
    /// Absent, damaged, or the medium failed.
    pub fn tree(&self, id: &Id) -> Result<Tree> {
        Tree::decode(&self.read(id, Kind::Tree)?).map_err(bad_object(id))
    }

    /// A manifest.
    ///
    /// # Errors
    /// Absent, damaged, or the medium failed.
    pub fn manifest(&self, id: &Id) -> Result<Manifest> {
        Manifest::decode(&self.read(id, Kind::Manifest)?).map_err(bad_object(id))
    }

    /// An annotated tag.
    ///
    /// # Errors
    /// Absent, damaged, or the medium failed.
    pub fn tag(&self, id: &Id) -> Result<Tag> {
        Tag::decode(&self.read(id, Kind::Tag)?).map_err(bad_object(id))
    }

    /// Ids (of any kind) that begin with these hex digits, at most `limit`.
    ///
    /// # Errors
    /// The medium failed.
    pub fn ids_with_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<(Id, Kind)>> {
        let Some((low, high)) = prefix_range(prefix) else {
            return Ok(Vec::new());
        };
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
        ids.into_iter()
            .filter_map(|id| self.locate(&id).transpose().map(|l| l.map(|l| (id, l.record.kind))))
            .collect()
    }

    /// Tells the database of a pack that was just written.
    ///
    /// # Errors
    /// The pack cannot be opened.
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
    let id = Id::of(kind, content);
    if pack.get(&id).is_none() && !odb.contains(&id)? {
        let object = NewObject {
            id,
            kind,
            depth: 0,
            base: None,
            logical: content.len() as u64,
        };
        let payload = wrap_payload(content);
        pack.add(object, &payload)?;
    }
    Ok(id)
}

/// Encodes an object that is no tensor: a byte that says how, then the bytes, zstd-compressed where that is smaller.
pub(crate) fn wrap_payload(content: &[u8]) -> Vec<u8> {
    let mut out = vec![ZSTD];
    if let Ok(packed) = zstd::bulk::compress(content, ZSTD_LEVEL)
        && packed.len() < content.len()
    {
        out.extend_from_slice(&packed);
    } else {
        out[0] = RAW;
        out.extend_from_slice(content);
    }
    out
}

/// Undoes `wrap_payload`; `logical` is the length the record promises.
pub(crate) fn unwrap_payload(payload: &[u8], logical: usize) -> std::result::Result<Vec<u8>, &'static str> {
    let bytes = match payload.split_first() {
        Some((&RAW, rest)) => rest.to_vec(),
        Some((&ZSTD, rest)) => {
            // The frame's own promise is checked first, so that a lying record earns no memory.
            match zstd::zstd_safe::get_frame_content_size(rest) {
                Ok(Some(n)) if n == logical as u64 => {}
                _ => return Err("its compressed frame has another length"),
            }
            zstd::bulk::decompress(rest, logical).map_err(|_| "its compressed frame is damaged")?
        }
        _ => return Err("unknown payload encoding"),
    };
    if bytes.len() == logical {
        Ok(bytes)
    } else {
        Err("its length is not what its record says")
    }
}
