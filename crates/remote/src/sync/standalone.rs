//! Encodes tensors without a base, for a receiver that lacks their bases.

use crate::sync::plan::{PlannedPack, TransferPlan};
use mdl_objects::Id;
use mdl_repo::{Repo, maintenance::encode_anew};
use mdl_store::{
    Progress, Result,
    pack::Pack,
    storage::Storage,
    transaction::{PackApart, WriteTransaction},
};

/// Writes a pack with these tensors, none of them a difference, into `to`, and says what is in it.
pub fn plan_standalone(repo: &Repo, tensors: &[Id], to: &dyn Storage, progress: &dyn Progress) -> Result<TransferPlan> {
    let mut ids = tensors.to_vec();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        return Ok(TransferPlan::default());
    }
    let mut writer = PackApart::new(to)?;
    for id in &ids {
        encode_anew(repo.odb(), *id, None, &mut writer, progress)?;
    }
    let transaction = WriteTransaction::begin(repo)?;
    let pack = Pack::open(to, writer.finish(&transaction)?)?;
    let offer = PlannedPack { pack: pack.id, named: pack.records().to_vec(), below: Vec::new() };
    Ok(TransferPlan { offers: vec![offer], pruned: Vec::new() })
}
