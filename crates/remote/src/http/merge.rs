//! Merges several transfer plans into one.

use crate::sync::{Offer, Plan};
use mdl_repo::pack::{PackId, Record};
use std::collections::BTreeMap;

/// The union of their offers.
pub(super) fn merge(mut plans: Vec<Plan>) -> Plan {
    if plans.len() == 1 {
        return plans.pop().unwrap_or_default();
    }
    let mut offers: BTreeMap<PackId, [Vec<Record>; 2]> = BTreeMap::new();
    let mut pruned = Vec::new();
    for plan in plans {
        for offer in plan.offers {
            let [named, below] = offers.entry(offer.pack).or_default();
            named.extend(offer.named);
            below.extend(offer.below);
        }
        pruned.extend(plan.pruned);
    }
    let once = |mut records: Vec<Record>| {
        records.sort_by_key(|r| r.id);
        records.dedup_by_key(|r| r.id);
        records
    };
    let offers =
        offers.into_iter().map(|(pack, [named, below])| Offer { pack, named: once(named), below: once(below) });
    Plan { offers: offers.collect(), pruned }
}
