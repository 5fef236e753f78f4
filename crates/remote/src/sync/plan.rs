//! A transfer plan: the objects that one side offers, and where in its packs their encoded bytes are. Specified in
//! docs/protocol.md, "Plans".

use mdl_objects::{Id, Reader};
use mdl_repo::{LeftOutFiles, PrunedMark};
use mdl_store::{
    RepoError, Result,
    pack::{PackId, Record, decode_records, encode_records},
};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"MDLPLAN\n";
const VERSION: u64 = 1;
/// Payload bytes that a plan may offer: more than any storage has; sums over two thousand plans do not overflow.
const MOST: u64 = 1 << 53;

/// What one pack gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPack {
    /// The pack, at the side that offers.
    pub pack: PackId,
    /// Objects that were asked for, by their ids; offsets are those in that pack.
    pub named: Vec<Record>,
    /// Delta bases of those, direct or not, that were not asked for.
    pub below: Vec<Record>,
}

/// Everything that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferPlan {
    /// By pack, in ascending order.
    pub offers: Vec<PlannedPack>,
    /// Commits among them whose contents, or exact contents, are not offered because they were pruned or aged, and what
    /// is on record of that.
    pub pruned: Vec<(Id, PrunedMark)>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    commit: Id,
    time_ms: i64,
    rules: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<Id>,
    #[serde(default, skip_serializing_if = "LeftOutFiles::is_empty")]
    without: LeftOutFiles,
}

impl TransferPlan {
    /// Encoded bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.records().map(|r| r.len).fold(0, u64::saturating_add)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.offers.iter().flat_map(|o| o.named.iter().chain(&o.below))
    }

    /// As it is sent.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.offers.len() as u64).to_le_bytes());
        for o in &self.offers {
            out.extend_from_slice(o.pack.as_bytes());
            for records in [&o.named, &o.below] {
                put(&mut out, &encode_records(records));
            }
        }
        let line = |(id, PrunedMark { time_ms, rules, stand_in, without }): &(Id, PrunedMark)| Line {
            commit: *id,
            time_ms: *time_ms,
            rules: rules.clone(),
            tree: *stand_in,
            without: without.clone(),
        };
        let lines: Vec<Line> = self.pruned.iter().map(line).collect();
        let json = serde_json::to_vec(&lines).map_err(|e| RepoError::io("cannot write a plan")(e.into()))?;
        put(&mut out, &json);
        Ok(out)
    }

    /// What was sent.
    pub fn decode(bytes: &[u8]) -> Result<TransferPlan> {
        let bad = |why: &str| RepoError::corrupt("a plan from the other side", why);
        let no_plan = || bad("it makes no sense");
        let mut r = Reader::new(bytes.strip_prefix(&MAGIC).ok_or_else(no_plan)?);
        let version = r.u64().map_err(|_| no_plan())?;
        if version != VERSION {
            let message = format!("the other side's plans are of version {version}, which this program does not read");
            return Err(RepoError::user(message, "update the older of the two"));
        }
        let plan = parse(&mut r).filter(|_| r.remaining() == 0).ok_or_else(no_plan)?;
        if plan.bytes() > MOST {
            return Err(bad("it offers more bytes than there are anywhere"));
        }
        Ok(plan)
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(r.u64().ok()?).ok()?;
    r.take(len).ok()
}

fn parse(r: &mut Reader<'_>) -> Option<TransferPlan> {
    let mut out = TransferPlan::default();
    // No memory is set aside for the number that is stated: what is not there ends the loop.
    for _ in 0..r.u64().ok()? {
        let pack = PackId::from_bytes(r.array().ok()?);
        let (named, below) = (decode_records(take(r)?)?, decode_records(take(r)?)?);
        if out.offers.last().is_some_and(|o| o.pack >= pack) {
            return None;
        }
        out.offers.push(PlannedPack { pack, named, below });
    }
    let lines: Vec<Line> = serde_json::from_slice(take(r)?).ok()?;
    for Line { commit, time_ms, rules, tree, without } in lines {
        out.pruned.push((commit, PrunedMark { time_ms, rules, stand_in: tree, without }));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;
    use mdl_repo::LeftOut;

    fn plan() -> TransferPlan {
        let record = |i: u8, depth| Record {
            id: Id::from_content(Kind::Tensor, &[i]),
            kind: Kind::Tensor,
            depth,
            base: (depth > 0).then(|| Id::from_content(Kind::Tensor, b"base")),
            grandparent: (depth > 1).then(|| Id::from_content(Kind::Tensor, b"grand")),
            offset: 8 + u64::from(i),
            len: 100,
            logical: 400,
            check: [i; 16],
        };
        let mut named: Vec<Record> = (0..4).map(|i| record(i, i % 3)).collect();
        named.sort_by_key(|r| r.id);
        let mark = PrunedMark { time_ms: 5, rules: "last 3".to_owned(), ..PrunedMark::default() };
        let aged = PrunedMark { stand_in: Some(Id::from_content(Kind::Tree, b"t")), ..mark.clone() };
        let id = Id::from_content(Kind::Manifest, b"m");
        let file = LeftOut { manifest: true, id, size: 7, executable: false };
        let weights = PrunedMark { without: [("optimizer.pt".to_owned(), file)].into(), ..aged.clone() };
        TransferPlan {
            offers: vec![PlannedPack { pack: PackId::from_bytes([7; 32]), named, below: vec![record(9, 0)] }],
            pruned: vec![
                (Id::from_content(Kind::Commit, b"c"), mark),
                (Id::from_content(Kind::Commit, b"d"), aged),
                (Id::from_content(Kind::Commit, b"e"), weights),
            ],
        }
    }

    #[test]
    fn lengths_whose_sum_is_no_number_are_refused() {
        let mut plan = plan();
        plan.offers[0].named.iter_mut().for_each(|r| r.len = u64::MAX / 2);
        TransferPlan::decode(&plan.encode().expect("bytes")).expect_err("too much");
    }

    #[test]
    fn what_was_sent_is_read_and_no_cut_or_flip_does_harm() {
        let bytes = plan().encode().expect("bytes");
        assert_eq!(TransferPlan::decode(&bytes).expect("plan"), plan());
        for n in 0..bytes.len() {
            TransferPlan::decode(&bytes[..n]).expect_err("cut");
        }
        for i in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[i / 8] ^= 1 << (i % 8);
            // Many a flip makes another plan: what it leads to is verified by the hashes of what arrives.
            let _ = TransferPlan::decode(&bad);
        }
    }
}
