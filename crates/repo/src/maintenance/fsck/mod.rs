//! Fsck: the integrity check of everything stored.

mod closure;
mod decode;
mod packs;
mod trace;

pub use closure::{ClosureReport, check_version};
pub use decode::check as sound;
pub use packs::intact;

use crate::{
    config::is_partial,
    notes::notes,
    pruned,
    pruned::{Pruned, may_stand},
    repo::Repo,
};
use mdl_objects::{Id, Kind};
use mdl_store::{
    ErrorKind, Progress, RepoError, Result,
    object_db::{unreadable, unreadable::Unreadable},
    pack::Record,
    progress::go_on,
    reachability::{Catalog, Root, Slot, roots},
    refs::{COMMITTED, NOTES, REMOTES},
};
use serde::{Serialize, Serializer};
use std::collections::{HashMap, HashSet};
use trace::Trace;

/// Names the operation in `Stopped` errors.
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
    /// Of a partial repository: objects that versions name and that are not here, since they were not fetched.
    pub not_fetched: u64,
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
    /// Places where it shows (the first 10,000). Empty: none; everything that a ref reaches is whole.
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
    Problem { what: what.into(), reason: reason.to_string(), affected: Vec::new() }
}

/// A copy of an object that is damaged, or could not be read just now.
#[derive(Clone)]
pub struct Bad {
    pub slot: Slot,
    pub reason: String,
    /// Whether what is stored is wrong. An I/O error says nothing of the kind: the next read may succeed.
    pub is_damage: bool,
}

impl Bad {
    fn new(slot: Slot, e: &RepoError) -> Bad {
        Bad { slot, reason: e.to_string(), is_damage: e.kind() == ErrorKind::Corrupt }
    }
}

/// Checks what is stored. `quick`: every pack's trailer and footer, the checksum of every stored payload, and that
/// refs make sense. Otherwise also decodes and hashes every object, and follows every reference from the refs, HEAD
/// and the reflog. Damage is reported, not an error, and does not end the check; copies that cannot be read are
/// remembered, and stored again by the next commit that has their content.
///
/// # Errors
/// The packs or refs cannot be listed; `Stopped`.
pub fn fsck(repo: &Repo, quick: bool, progress: &dyn Progress) -> Result<FsckReport> {
    let storage = repo.storage();
    // Collectors stay out (a storage that cannot be locked cannot be collected either). Roots come first: whatever
    // they reach is in a pack that is listed afterwards.
    let _guard = storage.lock_shared().ok();
    let roots = roots(repo.refs(), Some(i64::MIN))?;
    let catalog = Catalog::read(storage, is_partial(storage), |_| ())?;
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
    // Copies skipped because the check was stopped are not known to be sound.
    go_on(progress, WHAT)?;
    problems.extend(torn);
    if !quick {
        progress.begin("decoding objects", logical(&catalog));
        let damaged: HashSet<Slot> = bad.iter().map(|b| b.slot).collect();
        let all = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p));
        let sound = all.filter(|s| !damaged.contains(s)).collect();
        bad.extend(decode::check(&catalog, repo.odb(), sound, progress));
        progress.end();
        go_on(progress, WHAT)?;
    }
    let by_object = blame(&catalog, &bad, &mut problems);
    let mut list = damaged(&catalog, &bad);
    list.extend(still_unreadable(repo, &catalog, &bad, quick, progress));
    go_on(progress, WHAT)?;
    // A repository that cannot be written to can still be checked.
    let _ = unreadable::write(storage, &list);
    let mut not_fetched = 0;
    if !quick || !problems.is_empty() {
        progress.begin("following references", 0);
        let pruned = pruned::pruned(repo).unwrap_or_else(|e| {
            problems.push(problem("pruned".to_owned(), e));
            Pruned::default()
        });
        problems.extend(foreign_stand_ins(repo, &pruned));
        // Contents of a pruned version that a collection deleted are no damage; as long as it deleted none, all
        // must be there.
        let gone =
            pruned::pruned_contents(repo, &catalog, &roots.all, &pruned, i64::MIN, &HashSet::new()).unwrap_or_default();
        let mut trace = Trace::new(&catalog, repo.odb(), by_object, unreadable, &mut problems, progress);
        trace.gone = gone;
        // Objects that a remote was seen to have come first: they need not be here.
        let (noted, others): (Vec<&Root>, Vec<&Root>) = roots.all.iter().partition(|r| r.name.starts_with(REMOTES));
        noted.into_iter().for_each(|r| trace.root(r));
        if catalog.partial {
            trace.made_here = made_here(repo);
        }
        others.into_iter().for_each(|r| trace.root(r));
        trace.own();
        not_fetched = trace.not_fetched.len() as u64;
        progress.end();
        // What is missing of notes was found above; this is of notes that make no sense.
        if let Err(e @ RepoError::Corrupt { .. }) = notes(repo) {
            problems.push(problem(NOTES.to_owned(), e));
        }
        go_on(progress, WHAT)?;
    }
    Ok(FsckReport {
        packs: (catalog.packs.len() + catalog.damaged.len()) as u64,
        objects: catalog.count() as u64,
        bytes: catalog.bytes(),
        not_fetched,
        problems,
    })
}

/// Marks whose tree is neither the approximation of its version nor a part of its files: what readers pass over.
fn foreign_stand_ins(repo: &Repo, pruned: &Pruned) -> Vec<Problem> {
    let mut out = Vec::new();
    for (id, mark) in pruned.iter_stand_ins() {
        // Trees that are not here, or damaged, are found where they are needed.
        let Some(tree) = mark.stand_in.filter(|tree| repo.odb().has(tree).is_ok_and(|is_there| is_there)) else {
            continue;
        };
        let Ok(commit) = repo.odb().commit(id) else { continue };
        if repo.odb().files(&tree).is_ok() && !may_stand(repo.odb(), &commit, mark).is_ok_and(|may| may) {
            let why =
                format!("it names tree {} in place of version {}, which is no part of it", tree.short(), id.short());
            out.push(problem("the record of pruned versions (file `pruned`)".to_owned(), why));
        }
    }
    out
}

/// Commits that were made in this repository, as far as its logs know.
fn made_here(repo: &Repo) -> HashSet<Id> {
    let names = repo.refs().logged().unwrap_or_default();
    let logs = names.iter().filter_map(|name| repo.refs().reflog(name).ok());
    let made = logs.flatten().filter(|e| e.message.starts_with(COMMITTED));
    made.filter_map(|e| e.new).collect()
}

/// Of the copies that an earlier check could not read those that this one has not read well either. A quick check
/// decodes nothing else.
fn still_unreadable(repo: &Repo, catalog: &Catalog, bad: &[Bad], quick: bool, progress: &dyn Progress) -> Unreadable {
    let all = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p));
    let earlier: Vec<Slot> = all.filter(|s| catalog.is_unreadable(*s)).collect();
    let mut unread = unread(catalog, bad);
    if quick && !earlier.is_empty() {
        let not_read: HashSet<Slot> = bad.iter().map(|b| b.slot).collect();
        let mut wanted = catalog.with_chains(&earlier);
        wanted.retain(|s| !not_read.contains(s));
        unread.extend(self::unread(catalog, &decode::check(catalog, repo.odb(), wanted, progress)));
    }
    let still = earlier.into_iter().filter(|s| unread.contains(s));
    still.map(|s| catalog.name(s)).collect()
}

/// Copies that are damaged, and those that cannot be read for it.
fn damaged(catalog: &Catalog, bad: &[Bad]) -> Unreadable {
    let damage: Vec<Bad> = bad.iter().filter(|b| b.is_damage).cloned().collect();
    unread(catalog, &damage).into_iter().map(|s| catalog.name(s)).collect()
}

/// These copies, and those that cannot be read for them.
fn unread(catalog: &Catalog, bad: &[Bad]) -> HashSet<Slot> {
    let above = blame(catalog, bad, &mut Vec::new());
    let above = above.into_keys().map(|n| catalog.best(n));
    bad.iter().map(|b| b.slot).chain(above).collect()
}

fn logical(catalog: &Catalog) -> u64 {
    let slots = (0..catalog.packs.len()).flat_map(|p| catalog.slots(p));
    slots.map(|s| catalog.record(s).logical).fold(0, u64::saturating_add)
}

/// One problem for each damaged copy; returns which objects cannot be read for it: the object, unless readers take
/// another copy, and every tensor with it in its chain.
fn blame(catalog: &Catalog, bad: &[Bad], problems: &mut Vec<Problem>) -> HashMap<u32, Vec<usize>> {
    // By the copy that a reader takes for their delta base.
    let mut dependents: HashMap<Slot, Vec<Slot>> = HashMap::new();
    if !bad.is_empty() {
        for best in (0..catalog.count() as u32).map(|n| catalog.best(n)) {
            let record = catalog.record(best);
            for below in record.bases().filter_map(|b| catalog.find(&b)) {
                let taken = catalog.below(below, record.depth).unwrap_or(catalog.best(below));
                dependents.entry(taken).or_default().push(best);
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
        let mut stack = if taken { vec![best] } else { Vec::new() };
        stack.extend(catalog.leaned_on(n).filter(|s| *s == b.slot));
        let mut seen = HashSet::new();
        while let Some(slot) = stack.pop() {
            if seen.insert(slot) {
                let n = catalog.number_of(slot);
                if slot == catalog.best(n) {
                    out.entry(n).or_default().push(index);
                }
                stack.extend(dependents.get(&slot).into_iter().flatten());
            }
        }
    }
    out
}

fn name(record: &Record) -> String {
    format!("{} {}", record.kind, record.id.short())
}

/// Kinds of objects that refer to others.
fn is_node(kind: Kind) -> bool {
    !matches!(kind, Kind::Blob | Kind::Tensor)
}
