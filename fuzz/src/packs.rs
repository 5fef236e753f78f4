//! Targets: packs, footers, plans and stored tensors. What is read is what its id says, whatever the records claim.

use crate::{
    mend::{self, tensor::Header},
    repo::{self, open},
};
use mdl_codec::SEGMENT_BYTES;
use mdl_objects::{Id, Kind, tensor_id};
use mdl_remote::sync::TransferPlan;
use mdl_repo::{
    PackApart, Repo, Silent, WriteTransaction,
    pack::{NewObject, Pack, PackId, Record},
    storage::{MemoryStorage, Storage},
};

/// Decoded bytes that are read at most; beyond that only the records are looked at.
const MOST: u64 = 1 << 20;

/// The pack of the name that its trailer gives, in a repository of its own.
fn stored(data: &[u8]) -> Option<(MemoryStorage, PackId)> {
    let name = mend::pack::name(data)?;
    let (storage, _) = repo::fresh();
    let id = PackId::from_bytes(name);
    storage.put(&id.key(), data).expect("memory");
    Some((storage, id))
}

fn content(repo: &Repo, record: &Record) -> Option<Vec<u8>> {
    match record.kind {
        Kind::Tensor => repo.odb().tensor(&record.id).ok()?.read().ok(),
        kind => repo.odb().read(&record.id, kind).ok(),
    }
}

/// A pack: objects are what their ids say; a payload that is changed afterwards gives an error or the same bytes.
pub fn pack(data: &[u8]) {
    let Some((storage, id)) = stored(data) else { return };
    let Ok(pack) = Pack::open(&storage, id) else { return };
    let decoded = pack.records().iter().fold(0u64, |n, r| n.saturating_add(r.logical));
    if decoded > MOST {
        return;
    }
    let repo = open(&storage).expect("a repository");
    let before: Vec<Option<Vec<u8>>> = pack.records().iter().map(|r| content(&repo, r)).collect();
    for (record, bytes) in pack.records().iter().zip(&before) {
        if let Some(bytes) = bytes.as_ref().filter(|_| record.kind != Kind::Tensor) {
            assert!(Id::from_content(record.kind, bytes) == record.id, "not what its id says");
        }
    }
    mdl_repo::fsck(&repo, true, &Silent).expect("a check of damage is no failure");
    // One byte of one payload, without mending anything.
    let Some(at) = pack.records().first().map(|r| r.offset + r.len / 2) else {
        return;
    };
    let mut changed = data.to_vec();
    let Some(byte) = changed.get_mut(at as usize) else {
        return;
    };
    *byte ^= 0x10;
    storage.put(&id.key(), &changed).expect("memory");
    let repo = open(&storage).expect("a repository");
    for (record, bytes) in pack.records().iter().zip(&before) {
        let now = content(&repo, record);
        assert!(now.is_none() || now == *bytes, "other bytes under the same id");
    }
}

/// A footer (a first byte that is even), or a plan: whatever is read is written again to the same bytes.
pub fn index(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    if kind & 1 == 1 {
        let Ok(plan) = TransferPlan::decode(data) else { return };
        let again = plan.encode().expect("a plan is written");
        assert!(TransferPlan::decode(&again).is_ok_and(|p| p == plan), "a plan does not come back");
        if let Ok(needed) = plan.needed(&plan.offers.iter().flat_map(|o| &o.named).map(|r| r.id).collect()) {
            for bundle in needed.bundles(4096) {
                assert!(bundle.payload_bytes() <= bundle.size);
                let part = 0..bundle.size.min(1 << 16);
                let pieces: u64 = bundle.pieces(part.clone()).iter().map(|p| p.byte_len()).sum();
                assert!(pieces == part.end, "pieces of another length");
            }
        }
        return;
    }
    let whole = mend::pack::around(data);
    let Some((storage, id)) = stored(&whole) else { return };
    let Ok(pack) = Pack::open(&storage, id) else { return };
    for (i, record) in pack.records().iter().enumerate() {
        assert!(pack.get(&record.id) == Some(record) && record.offset + record.len <= pack.size);
        assert!(i == 0 || pack.records()[i - 1].id < record.id);
        assert!((record.depth > 0) == record.base.is_some());
        let _ = pack.payload(&storage, record);
    }
}

/// The payload of one tensor, stored against a base that is there: segments have the lengths that the header
/// states, and under the id of what was decoded it is read, as a whole and in parts.
pub fn tensor(data: &[u8]) {
    let Some(header) = Header::parse(data) else { return };
    let forged = Id::from_content(Kind::Blob, data);
    let Some(repo) = forge(data, forged, &header, None) else {
        return;
    };
    let Ok(reader) = repo.odb().tensor(&forged) else { return };
    let (dtype, len) = (reader.header().dtype, reader.byte_len());
    if len > MOST {
        return;
    }
    let mut bytes = Vec::new();
    for index in 0..reader.segments() {
        let _ = reader.scheme(index);
        let Ok(segment) = reader.segment(index) else { return };
        let expected = (len - bytes.len() as u64).min(SEGMENT_BYTES as u64);
        assert!(segment.len() as u64 == expected, "a segment of another length");
        bytes.extend_from_slice(&segment);
    }
    assert!(reader.read().is_err(), "a tensor under an id that is not its own");
    let id = tensor_id(dtype, &header.shape, &bytes);
    if header.bases.contains(&Some(id)) {
        // Made to be its own base: what is stored under that id below is the base.
        return;
    }
    let repo = forge(data, id, &header, Some(len)).expect("as before");
    let reader = repo.odb().tensor(&id).expect("as before");
    assert!(reader.read().is_ok_and(|b| b == bytes), "a tensor is not read under its id");
    let (start, end) = (len / 3, len - len / 4);
    if start <= end {
        let range = reader.range(start, end - start).expect("a range");
        assert!(range == bytes[start as usize..end as usize], "a range differs from the whole");
    }
}

/// A pack with the bases' tensors, and the payload under this id.
fn forge(data: &[u8], id: Id, header: &Header, len: Option<u64>) -> Option<Repo> {
    let logical = len.or(header.byte_len())?;
    let (_, repo) = repo::fresh();
    let mut pack = PackApart::new(repo.storage()).ok()?;
    if logical <= MOST {
        mend::tensor::put_bases(&mut pack, header);
    }
    let [base, grandparent] = header.bases;
    let object = NewObject {
        id,
        kind: Kind::Tensor,
        depth: if base.is_some() { 3 } else { 0 },
        base,
        grandparent: grandparent.filter(|_| base.is_some()),
        logical,
    };
    pack.add(object, data).ok()?;
    pack.finish(&WriteTransaction::begin(&repo).ok()?).ok()?;
    Some(repo)
}
