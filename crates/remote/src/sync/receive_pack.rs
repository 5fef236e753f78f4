//! Receives packs from other repositories: each object's stored bytes are checked, each is decoded and hashed, and only
//! then does any of it count.
//!
//! What is here already is not stored again. A new tensor's depth (its number of deltas to a chain root) is counted
//! anew: the other side's chains differ from those here. New objects can only stand on new ones or on those that were
//! here before, so chains still end.

use crate::sync::{
    WHAT,
    quarantine::{Overlay, PendingPack},
};
use mdl_objects::{Id, Kind};
use mdl_repo::{
    Repo, check_path,
    maintenance::{encode_anew, intact, sound},
};
use mdl_store::{
    Progress, RepoError, Result,
    object_db::Odb,
    pack::{NO_MAGIC, Pack, PackId, Record, encode_tail},
    progress::go_on,
    reachability::{Catalog, Slot},
    transaction::WriteTransaction,
    write::MOST_PLACES,
};
use std::{
    collections::{HashMap, HashSet},
    fs,
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

/// The greatest depth (number of deltas to the chain root) that a record can state.
const DEEPEST: u8 = 250;

/// A received pack, complete, in a file that may be moved.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its name.
    pub id: PackId,
    /// Where it is.
    pub path: PathBuf,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenIn {
    /// Packs.
    pub packs: u64,
    /// Objects that were not here before.
    pub objects: u64,
    /// Their encoded bytes.
    pub bytes: u64,
}

/// A pack under examination, with what is new in it.
struct Fresh {
    path: PathBuf,
    payload_end: u64,
    records: Vec<Record>,
}

/// Checks received packs and stores what is new in them. The files are gone afterwards; after an error they are as
/// they were, or stored.
///
/// `pushed` is set for packs that a client pushes, with the most bytes that they may decode to: a short pack may decode
/// to any number. New directories in these that hold names which must not get onto a disk are refused, too, so that no
/// checkout meets them.
///
/// # Errors
/// A pack that is damaged, an object that is not what its id says, a delta whose base is in none of them and not
/// here: then nothing was stored. `Overtaken` by a collection: ask again. An I/O error; `Stopped`.
pub fn receive_pack(repo: &Repo, arrived: &[Arrived], pushed: Option<u64>, progress: &dyn Progress) -> Result<TakenIn> {
    // What is relied on as a base must not be collected meanwhile.
    let transaction = WriteTransaction::begin(repo)?;
    let fresh = fresh(repo, arrived)?;
    let lengths = fresh.iter().flat_map(|f| &f.records).map(|r| r.logical);
    let logical = lengths.fold(0, u64::saturating_add);
    if let Some(most) = pushed.filter(|most| logical > *most) {
        let message = format!("what came would be {logical} bytes decoded, more than {most}");
        return Err(RepoError::user(message, "send fewer objects at once"));
    }
    let records = fresh.iter().flat_map(|f| &f.records);
    transaction.pin(records.flat_map(Record::bases).collect::<HashSet<Id>>())?;
    let fresh = in_order(settle_depths(repo.odb(), fresh)?)?;
    let checked = check(repo, &fresh, pushed.is_some(), progress)?;
    go_on(progress, WHAT)?;
    let mut out = TakenIn::default();
    stand_in(repo, &transaction, &checked, &fresh, progress)?;
    for f in &fresh {
        if f.records.is_empty() {
            let _ = fs::remove_file(&f.path);
            continue;
        }
        transaction.adopt(&f.path, &f.records, f.payload_end)?;
        out.packs += 1;
        out.objects += f.records.len() as u64;
        out.bytes += f.records.iter().map(|r| r.len).sum::<u64>();
    }
    Ok(out)
}

/// Reads the footers; leaves out what is here already.
fn fresh(repo: &Repo, arrived: &[Arrived]) -> Result<Vec<Fresh>> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for a in arrived {
        let size = fs::metadata(&a.path).map_err(RepoError::io(format!("cannot read {}", a.path.display())))?;
        let pack = PendingPack::new(&a.path, size.len(), Vec::new())?;
        let overlay = Overlay::new(repo.shared_storage(), [(a.id, pack)]);
        let pack = Pack::open(&overlay, a.id)?;
        let bad = |why| RepoError::corrupt(format!("pack {}, as it arrived,", a.id), why);
        if !pack.has_magic(&overlay)? {
            return Err(bad(NO_MAGIC));
        }
        if pack.has_overlaps() {
            return Err(bad("its payloads overlap"));
        }
        let mut records = Vec::new();
        for r in pack.records() {
            if seen.insert(r.id) && !repo.odb().contains(&r.id)? {
                records.push(r.clone());
            }
        }
        out.push(Fresh { path: a.path.clone(), payload_end: pack.payload_end(), records });
    }
    Ok(out)
}

/// Checks the stored bytes of everything new, then what they decode to.
/// Returns all objects, those that arrived among them.
fn check(repo: &Repo, fresh: &[Fresh], pushed: bool, progress: &dyn Progress) -> Result<Odb> {
    let mut pending = Vec::new();
    for f in fresh.iter().filter(|f| !f.records.is_empty()) {
        let (id, tail) = encode_tail(&f.records, f.payload_end);
        pending.push((id, PendingPack::new(&f.path, f.payload_end, tail)?));
    }
    let names: Vec<PackId> = pending.iter().map(|(id, _)| *id).collect();
    let overlay: Arc<Overlay> = Arc::new(Overlay::new(repo.shared_storage(), pending));
    let mut packs = names.iter().map(|id| Pack::open(&*overlay, *id).map(Arc::new)).collect::<Result<Vec<_>>>()?;
    packs.extend(packs_below(repo, fresh)?);
    let catalog = Catalog::from_packs(repo.storage(), packs.into_iter().map(|p| (p, SystemTime::now())));
    let new: Vec<Slot> = (0..names.len()).flat_map(|p| catalog.slots(p)).collect();
    let bytes = new.iter().map(|s| catalog.record(*s).len).sum();
    progress.begin("checking what arrived", bytes);
    let torn = intact(&catalog, &*overlay, new.clone(), progress);
    progress.end();
    go_on(progress, WHAT)?;
    refuse(torn.first().map(|b| (catalog.record(b.slot), &b.reason)))?;
    let all = catalog.with_chains(&new);
    let logical = all.iter().map(|s| catalog.record(*s).logical).fold(0, u64::saturating_add);
    progress.begin("decoding what arrived", logical);
    let odb = Odb::new(overlay, repo.odb().shared_engine(), None);
    let wrong = sound(&catalog, &odb, all, progress);
    progress.end();
    go_on(progress, WHAT)?;
    refuse(wrong.first().map(|b| (catalog.record(b.slot), &b.reason)))?;
    if pushed {
        refuse_unsafe(&odb, new.iter().map(|s| catalog.record(*s)))?;
    }
    Ok(odb)
}

/// Stores tensors without a base whose copies here cannot be read, and that arrived deeper in a chain than those
/// are: deltas here on them state a depth no greater than that.
fn stand_in(
    repo: &Repo,
    transaction: &WriteTransaction<'_>,
    all: &Odb,
    fresh: &[Fresh],
    progress: &dyn Progress,
) -> Result<()> {
    // They stand on nothing.
    let mut pack = transaction.pack([])?;
    let arrived = fresh.iter().flat_map(|f| &f.records);
    for record in arrived.filter(|r| r.kind == Kind::Tensor && r.depth > 0) {
        if repo.odb().has_unreadable_copy(&record.id)? {
            encode_anew(all, record.id, None, &mut pack, progress)?;
        }
    }
    transaction.publish(pack).map(drop)
}

/// Packs with the delta bases of new tensors, and those bases.
fn packs_below(repo: &Repo, fresh: &[Fresh]) -> Result<Vec<Arc<Pack>>> {
    let new: HashSet<Id> = fresh.iter().flat_map(|f| &f.records).map(|r| r.id).collect();
    let records = fresh.iter().flat_map(|f| &f.records);
    let mut stack: Vec<Id> = records.flat_map(Record::bases).filter(|id| !new.contains(id)).collect();
    let mut seen = HashSet::new();
    let mut packs: HashMap<PackId, Arc<Pack>> = HashMap::new();
    while let Some(id) = stack.pop() {
        if seen.insert(id) {
            let at = repo.odb().find(&id, Kind::Tensor)?;
            stack.extend(at.record.bases());
            packs.insert(at.pack.id, at.pack);
        }
    }
    Ok(packs.into_values().collect())
}

fn refuse(bad: Option<(&Record, &String)>) -> Result<()> {
    let Some((record, reason)) = bad else { return Ok(()) };
    Err(RepoError::corrupt(format!("{} {}, as it arrived,", record.kind, record.id.short()), reason))
}

/// Refuses directories with names that must not get onto a disk.
fn refuse_unsafe<'a>(odb: &Odb, records: impl Iterator<Item = &'a Record>) -> Result<()> {
    for record in records.filter(|r| r.kind == Kind::Tree) {
        for entry in odb.tree(&record.id)?.entries {
            check_path(&entry.name)?;
        }
    }
    Ok(())
}

/// Depths of new tensors over what is new and what is here: those that the sender states where they can be places of
/// skip deltas, so that a history goes on here as it does there; else they are counted anew.
fn settle_depths(odb: &Odb, mut fresh: Vec<Fresh>) -> Result<Vec<Fresh>> {
    let bases: HashMap<Id, Vec<Id>> =
        fresh.iter().flat_map(|f| &f.records).map(|r| (r.id, r.bases().collect())).collect();
    let stated: HashMap<Id, u8> = fresh.iter().flat_map(|f| &f.records).map(|r| (r.id, r.depth)).collect();
    let mut depths: HashMap<Id, u8> = HashMap::new();
    let mut entered: HashSet<Id> = HashSet::new();
    for start in bases.keys() {
        // Twice on the stack: first to visit its bases, then to count.
        let mut stack = vec![*start];
        while let Some(id) = stack.last().copied() {
            if depths.contains_key(&id) {
                stack.pop();
                continue;
            }
            let Some(below) = bases.get(&id) else {
                depths.insert(id, odb.find(&id, Kind::Tensor)?.record.depth);
                continue;
            };
            if entered.insert(id) {
                stack.extend(below.iter().filter(|b| !depths.contains_key(*b)));
                continue;
            }
            let least = below.iter().map(|b| depths.get(b).copied()).collect::<Option<Vec<u8>>>();
            let circle = || RepoError::corrupt(format!("tensor {}", id.short()), "it is a difference to itself");
            let deepest = least.ok_or_else(circle)?.into_iter().max();
            let is_place = |below: u8, stated: u8| below < stated && stated <= MOST_PLACES;
            let depth = match (deepest, stated.get(&id)) {
                (None, _) => 0,
                (Some(below), Some(&stated)) if is_place(below, stated) => stated,
                (Some(below), _) => deeper(&id, below)?,
            };
            depths.insert(id, depth);
        }
    }
    for record in fresh.iter_mut().flat_map(|f| &mut f.records) {
        record.depth = depths.get(&record.id).copied().unwrap_or(record.depth);
    }
    Ok(fresh)
}

/// Packs in such an order that a tensor's bases are in the same one or in one before: a kill between two leaves no
/// tensor without its base.
fn in_order(fresh: Vec<Fresh>) -> Result<Vec<Fresh>> {
    let numbered = || fresh.iter().enumerate();
    let homes: HashMap<Id, usize> = numbered().flat_map(|(p, f)| f.records.iter().map(move |r| (r.id, p))).collect();
    let mut needs: Vec<HashSet<usize>> = Vec::with_capacity(fresh.len());
    for (p, f) in numbered() {
        let below = f.records.iter().flat_map(Record::bases).filter_map(|id| homes.get(&id).copied());
        needs.push(below.filter(|other| *other != p).collect());
    }
    let (mut order, mut placed) = (Vec::new(), HashSet::new());
    while order.len() < fresh.len() {
        let ready = (0..fresh.len()).find(|p| !placed.contains(p) && needs[*p].is_subset(&placed));
        let circle = || {
            let message = "what came is in packs each of which needs the other first";
            RepoError::user(message, "send what others are differences to in packs of its own")
        };
        let next = ready.ok_or_else(circle)?;
        placed.insert(next);
        order.push(next);
    }
    let mut slots: Vec<Option<Fresh>> = fresh.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|p| slots[p].take()).collect())
}

fn deeper(id: &Id, below: u8) -> Result<u8> {
    if below >= DEEPEST {
        let message = format!("tensor {} would be too many deltas away from one stored whole", id.short());
        return Err(RepoError::user(message, "compact this repository, then try again"));
    }
    Ok(below + 1)
}
