//! The check of everything stored. Neighbours: `packs` reads every byte, `decode` every object, `trace` finds what is missing
//! and who is affected. It must not repair anything; it
//! leaves a list of what cannot be read, so that the next commit of the same content stores it again.

mod decode;
mod packs;
mod trace;

pub(crate) use decode::check as sound;
pub(crate) use packs::intact;

use crate::{
    Result,
    odb::unreadable::{self, Unreadable},
    pack::Record,
    progress::{Progress, go_on},
    reach::{Catalog, Slot},
    repo::Repo,
    retain::{self, Pruned},
};
use mdl_objects::{Id, Kind};
use serde::{Serialize, Serializer};
use std::collections::{HashMap, HashSet};
use trace::Trace;

/// What is stopped, if it is.
const WHAT: &str = "the check";

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FsckReport {
    /// Packs that were looked at.
    pub packs: u64,
    /// Distinct objects in them.
    pub objects: u64,
    /// Bytes of the packs.
    pub bytes: u64,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The damaged or missing thing: a pack, an object, a ref.
    pub what: String,
    /// What is wrong with it.
    pub reason: String,
    /// Where a user meets it (the first 10,000 places). Empty: nowhere; everything that a ref reaches is whole.
    pub affected: Vec<Affected>,
}

/// A place where damage shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Affected {
    /// The commit (or annotated tag).
    #[serde(serialize_with = "hex")]
    pub commit: Id,
    /// File or directory in it; empty if the commit itself is affected.
    pub path: String,
    /// Tensor in the file; none if the file's other bytes are affected.
    pub tensor: Option<String>,
}

pub(crate) fn hex<S: Serializer>(id: &Id, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(&id.to_hex())
}

fn problem(what: impl Into<String>, reason: impl ToString) -> Problem {
    Problem {
        what: what.into(),
        reason: reason.to_string(),
        affected: Vec::new(),
    }
}

/// A copy of an object that is damaged.
pub(crate) struct Bad {
    pub slot: Slot,
    pub reason: String,
}

impl Repo {
    /// Checks what is stored. `quick`: every pack's trailer and footer, the checksum of every stored payload, and that refs
    /// make sense. Otherwise also decodes and hashes every object, and follows every reference from the refs, HEAD and the
    /// reflog. Damage is reported, not an error, and does not end the check; copies that cannot be read are remembered, and
    /// stored again by the next commit that has their content.
    ///
    /// # Errors
    /// The packs or refs cannot be listed; `Stopped`.
    pub fn fsck(&self, quick: bool, progress: &dyn Progress) -> Result<FsckReport> {
        let storage = &*self.storage;
        // Collectors stay out (a medium that cannot be locked cannot be collected either). Roots come first: whatever they
        // reach is in a pack that is listed afterwards.
        let _guard = storage.lock_shared().ok();
        let roots = self.roots(Some(i64::MIN))?;
        let catalog = Catalog::read(storage, |_| ())?;
        let mut problems: Vec<Problem> = Vec::new();
        for (key, e) in &catalog.damaged {
            problems.push(problem(key.clone(), e));
        }
        let unreadable: Vec<usize> = (0..problems.len()).collect();
        let stray = |key: &String| problem(key.clone(), "its name is no pack's");
        problems.extend(catalog.strays.iter().map(stray));
        problems.extend(roots.damaged.iter().map(|(name, e)| problem(name.clone(), e)));
        progress.begin("checking stored bytes", catalog.bytes());
        let (torn, mut bad) = packs::check(&catalog, storage, progress);
        progress.end();
        // What was passed over for being stopped is not known to be sound.
        go_on(progress, WHAT)?;
        problems.extend(torn);
        if !quick {
            progress.begin("decoding objects", logical(&catalog));
            let damaged: HashSet<Slot> = bad.iter().map(|b| b.slot).collect();
            let all = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p));
            let sound = all.filter(|s| !damaged.contains(s)).collect();
            bad.extend(decode::check(&catalog, &self.odb, sound, progress));
            progress.end();
            go_on(progress, WHAT)?;
        }
        let by_object = blame(&catalog, &bad, &mut problems);
        let copies = bad
            .iter()
            .map(|b| b.slot)
            .chain(by_object.keys().map(|&n| catalog.best(n)));
        let mut list: Unreadable = copies
            .map(|s| (catalog.packs[s.pack as usize].pack.id, catalog.record(s).id))
            .collect();
        if quick {
            list.append(&mut unreadable::read(storage));
        }
        // A repository that cannot be written to can still be checked.
        let _ = unreadable::write(storage, &list);
        if !quick || !problems.is_empty() {
            progress.begin("following references", 0);
            let pruned = self.pruned().unwrap_or_else(|e| {
                problems.push(problem("pruned".to_owned(), e));
                Pruned::default()
            });
            // What a collection took of a pruned version is no damage; as long as it took nothing, all must be whole.
            let gone = retain::gone(&catalog, storage, &roots.all, &pruned, i64::MIN).unwrap_or_default();
            let mut trace = Trace::new(&catalog, &self.odb, by_object, unreadable, &mut problems, progress);
            trace.gone = gone;
            roots.all.iter().for_each(|r| trace.root(r));
            progress.end();
            go_on(progress, WHAT)?;
        }
        Ok(FsckReport {
            packs: (catalog.packs.len() + catalog.damaged.len()) as u64,
            objects: catalog.len() as u64,
            bytes: catalog.bytes(),
            problems,
        })
    }
}

fn logical(catalog: &Catalog) -> u64 {
    let slots = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p));
    slots.map(|s| catalog.record(s).logical).fold(0, u64::saturating_add)
}

/// One problem for each damaged copy; returns which objects cannot be read for it: the object, unless readers take another
/// copy, and every tensor with it in its chain.
fn blame(catalog: &Catalog, bad: &[Bad], problems: &mut Vec<Problem>) -> HashMap<u32, Vec<usize>> {
    let mut dependents: HashMap<u32, Vec<u32>> = HashMap::new();
    if !bad.is_empty() {
        for n in 0..catalog.len() as u32 {
            for below in catalog.best_record(n).relatives().filter_map(|b| catalog.find(&b)) {
                dependents.entry(below).or_default().push(n);
            }
        }
    }
    let mut out: HashMap<u32, Vec<usize>> = HashMap::new();
    for b in bad {
        let record = catalog.record(b.slot);
        let pack = catalog.packs[b.slot.pack as usize].pack.id;
        let index = problems.len();
        problems.push(problem(format!("{} in pack {pack}", name(record)), &b.reason));
        let n = catalog.number_of(b.slot);
        let best = catalog.best(n);
        let avoided = catalog.is_unreadable(b.slot) && !bad.iter().any(|b| b.slot == best);
        let taken = !avoided && record.depth <= catalog.best_record(n).depth;
        let (mut stack, mut seen) = (if taken { vec![n] } else { Vec::new() }, HashSet::new());
        while let Some(n) = stack.pop() {
            if seen.insert(n) {
                out.entry(n).or_default().push(index);
                stack.extend(dependents.get(&n).into_iter().flatten());
            }
        }
    }
    out
}

fn name(record: &Record) -> String {
    format!("{} {}", record.kind, record.id.short())
}

/// Kinds that hold references.
fn is_node(kind: Kind) -> bool {
    !matches!(kind, Kind::Blob | Kind::Tensor)
}
