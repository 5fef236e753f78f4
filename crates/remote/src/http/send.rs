//! Uploads bundles to a server: the parts that it is missing, several at a time, then asks it to receive them all.

use super::{
    HttpPeer, MAX_JSON, OCTETS, parse,
    retry::Retries,
    wire::{Asked, Call},
};
use crate::{
    partial_pack::Gap,
    peer::{Peer, ReadPart, nonsense},
    streams,
    sync::{Bundle, WHAT},
};
use bytes::Bytes;
use mdl_objects::Id;
use mdl_repo::{Progress, Result};
use mdl_store::progress::go_on;
use reqwest::{
    Method,
    header::{HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest part that a server may ask for.
const LONGEST: u64 = 64 << 20;
/// How often it is looked anew which parts are missing, where the server says that some are.
const ROUNDS: u32 = 3;
const HASH: HeaderName = HeaderName::from_static("x-mdl-blake3");

/// How far a bundle is at the other side.
#[derive(Deserialize)]
struct There {
    part_bytes: u64,
    missing: Vec<Gap>,
}

/// Sends bundles; returns how many bytes went over.
pub(super) fn send(peer: &HttpPeer, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
    let mut left: Vec<&Bundle> = bundles.iter().collect();
    let mut sent = 0;
    let mut round = 0;
    while !left.is_empty() {
        progress.begin("sending", left.iter().map(|b| b.size).sum());
        for bundle in &left {
            sent += parts(peer, bundle, read, progress)?;
        }
        progress.end();
        round += 1;
        match take(peer, &left, progress) {
            Ok(()) => break,
            // The server took them in and was killed before it said so; or it has swept what was old.
            Err(refused) if refused.code == "PartsMissing" && round < ROUNDS => left = unfinished(peer, left)?,
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(sent)
}

/// Bundles of which the other side lacks something.
fn unfinished<'a>(peer: &HttpPeer, bundles: Vec<&'a Bundle>) -> Result<Vec<&'a Bundle>> {
    let ids: Vec<Id> = bundles.iter().flat_map(|b| &b.records).map(|r| r.id).collect();
    let missing = peer.missing(&ids)?;
    let lacks = |b: &&Bundle| b.records.iter().any(|r| missing.contains(&r.id));
    Ok(bundles.into_iter().filter(lacks).collect())
}

fn look(peer: &HttpPeer, bundle: &Bundle) -> Result<There> {
    let path = format!("packs/{}?size={}", bundle.id, bundle.size);
    let there: There = parse(&peer.wire.call(Call::new(Method::GET, path, MAX_JSON))?)?;
    let fits = (1..=LONGEST).contains(&there.part_bytes);
    if !fits || there.missing.iter().any(|gap| gap.part >= bundle.size.div_ceil(there.part_bytes)) {
        return Err(nonsense("it misses parts that there cannot be"));
    }
    Ok(there)
}

/// Sends what is missing of one.
fn parts(peer: &HttpPeer, bundle: &Bundle, read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
    let There { part_bytes, missing } = look(peer, bundle)?;
    let range = |n: u64| n * part_bytes..((n + 1) * part_bytes).min(bundle.size);
    let lacks = |gap: &Gap| {
        let range = range(gap.part);
        (range.end - range.start).saturating_sub(gap.from)
    };
    let to_go: u64 = missing.iter().map(lacks).sum();
    progress.advance(bundle.size.saturating_sub(to_go));
    streams::each(&missing, |gap| {
        go_on(progress, WHAT)?;
        let bytes = read(&bundle.pieces(range(gap.part)))?;
        put(peer, bundle, gap, &Bytes::from(bytes))?;
        progress.advance(lacks(gap));
        Ok(())
    })?;
    Ok(to_go)
}

/// Sends a part from where it is there on; where the line breaks, from where it is there then.
fn put(peer: &HttpPeer, bundle: &Bundle, gap: &Gap, part: &Bytes) -> Result<()> {
    let hash = blake3::hash(part).to_hex();
    let hash = HeaderValue::from_str(&hash).map_err(|_| nonsense("a hash is no header"))?;
    let (mut from, mut retries) = (gap.from, Retries::new(false));
    loop {
        let rest = usize::try_from(from).ok().filter(|from| *from < part.len());
        let rest = part.slice(rest.ok_or_else(|| nonsense("it has more of a part than there is"))?..);
        let path = format!("packs/{}/parts/{}?size={}&from={from}", bundle.id, gap.part, bundle.size);
        let call = Call {
            body: Some((OCTETS, rest)),
            headers: vec![(HASH, hash.clone())],
            ..Call::new(Method::PUT, path, MAX_JSON)
        };
        if peer.wire.try_once(call, &mut retries)? {
            return Ok(());
        }
        let there = look(peer, bundle)?;
        let Some(left) = there.missing.iter().find(|left| left.part == gap.part) else {
            return Ok(());
        };
        if left.from > from {
            retries = Retries::new(false);
        }
        from = left.from;
    }
}

/// Has them checked and stored, all at once: one may build on another.
fn take(peer: &HttpPeer, bundles: &[&Bundle], progress: &dyn Progress) -> Asked<()> {
    let packs = bundles.iter().map(|b| json!({"id": b.id.to_string(), "size": b.size}));
    let body = json!({"packs": packs.collect::<Vec<Value>>()});
    progress.begin("checking at the other side", 0);
    let done = peer.wire.call_while(HttpPeer::long_post("packs/take", &body, MAX_JSON), progress);
    progress.end();
    done.map(drop)
}
