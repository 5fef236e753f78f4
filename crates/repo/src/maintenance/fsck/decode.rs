//! Fsck of objects: decodes every copy of every object and hashes it.
//!
//! Tensors are taken by families: a chain root and all its deltas, decoded segment by segment down the tree, so that
//! each payload is decoded once however long the chains are, and few segments are in memory.

use crate::maintenance::fsck::{Bad, is_node};
use mdl_codec::{Bases, Dtype, scheme_of};
use mdl_objects::{Id, IdHasher, Kind, tensor_hasher};
use mdl_store::{
    Progress, RepoError, Result,
    error::bad_object,
    object_db::{Odb, references},
    pack::{TensorHeader, segment_len},
    reachability::{Catalog, Slot},
};
use rayon::prelude::*;
use std::collections::HashMap;

/// Finds copies, of all these, that do not decode to what their id says. Deltas on a tensor that is not among them are
/// skipped.
pub fn check(catalog: &Catalog, odb: &Odb, sound: Vec<Slot>, progress: &dyn Progress) -> Vec<Bad> {
    let (tensors, others): (Vec<Slot>, Vec<Slot>) =
        sound.into_iter().partition(|s| catalog.record(*s).kind == Kind::Tensor);
    let mut bad: Vec<Bad> = others
        .into_par_iter()
        .filter_map(|slot| {
            if progress.stopped() {
                return None;
            }
            let e = whole(catalog, odb, slot).err()?;
            progress.advance(catalog.record(slot).logical);
            Some(Bad::new(slot, &e))
        })
        .collect();
    let mut families = Families { catalog, odb, progress, children: HashMap::new() };
    let roots = families.arrange(&tensors, &mut bad);
    let found: Vec<Vec<Bad>> = roots.into_par_iter().map(|root| families.check(root)).collect();
    bad.extend(found.into_iter().flatten());
    bad
}

fn whole(catalog: &Catalog, odb: &Odb, slot: Slot) -> Result<()> {
    let record = catalog.record(slot);
    let bytes = catalog.content(odb.storage(), slot)?;
    if is_node(record.kind) {
        references(record.kind, &record.id, &bytes)?;
    }
    Ok(())
}

struct Families<'a> {
    catalog: &'a Catalog,
    odb: &'a Odb,
    progress: &'a dyn Progress,
    /// Deltas by the copy that a reader takes for their base.
    children: HashMap<Slot, Vec<Slot>>,
}

/// The base of a delta, and its decoded segment.
type Below<'a> = (Id, &'a [u8]);

/// A copy while its family is decoded.
struct Node {
    slot: Slot,
    parent: Option<usize>,
    children: Vec<usize>,
    header: TensorHeader,
    hasher: IdHasher,
    failed: Option<Bad>,
}

impl Families<'_> {
    /// Sorts copies into families; returns their heads. Depth falls from delta to base, so there is no cycle.
    fn arrange(&mut self, tensors: &[Slot], bad: &mut Vec<Bad>) -> Vec<Slot> {
        let mut roots = Vec::new();
        for &slot in tensors {
            let record = self.catalog.record(slot);
            let below: std::result::Result<Vec<Slot>, String> =
                record.bases().map(|id| self.below(id, record.depth)).collect();
            match below.as_deref() {
                Ok([]) => roots.push(slot),
                Ok([base, ..]) => self.children.entry(*base).or_default().push(slot),
                Err(reason) => {
                    let reason = reason.clone();
                    let is_damage = true;
                    bad.push(Bad { slot, reason, is_damage });
                }
            }
        }
        roots
    }

    /// The copy that a reader takes for a base of a delta of this depth.
    fn below(&self, id: Id, depth: u8) -> std::result::Result<Slot, String> {
        match self.catalog.find(&id) {
            None => Err(format!("its base {} is missing", id.short())),
            Some(n) if self.catalog.best_record(n).kind != Kind::Tensor => {
                Err(format!("its base {} is no tensor", id.short()))
            }
            Some(n) => {
                let below = self.catalog.below(n, depth);
                below.ok_or_else(|| "its delta chain does not descend".to_owned())
            }
        }
    }

    fn check(&self, root: Slot) -> Vec<Bad> {
        let mut bad = Vec::new();
        let mut nodes = self.gather(root, &mut bad);
        let segments = nodes.first().map_or(0, |n| n.header.segments.len());
        for index in 0..segments {
            if self.progress.stopped() {
                return bad;
            }
            self.segment(&mut nodes, 0, index, [None; 2]);
        }
        for at in 0..nodes.len() {
            let Some(node) = nodes.get(at) else { break };
            let wrong = node.hasher.finish() != self.catalog.record(node.slot).id;
            let found = node.failed.clone().or_else(|| {
                wrong.then(|| Bad {
                    slot: node.slot,
                    reason: "its content is not what its id says".to_owned(),
                    is_damage: true,
                })
            });
            let above = node.parent.and_then(|p| nodes.get(p)).is_some_and(|p| p.failed.is_some());
            bad.extend(found.clone().filter(|_| !above));
            // Parents come before their children: deltas on a damaged base are not reported themselves.
            let failed = found.or_else(|| nodes.get(node.parent.filter(|_| above)?)?.failed.clone());
            if let Some(node) = nodes.get_mut(at) {
                node.failed = failed;
            }
        }
        bad
    }

    /// The family of a head, parents before children. Copies whose header is damaged are reported, with all behind them
    /// left out.
    fn gather(&self, root: Slot, bad: &mut Vec<Bad>) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut stack = vec![(root, None)];
        while let Some((slot, parent)) = stack.pop() {
            let first = nodes.first().map(|n| n.header.dtype);
            let header = match self.header(slot, root, first) {
                Ok(header) => header,
                Err(e) => {
                    bad.push(Bad::new(slot, &e));
                    continue;
                }
            };
            let at = nodes.len();
            if let Some(parent) = parent.and_then(|p: usize| nodes.get_mut(p)) {
                parent.children.push(at);
            }
            nodes.push(Node {
                slot,
                parent,
                children: Vec::new(),
                hasher: tensor_hasher(header.dtype, &header.shape),
                header,
                failed: None,
            });
            let children = self.children.get(&slot).into_iter().flatten();
            stack.extend(children.map(|c| (*c, Some(at))));
        }
        nodes
    }

    fn header(&self, slot: Slot, root: Slot, dtype: Option<Dtype>) -> Result<TensorHeader> {
        let header = self.odb.header(&self.catalog.location(slot))?;
        let (record, first) = (self.catalog.record(slot), self.catalog.record(root));
        // As readers do, which refuse such a chain even where it would decode.
        if record.logical != first.logical || dtype.is_some_and(|d| d != header.dtype) {
            let what = format!("tensor {}", record.id.short());
            return Err(RepoError::corrupt(what, "its base has another length or dtype"));
        }
        Ok(header)
    }

    /// Decodes a segment of a copy and of all deltas on it.
    fn segment(&self, nodes: &mut [Node], mut at: usize, index: usize, below: [Option<Below<'_>>; 2]) {
        let mut owned: [Option<(Id, Vec<u8>)>; 2] = [None, None];
        loop {
            let Some(node) = nodes.get_mut(at) else { return };
            let [base, grandparent] = [0, 1].map(|i| owned[i].as_ref().map(|(id, b)| (*id, b.as_slice())));
            // Steps down this loop push out what was passed in.
            let near = match (base, grandparent) {
                (None, _) => below,
                (base, None) => [base, below[0]],
                both => [both.0, both.1],
            };
            let bytes = match self.decode(node, index, near) {
                Ok(bytes) => bytes,
                Err(e) => {
                    node.failed = node.failed.take().or(Some(Bad::new(node.slot, &e)));
                    return;
                }
            };
            node.hasher.update(&bytes);
            self.progress.advance(bytes.len() as u64);
            let (id, children) = (self.catalog.record(node.slot).id, node.children.clone());
            let Some((last, rest)) = children.split_last() else {
                return;
            };
            let under = near[0];
            rest.iter().for_each(|c| self.segment(nodes, *c, index, [Some((id, &bytes)), under]));
            // The last one takes its place, so that a chain without forks holds three segments, not all.
            at = *last;
            owned = [Some((id, bytes)), owned[0].take()];
        }
    }

    fn decode(&self, node: &Node, index: usize, below: [Option<Below<'_>>; 2]) -> Result<Vec<u8>> {
        let record = self.catalog.record(node.slot);
        let missing = || RepoError::corrupt(format!("tensor {}", record.id.short()), "a segment is missing");
        let (offset, len) = *node.header.segments.get(index).ok_or_else(missing)?;
        let mut encoded = vec![0; len as usize];
        let pack = &self.catalog.packs[node.slot.pack as usize].pack;
        pack.payload_range(self.odb.storage(), record, offset, &mut encoded)?;
        let scheme = scheme_of(&encoded).map_err(bad_object(&record.id))?;
        let mut out = vec![0; segment_len(record.logical, index)];
        let [base, under] = below;
        // As a rule the base stands on the grandparent still; one that was stored anew does not.
        let elsewhere;
        let grandparent = match record.grandparent.filter(|_| scheme.bases() > 1) {
            None => None,
            Some(id) => match under.filter(|(below, _)| *below == id) {
                Some((_, bytes)) => Some(bytes),
                None => {
                    elsewhere = self.odb.tensor(&id)?.segment(index)?;
                    Some(elsewhere.as_slice())
                }
            },
        };
        let bases = Bases { base: base.map(|(_, bytes)| bytes).filter(|_| scheme.needs_base()), grandparent };
        let engine = self.odb.engine();
        engine.decode(node.header.dtype, &encoded, bases, &mut out).map_err(bad_object(&record.id))?;
        Ok(out)
    }
}
