//! Adds up objects for `stats`.

use crate::{
    maintenance::stats::{BranchStats, NameStats, Stats},
    pruned::Pruned,
};
use mdl_codec::scheme_of;
use mdl_objects::{Commit, Id, Kind, Tag, Tree};
use mdl_store::{
    Progress, Result,
    object_db::Odb,
    progress::go_on,
    reachability::{Catalog, Marks, OnDamage, PrunedContents, Root},
    refs::HEADS,
    write::scheme_name,
};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) struct Gather<'a> {
    pub catalog: &'a Catalog,
    odb: &'a Odb,
    record: Pruned,
    progress: &'a dyn Progress,
    /// Bytes of the files of a commit, and its parents; none where it cannot be read.
    commits: HashMap<Id, Option<(u64, Vec<Id>)>>,
}

impl<'a> Gather<'a> {
    pub fn new(catalog: &'a Catalog, odb: &'a Odb, record: Pruned, progress: &'a dyn Progress) -> Gather<'a> {
        Gather { catalog, odb, record, progress, commits: HashMap::new() }
    }

    /// Root directory of what a version gives today.
    pub(super) fn standing_tree(&self, id: &Id, commit: &Commit) -> Id {
        let mut trees = self.record.trees(id, commit);
        trees.find(|tree| self.catalog.find(tree).is_some()).unwrap_or(commit.tree)
    }

    pub(super) fn content(&self, id: &Id, kind: Kind) -> Option<Vec<u8>> {
        let n = self.catalog.find(id)?;
        let sound = self.catalog.best_record(n).kind == kind;
        let slot = self.catalog.best(n);
        sound.then(|| self.catalog.content(self.odb.storage(), slot).ok())?
    }

    pub(super) fn stored(&self, id: &Id) -> u64 {
        self.catalog.find(id).map_or(0, |n| self.catalog.best_record(n).len)
    }

    fn commit(&mut self, id: &Id) -> Option<(u64, Vec<Id>)> {
        if let Some(known) = self.commits.get(id) {
            return known.clone();
        }
        let commit = self.content(id, Kind::Commit).and_then(|b| Commit::decode(&b).ok());
        let tree = commit.as_ref().and_then(|c| self.tree(&self.standing_tree(id, c)));
        let bytes = tree.map_or(0, |t| t.entries.iter().map(|e| e.size).fold(0, u64::saturating_add));
        let found = commit.map(|c| (bytes, c.parents));
        self.commits.insert(*id, found.clone());
        found
    }

    pub(super) fn tree(&self, id: &Id) -> Option<Tree> {
        Tree::decode(&self.content(id, Kind::Tree)?).ok()
    }

    /// Commits behind some ids, and the bytes of their files.
    pub(super) fn walk(&mut self, starts: Vec<Id>) -> (HashSet<Id>, u64) {
        let (mut seen, mut logical) = (HashSet::new(), 0u64);
        let mut stack = starts;
        while let Some(id) = stack.pop() {
            let id = match self.content(&id, Kind::Tag).map(|b| Tag::decode(&b)) {
                Some(Ok(tag)) => tag.target,
                _ => id,
            };
            if seen.contains(&id) {
                continue;
            }
            if let Some((bytes, parents)) = self.commit(&id) {
                seen.insert(id);
                logical = logical.saturating_add(bytes);
                stack.extend(parents);
            }
        }
        (seen, logical)
    }

    fn marks(&self, starts: &[Id]) -> Marks {
        let mut marks = Marks::new(self.catalog, &PrunedContents::default());
        for id in starts {
            // Only an I/O error ends such a walk, and then the numbers are those of what could be read.
            let _ = marks.mark(self.catalog, self.odb.storage(), (*id, None), OnDamage::PassOver);
        }
        marks
    }

    /// Each branch walks all of its history: many branches over a long one take long.
    pub fn branches(&mut self, roots: &[Root], out: &mut Stats) -> Result<()> {
        let mut holders: HashMap<u32, usize> = HashMap::new();
        let mut all = Vec::new();
        for root in roots {
            let Some(name) = root.name.strip_prefix(HEADS) else {
                continue;
            };
            go_on(self.progress, "stats")?;
            let (commits, logical) = self.walk(vec![root.id]);
            let marks = self.marks(&[root.id]);
            marks.iter().for_each(|n| *holders.entry(n).or_default() += 1);
            let stats =
                BranchStats { name: name.to_owned(), commits: commits.len() as u64, logical, ..BranchStats::default() };
            all.push((stats, marks));
        }
        for (mut stats, marks) in all {
            for n in marks.iter() {
                let len = self.catalog.best_record(n).len;
                stats.stored += len;
                stats.exclusive += if holders.get(&n) == Some(&1) { len } else { 0 };
            }
            out.branches.push(stats);
        }
        out.branches.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    pub fn objects(&mut self, roots: &[Root], out: &mut Stats) {
        let ids: Vec<Id> = roots.iter().map(|r| r.id).collect();
        let marks = self.marks(&ids);
        let mut kinds: BTreeMap<Kind, NameStats> = BTreeMap::new();
        let mut tensors = Vec::new();
        let mut reached = 0;
        for n in 0..self.catalog.count() as u32 {
            let r = self.catalog.best_record(n);
            out.unique_bytes = out.unique_bytes.saturating_add(r.logical);
            if !marks.has(n) {
                out.unreachable_objects += 1;
                continue;
            }
            reached = r.len.saturating_add(reached);
            kinds.entry(r.kind).or_default().add(r.logical, r.len);
            if r.kind == Kind::Tensor {
                tensors.push(n);
            }
        }
        // Of every copy.
        let records = self.catalog.packs.iter().flat_map(|s| s.pack.records());
        let payloads = records.map(|r| r.len).fold(0, u64::saturating_add);
        out.unreachable_bytes = payloads.saturating_sub(reached);
        out.kinds = kinds.into_iter().map(|(k, sum)| sum.named(k.name())).collect();
        self.schemes(&tensors, out);
        self.depths(tensors, out);
    }

    fn schemes(&self, tensors: &[u32], out: &mut Stats) {
        let found: Vec<(&str, u32)> = tensors
            .par_iter()
            .map(|n| {
                self.progress.advance(1);
                (self.scheme(*n).unwrap_or("damaged"), *n)
            })
            .collect();
        let mut sums: BTreeMap<&str, NameStats> = BTreeMap::new();
        for (name, n) in found {
            let r = self.catalog.best_record(n);
            sums.entry(name).or_default().add(r.logical, r.len);
        }
        out.schemes = sums.into_iter().map(|(name, sum)| sum.named(name)).collect();
    }

    fn scheme(&self, n: u32) -> Result<&'static str> {
        let at = self.catalog.location(self.catalog.best(n));
        let header = self.odb.header(&at)?;
        let mut schemes = Vec::with_capacity(header.segments.len());
        for (offset, _) in &header.segments {
            let mut first = [0];
            at.pack.payload_range(self.odb.storage(), &at.record, *offset, &mut first)?;
            schemes.push(scheme_of(&first).map_err(mdl_store::error::bad_object(&at.record.id))?);
        }
        Ok(scheme_name(schemes.into_iter()))
    }

    /// Chains as they are followed; what a record states may be more.
    fn depths(&self, mut tensors: Vec<u32>, out: &mut Stats) {
        tensors.sort_by_key(|n| self.catalog.best_record(*n).depth);
        let mut lengths: HashMap<u32, usize> = HashMap::with_capacity(tensors.len());
        for n in tensors {
            let bases = self.catalog.best_record(n).bases();
            // A base comes before what stands on it; where it does not, the chain is broken and ends here.
            let below = bases.filter_map(|b| lengths.get(&self.catalog.find(&b)?));
            let length = below.max().map_or(0, |l| l + 1);
            lengths.insert(n, length);
            if out.depths.len() <= length {
                out.depths.resize(length + 1, 0);
            }
            if let Some(count) = out.depths.get_mut(length) {
                *count += 1;
            }
        }
    }
}
