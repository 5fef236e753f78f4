//! Shortens delta chains: decides which tensors are encoded anew and does it.
//!
//! A tensor encoded anew has no base, or one further down its own chain, and states more than that one's depth and less
//! than it had. So no cycle can arise, whatever other copies exist (docs/design/0003-maintenance.md). Chains that were
//! not laid out as skip deltas are (docs/design/0012-skip-deltas.md).

use crate::maintenance::marked;
use mdl_codec::Encoded;
use mdl_objects::{Id, Kind, tensor_hasher};
use mdl_store::{
    Progress, RepoError, Result,
    object_db::Odb,
    pack::{NewObject, PackId, PackWriter, TensorHeader},
    progress::go_on,
    reachability::{Catalog, Marks, PrunedContents, Root},
    read::TensorReader,
    refs::HEADS,
    storage::Storage,
    transaction::MaintenanceLock,
    write::{ancestor, chain_len},
};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Longest chain of a tensor of a branch's tip, or of a detached HEAD.
const TIP_DEPTH: u8 = 1;
/// The same for tags and other refs: they may be many, and each tensor encoded anew costs space.
const TAG_DEPTH: u8 = 4;
/// A pack of tensors encoded anew is closed at about this length.
const PACK_BYTES: u64 = 256 << 20;

/// Which tensors to encode anew.
#[derive(Debug, Default)]
pub(super) struct Rebase {
    pub jobs: Vec<Job>,
    pub deepest_before: u64,
    pub deepest_after: u64,
}

/// A tensor to be encoded anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    tensor: u32,
    /// Its new base; none: it is stored without one.
    base: Option<u32>,
    /// The depth that the new copy states, if there is a base; none: one more than the base's.
    place: Option<u8>,
}

impl Job {
    fn onto(tensor: u32, base: Option<u32>) -> Job {
        Job { tensor, base, place: None }
    }

    /// The depth that the new copy states, unless it turns out to need no base.
    fn states(&self, catalog: &Catalog) -> u8 {
        let above = |base: u32| self.place.unwrap_or(catalog.best_record(base).depth.saturating_add(1));
        self.base.map_or(0, above)
    }
}

impl Rebase {
    /// Walks all chains from their roots up and notes where one grows past its limit, and where one stands on tensors
    /// that nothing but pruned versions (`pruned`) names.
    pub fn plan(
        catalog: &Catalog,
        storage: &dyn Storage,
        roots: &[Root],
        (gone, pruned): (&PrunedContents, &PrunedContents),
        max_depth: u8,
        is_quantised: &dyn Fn(&Id) -> bool,
    ) -> Result<Rebase> {
        let reachable = marked(catalog, storage, roots, Marks::new(catalog, gone))?;
        let named = match pruned.is_empty() {
            true => None,
            false => Some(marked(catalog, storage, roots, Marks::of_names(catalog, pruned))?),
        };
        let wanted = |n: u32| named.as_ref().is_none_or(|m| m.has(n));
        let limits = limits(catalog, storage, roots, gone)?;
        let mut tensors: Vec<u32> = reachable.iter().filter(|n| catalog.best_record(*n).kind == Kind::Tensor).collect();
        // Depth falls from delta to base: a base has been looked at before what stands on it.
        tensors.sort_by_key(|n| catalog.best_record(*n).depth);
        let mut out = Rebase::default();
        let mut known: HashMap<u32, Chain> = HashMap::with_capacity(tensors.len());
        for n in tensors {
            let record = catalog.best_record(n);
            let at = |id: Id| known.get(&catalog.find(&id)?);
            let below = record.base.and_then(at).and_then(|base| match record.grandparent {
                None => Some(*base),
                Some(grandparent) => Some(base.beside(at(grandparent)?)),
            });
            let stranded = |b: Id| catalog.find(&b).is_some_and(|b| !wanted(b));
            // It stands on a copy that could not be read and is not the preferred one: it stays as it is.
            let leans = |b: Id| catalog.find(&b).is_some_and(|b| catalog.best_record(b).depth >= record.depth);
            let leans = |b: Id| leans(b) && catalog.find(&b).and_then(|b| catalog.below(b, record.depth)).is_some();
            let mut chain = match (record.base, &below) {
                (None, _) => Chain::left(n, 0),
                (Some(_), _) if record.bases().any(leans) => Chain::left(n, record.depth),
                (Some(_), Some(below)) if !wanted(n) => below.longer(),
                (Some(_), Some(below)) if record.bases().any(stranded) => {
                    let limit = u64::from(limits.get(&n).copied().unwrap_or(u8::MAX).min(max_depth));
                    let under = below.wanted.and_then(|a| Some((a, known.get(&a)?)));
                    let (base, chain) = Chain::moved(n, under, limit, below);
                    out.jobs.push(Job::onto(n, base));
                    chain
                }
                (Some(_), Some(below)) => {
                    let limit = limits.get(&n).copied().unwrap_or(u8::MAX).min(max_depth);
                    let root = (max_depth > 0).then_some(below.root);
                    // One delta more: an earlier run may have lowered its place by one.
                    let fits = |len: u64| len <= u64::from(limit.min(chain_len(record.depth) + 1));
                    let under = || {
                        let ancestor = laid_out(catalog, n).filter(|a| wanted(*a))?;
                        let chain = *known.get(&ancestor)?;
                        // The new copy's depth has to lie between.
                        let descends = u16::from(chain.depth) + 1 < u16::from(record.depth);
                        Some((ancestor, chain)).filter(|_| descends && fits(chain.after + 1))
                    };
                    // Quantised contents stay one difference after the other.
                    let is_long = !fits(below.after.saturating_add(1));
                    match is_long.then(under).flatten().filter(|_| !is_quantised(&record.id)) {
                        Some((base, under)) => {
                            // Less than it had, more than what it stands on, and its place all the same.
                            out.jobs.push(Job { tensor: n, base: Some(base), place: record.depth.checked_sub(1) });
                            Chain { before: below.before + 1, ..under.longer() }
                        }
                        None if below.after.saturating_add(1) > u64::from(limit) => {
                            out.jobs.push(Job::onto(n, root));
                            Chain::cut(n, root, below)
                        }
                        None => below.longer(),
                    }
                }
                (Some(base), None) => {
                    let what = format!("tensor {}", record.id.short());
                    return Err(RepoError::corrupt(what, format!("its chain does not descend to {}", base.short())));
                }
            };
            if wanted(n) {
                chain.wanted = Some(n);
            }
            chain.depth = match out.jobs.last().filter(|job| job.tensor == n) {
                Some(job) => job.states(catalog),
                None => record.depth,
            };
            out.deepest_before = out.deepest_before.max(chain.before);
            out.deepest_after = out.deepest_after.max(chain.after);
            known.insert(n, chain);
        }
        Ok(out)
    }

    /// Bytes of the tensors to be encoded.
    pub fn logical(&self, catalog: &Catalog) -> u64 {
        self.jobs.iter().map(|job| catalog.best_record(job.tensor).logical).sum()
    }

    /// About what the new copies will take: no more than their chain roots do.
    pub fn estimate(&self, catalog: &Catalog) -> u64 {
        let len = |job: &Job| catalog.best_record(job.base.unwrap_or(job.tensor)).len;
        self.jobs.iter().map(len).sum()
    }

    /// Encodes the tensors into new packs. The old copies stay.
    pub fn carry_out(
        &self,
        lock: &MaintenanceLock<'_>,
        catalog: &Catalog,
        odb: &Odb,
        progress: &dyn Progress,
    ) -> Result<Vec<PackId>> {
        let mut packs = Vec::new();
        let mut writer: Option<PackWriter> = None;
        for job in &self.jobs {
            let mut pack = match writer.take() {
                Some(pack) => pack,
                None => lock.pack_of_copies()?,
            };
            let id = catalog.best_record(job.tensor).id;
            let base = job.base.map(|b| catalog.best_record(b).id);
            encode(odb, id, base.map(|b| (b, job.states(catalog))), &mut pack, progress)?;
            if pack.payload_bytes() >= PACK_BYTES {
                packs.push(lock.publish_copies(pack)?);
            } else {
                writer = Some(pack);
            }
        }
        if let Some(pack) = writer {
            packs.push(lock.publish_copies(pack)?);
        }
        Ok(packs)
    }
}

/// Length of a tensor's chain, before and after, and its chain root.
#[derive(Clone, Copy, Debug)]
struct Chain {
    before: u64,
    after: u64,
    root: u32,
    /// What its record will state.
    depth: u8,
    /// The nearest tensor, this one or one below, that a version that was not pruned names.
    wanted: Option<u32>,
}

impl Chain {
    /// As it is, whatever it stands on.
    fn left(n: u32, depth: u8) -> Chain {
        Chain { before: u64::from(depth), after: u64::from(depth), root: n, depth, wanted: None }
    }

    /// Off the unwanted tensors it stands on: on the nearest wanted one, or on that one's chain root if the chain would
    /// get too long; whole where there is none.
    fn moved(n: u32, under: Option<(u32, &Chain)>, limit: u64, below: &Chain) -> (Option<u32>, Chain) {
        let base = under.filter(|_| limit > 0).map(|(a, c)| if c.after < limit { (a, c.after) } else { (c.root, 0) });
        let chain = Chain {
            before: below.before + 1,
            after: base.map_or(0, |(_, after)| after + 1),
            root: under.filter(|_| limit > 0).map_or(n, |(_, c)| c.root),
            depth: 0,
            wanted: Some(n),
        };
        (base.map(|b| b.0), chain)
    }

    /// With a grandparent, whose own chain may be another by now.
    fn beside(self, grandparent: &Chain) -> Chain {
        Chain { before: self.before.max(grandparent.before), after: self.after.max(grandparent.after), ..self }
    }

    fn longer(self) -> Chain {
        Chain { before: self.before + 1, after: self.after + 1, ..self }
    }

    fn cut(n: u32, root: Option<u32>, below: &Chain) -> Chain {
        Chain {
            before: below.before + 1,
            after: u64::from(root.is_some()),
            root: root.unwrap_or(n),
            depth: 0,
            wanted: None,
        }
    }
}

/// What a tensor would stand on if its chain had been laid out as skip deltas are: the first below it whose place is
/// not beyond the one they name.
fn laid_out(catalog: &Catalog, n: u32) -> Option<u32> {
    let place = catalog.best_record(n).depth;
    let mut at = n;
    while catalog.best_record(at).depth > ancestor(place) {
        let below = catalog.find(&catalog.best_record(at).base?)?;
        // A chain that does not descend is left to those who follow it.
        at = Some(below).filter(|b| catalog.best_record(*b).depth < catalog.best_record(at).depth)?;
    }
    Some(at)
}

/// For every tensor of a version that a ref names: how long its chain may be.
fn limits(catalog: &Catalog, storage: &dyn Storage, roots: &[Root], gone: &PrunedContents) -> Result<HashMap<u32, u8>> {
    let mut out = HashMap::new();
    for limit in [TIP_DEPTH, TAG_DEPTH] {
        let mut seen = HashSet::new();
        let is_tip = |r: &&Root| r.firm && (r.name.starts_with(HEADS) || r.name == "HEAD") == (limit == TIP_DEPTH);
        let mut stack: Vec<Id> = roots.iter().filter(is_tip).map(|r| r.id).collect();
        while let Some(id) = stack.pop() {
            let n = match catalog.find(&id) {
                None if catalog.partial => continue,
                n => n.ok_or_else(|| RepoError::corrupt(format!("object {}", id.short()), "missing"))?,
            };
            let kind = catalog.best_record(n).kind;
            if !seen.insert(n) {
                continue;
            }
            match kind {
                Kind::Blob => {}
                Kind::Tensor => {
                    out.entry(n).or_insert(limit);
                }
                kind => {
                    let bytes = catalog.content(storage, catalog.best(n))?;
                    let below = gone.references(kind, &id, &bytes)?;
                    // Of a commit only its own version: parents may be far away from their tip.
                    let wanted = below.iter().filter(|(_, k)| kind == Kind::Tag || *k != Kind::Commit);
                    stack.extend(wanted.map(|(id, _)| *id));
                }
            }
        }
    }
    Ok(out)
}

/// Encodes a tensor against a base, given with the depth that the new copy states.
pub fn encode(
    odb: &Odb,
    id: Id,
    against: Option<(Id, u8)>,
    pack: &mut PackWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let reader = odb.tensor(&id)?;
    let root = against.map(|a| a.0);
    let base = root.map(|f| odb.tensor(&f)).transpose()?;
    let (dtype, shape) = (reader.header().dtype, reader.header().shape.clone());
    let mut hasher = tensor_hasher(dtype, &shape);
    let mut base_hasher = base.as_ref().map(|b| tensor_hasher(dtype, &b.header().shape));
    let (mut lengths, mut needed) = (Vec::new(), false);
    let ahead = rayon::current_num_threads().clamp(1, 8);
    for start in (0..reader.segments()).step_by(ahead) {
        go_on(progress, super::WHAT)?;
        let work: Vec<Segment> = (start..reader.segments().min(start + ahead))
            .into_par_iter()
            .map(|i| segment(odb, &reader, base.as_ref(), i))
            .collect::<Result<_>>()?;
        for s in work {
            hasher.update(&s.raw);
            if let (Some(h), Some(below)) = (&mut base_hasher, &s.below) {
                h.update(below);
            }
            pack.append(&s.encoded.bytes)?;
            lengths.push(s.encoded.bytes.len() as u32);
            needed |= s.encoded.scheme.needs_base();
            progress.advance(s.raw.len() as u64);
        }
    }
    let changed = |id: Id| RepoError::corrupt(format!("tensor {}", id.short()), "its content is not what its id says");
    if hasher.finish() != id {
        return Err(changed(id));
    }
    if let (Some(h), Some(root)) = (&base_hasher, root)
        && h.finish() != root
    {
        return Err(changed(root));
    }
    let (base, depth) = against.filter(|_| needed).unzip();
    pack.append(&TensorHeader::encode(dtype, &shape, [base, None], &lengths))?;
    pack.place(NewObject {
        id,
        kind: Kind::Tensor,
        // The base may have been encoded anew just now, and be less deep: never deeper.
        depth: depth.unwrap_or(0),
        base,
        grandparent: None,
        logical: reader.byte_len(),
    });
    Ok(())
}

struct Segment {
    raw: Vec<u8>,
    below: Option<Vec<u8>>,
    encoded: Encoded,
}

fn segment(odb: &Odb, reader: &TensorReader<'_>, base: Option<&TensorReader<'_>>, index: usize) -> Result<Segment> {
    let raw = reader.segment(index)?;
    let below = base.map(|b| b.segment(index)).transpose()?;
    let refused = |why| RepoError::user(format!("the engine refused a tensor: {why}"), "");
    let dtype = reader.header().dtype;
    // A lattice cannot be told from the numbers: the stored segment has its parameters.
    let hint = reader.hint(index)?;
    let encoded = odb.engine().encode(dtype, &raw, below.as_deref().into(), hint.as_ref()).map_err(refused)?;
    Ok(Segment { raw, below, encoded })
}
