//! Picks from a plan the objects that the receiver is missing.

use crate::sync::plan::TransferPlan;
use mdl_objects::Id;
use mdl_store::{
    RepoError, Result,
    pack::{PackId, Record},
};
use std::collections::{HashMap, HashSet};

/// Of a tensor whose chain would come along with it, the chain may be this much longer than its root (in quarters of
/// it) before the tensor is rather asked for whole: encoding anew costs the other side time.
const CHAIN_QUARTERS: u64 = 5;

/// What is to be sent.
#[derive(Clone, Debug, Default)]
pub struct Needed {
    /// Objects with the packs they lie in.
    pub records: Vec<(PackId, Record)>,
    /// Tensors among them better sent without a base: their bases are needed for nothing else, and weigh more.
    pub heavy: Vec<Id>,
}

impl TransferPlan {
    /// Every object's id.
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.records().map(|r| r.id)
    }

    /// Selects what a receiver without these objects needs: those named, and their delta bases.
    pub fn needed(&self, missing: &HashSet<Id>) -> Result<Needed> {
        let mut known: HashMap<Id, (PackId, &Record, bool)> = HashMap::new();
        for o in &self.offers {
            let named = o.named.iter().map(|r| (r, true));
            for (r, named) in named.chain(o.below.iter().map(|r| (r, false))) {
                // Named in one pack and below in another: it is named.
                let slot = known.entry(r.id).or_insert((o.pack, r, named));
                if named && !slot.2 {
                    *slot = (o.pack, r, true);
                }
            }
        }
        let is_named = |id: &Id| known.get(id).is_some_and(|k| k.2);
        let mut out = Needed::default();
        let mut taken: HashSet<Id> = HashSet::new();
        let mut stack: Vec<Id> =
            known.iter().filter(|(id, k)| k.2 && missing.contains(id)).map(|(id, _)| *id).collect();
        stack.sort();
        for id in &stack {
            let dragged = dragged(&known, missing, *id)?;
            let unnamed = dragged.iter().filter(|r| !is_named(&r.id));
            let weight: u64 = unnamed.map(|r| r.len).fold(0, u64::saturating_add);
            let root = dragged.iter().find(|r| r.base.is_none());
            if root.is_some_and(|r| weight > (r.len / 4).saturating_mul(CHAIN_QUARTERS)) {
                out.heavy.push(*id);
            }
        }
        while let Some(id) = stack.pop() {
            if !taken.insert(id) {
                continue;
            }
            let (pack, record, _) = known.get(&id).ok_or_else(|| incomplete(&id))?;
            stack.extend(record.bases().filter(|r| missing.contains(r)));
            out.records.push((*pack, (*record).clone()));
        }
        out.records.sort_by_key(|(pack, r)| (*pack, r.offset));
        Ok(out)
    }

    /// This plan with tensors that the other side has encoded without a base.
    #[must_use]
    pub fn with_whole(mut self, whole: TransferPlan) -> TransferPlan {
        let replaced: HashSet<Id> = whole.ids().collect();
        for o in &mut self.offers {
            o.named.retain(|r| !replaced.contains(&r.id));
            o.below.retain(|r| !replaced.contains(&r.id));
        }
        self.offers.extend(whole.offers);
        self.offers.sort_by_key(|o| o.pack);
        self
    }
}

fn incomplete(id: &Id) -> RepoError {
    let what = format!("tensor {}", id.short());
    RepoError::corrupt(what, "others are differences to it, and the other side does not offer it")
}

/// The missing tensors in the chain below one.
fn dragged<'a>(
    known: &HashMap<Id, (PackId, &'a Record, bool)>,
    missing: &HashSet<Id>,
    id: Id,
) -> Result<Vec<&'a Record>> {
    let (mut out, mut seen) = (Vec::new(), HashSet::new());
    let mut stack = vec![id];
    while let Some(at) = stack.pop() {
        let (_, record, _) = known.get(&at).ok_or_else(|| incomplete(&at))?;
        for below in record.bases().filter(|r| missing.contains(r)) {
            if seen.insert(below) {
                stack.push(below);
                out.push(known.get(&below).ok_or_else(|| incomplete(&below))?.1);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::PlannedPack;
    use mdl_objects::Kind;

    fn id(i: u8) -> Id {
        Id::from_content(Kind::Tensor, &[i])
    }

    /// A chain: each tensor a difference to the one before, all of them below but the last.
    fn chain(lens: &[u64]) -> TransferPlan {
        let record = |(i, len): (usize, &u64)| Record {
            id: id(i as u8),
            kind: Kind::Tensor,
            depth: i as u8,
            base: i.checked_sub(1).map(|b| id(b as u8)),
            grandparent: None,
            offset: 8 + 1000 * i as u64,
            len: *len,
            logical: 1000,
            check: [0; 16],
        };
        let mut records: Vec<Record> = lens.iter().enumerate().map(record).collect();
        let named = records.pop().into_iter().collect();
        let pack = PackId::from_bytes([1; 32]);
        let below = records;
        TransferPlan { offers: vec![PlannedPack { pack, named, below }], pruned: Vec::new() }
    }

    fn needed(plan: &TransferPlan, missing: &[u8]) -> (Vec<Id>, usize) {
        let missing = missing.iter().map(|i| id(*i)).collect();
        let needed = plan.needed(&missing).expect("needed");
        (needed.records.iter().map(|(_, r)| r.id).collect(), needed.heavy.len())
    }

    #[test]
    fn a_chain_is_taken_down_to_what_is_there() {
        let plan = chain(&[100, 5, 5, 5]);
        assert_eq!(needed(&plan, &[3]), (vec![id(3)], 0));
        assert_eq!(needed(&plan, &[2, 3]).0, [id(2), id(3)]);
        assert_eq!(needed(&plan, &[0, 3]).0, [id(3)], "the foot is lacking, but its base is not");
        assert_eq!(needed(&plan, &[0, 1, 2, 3]).0.len(), 4);
        assert_eq!(needed(&plan, &[0, 1, 2]).0, []);
    }

    #[test]
    fn a_long_chain_of_long_deltas_is_rather_had_whole() {
        assert_eq!(needed(&chain(&[100, 5, 5, 5]), &[0, 1, 2, 3]).1, 0);
        assert_eq!(needed(&chain(&[100, 70, 70, 70]), &[0, 1, 2, 3]).1, 1);
    }

    #[test]
    fn a_plan_with_a_hole_is_refused() {
        let mut plan = chain(&[100, 5, 5]);
        plan.offers[0].below.pop();
        plan.needed(&[0, 1, 2].map(id).into()).expect_err("a hole");
    }
}
