//! HTTP peer: a repository behind `mdl serve`. The protocol is specified in docs/protocol.md.

mod address;
mod answer;
mod client;
pub(crate) use client::innermost;
mod refs;
mod retry;
mod send;
#[cfg(test)]
mod tests;
mod wire;

use crate::{
    peer::{Advertised, Peer, ReadPart, Take, nonsense},
    sync::{Bundle, Piece, RefMove, TransferPlan, Want, merge},
};
use address::Address;
use bytes::Bytes;
use mdl_objects::Id;
use mdl_repo::{Progress, PrunedMark, Result};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{collections::HashSet, fmt};
use wire::{Call, Wire};

/// A bundle becomes a partial pack at the server, and any part of it can be sent again.
const BUNDLE: u64 = 1 << 30;
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";
/// The most that a server accepts in one request.
const IDS: usize = 1 << 16;
const BARE_IDS: usize = 1 << 18;
const PIECES: usize = 1 << 16;
const PIECE_BYTES: u64 = 64 << 20;
const MOVES: usize = 4096;
const MARKS: usize = 2048;
/// Bytes of marks in one request, as far as they can be told beforehand: a server accepts twice as many.
const MARK_BYTES: usize = 8 << 20;
/// Tensors asked for without a base in one request, to begin with.
const TENSORS: usize = 4096;
/// Most bytes of a response that are read.
const MAX_JSON: u64 = 256 << 20;
const MAX_PLAN: u64 = 4 << 30;
/// The status of a request for too much at once.
const TOO_LARGE: u16 = 413;

/// A repository behind `mdl serve`.
pub struct HttpPeer {
    wire: Wire,
}

impl fmt::Debug for HttpPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpPeer").field(&self.wire.shown()).finish()
    }
}

impl HttpPeer {
    /// The repository at `http(s)://HOST[:PORT]/OWNER/NAME`. Nothing is asked yet. Refused where plain HTTP would
    /// expose the token, or the URL has credentials in it.
    pub fn new(url: &str, token: Option<String>) -> Result<HttpPeer> {
        let address = Address::new(url)?;
        Wire::new(address, token.as_deref()).map(|wire| HttpPeer { wire })
    }

    /// The repository's URL, without secrets.
    pub fn url(&self) -> &str {
        self.wire.shown()
    }

    fn post(path: &str, body: &Value, max: u64) -> Call {
        Call { body: Some((JSON, body.to_string().into())), ..Call::new(Method::POST, path, max) }
    }

    /// A request over whose answer the server may think for long.
    fn long_post(path: &str, body: &Value, max: u64) -> Call {
        Call { patient: true, ..HttpPeer::post(path, body, max) }
    }

    fn offer_once(&self, want: &Want, objects: &[Id], progress: &dyn Progress) -> Result<TransferPlan> {
        let body = json!({
            "tips": want.tips,
            "objects": objects,
            "haves": want.haves,
            "partial": want.partial,
            "depth": want.depth,
            "only": want.only.as_ref().map(|o| o.patterns()),
        });
        TransferPlan::decode(&self.wire.call_while(HttpPeer::long_post("offer", &body, MAX_PLAN), progress)?)
    }

    /// Asks for tensors; where they are too many at once, for half of them, and the other half.
    fn whole(&self, tensors: &[Id], progress: &dyn Progress, out: &mut Vec<TransferPlan>) -> Result<()> {
        let call = HttpPeer::long_post("whole", &json!({"tensors": tensors}), MAX_PLAN);
        match self.wire.call_while(call, progress) {
            Ok(bytes) => out.push(TransferPlan::decode(&bytes)?),
            Err(refused) if refused.status == TOO_LARGE && tensors.len() > 1 => {
                let (first, second) = tensors.split_at(tensors.len() / 2);
                self.whole(first, progress, out)?;
                self.whole(second, progress, out)?;
            }
            Err(refused) => return Err(refused.into()),
        }
        Ok(())
    }

    /// Sends ids, and returns those that the server lists.
    fn some_of(&self, path: &str, ids: &[Id]) -> Result<HashSet<Id>> {
        let mut out = HashSet::new();
        for ids in ids.chunks(BARE_IDS) {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| *id.as_bytes()).collect();
            let call = Call {
                body: Some((OCTETS, Bytes::from(bytes))),
                ..Call::new(Method::POST, path, 32 * ids.len() as u64)
            };
            let answer = self.wire.call(call)?;
            let (found, rest) = answer.as_chunks::<32>();
            let asked: HashSet<&Id> = ids.iter().collect();
            let found: Vec<Id> = found.iter().map(|id| Id::from_bytes(*id)).collect();
            if !rest.is_empty() || found.iter().any(|id| !asked.contains(id)) {
                return Err(nonsense("it lists ids that were not asked about"));
            }
            out.extend(found);
        }
        Ok(out)
    }

    /// Stored pieces, end to end.
    fn fetch(&self, pieces: &[&Piece], take: &mut Take<'_>) -> Result<()> {
        let rest = |came: u64| {
            let (mut skip, mut asked, mut total) = (came, Vec::new(), 0);
            for piece in pieces {
                let Piece::Stored { pack, offset, len } = piece else {
                    continue;
                };
                let skipped = skip.min(*len);
                skip -= skipped;
                if skipped < *len {
                    let (offset, len) = (offset + skipped, len - skipped);
                    asked.push(json!({"pack": pack.to_string(), "offset": offset, "len": len}));
                    total += len;
                }
            }
            HttpPeer::post("read", &json!({"pieces": asked}), total)
        };
        Ok(self.wire.stream(&rest, take)?)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| nonsense(&e.to_string()))
}

/// Parses a server's response to a request for refs. For the fuzz targets, which have no server.
#[doc(hidden)]
pub fn read_refs(status: u16, body: &[u8]) -> Result<Advertised> {
    match StatusCode::from_u16(status) {
        Ok(status) if !status.is_success() => Err(answer::refused("http://server", status, "", body).into()),
        _ => refs::advertised("http://server", body),
    }
}

impl Peer for HttpPeer {
    fn refs(&self) -> Result<Advertised> {
        refs::advertised(self.url(), &self.wire.call(Call::new(Method::GET, "refs", MAX_JSON))?)
    }

    fn plan(&self, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
        let (first, more) = want.objects.split_at(want.objects.len().min(IDS));
        let mut plans = vec![self.offer_once(want, first, progress)?];
        let none = Want::default();
        for objects in more.chunks(IDS) {
            plans.push(self.offer_once(&none, objects, progress)?);
        }
        Ok(merge(plans))
    }

    fn plan_standalone(&self, tensors: &[Id], progress: &dyn Progress) -> Result<Option<TransferPlan>> {
        let mut plans = Vec::new();
        for tensors in tensors.chunks(TENSORS) {
            self.whole(tensors, progress, &mut plans)?;
        }
        Ok(Some(merge(plans)))
    }

    fn read(&self, pieces: &[Piece], take: &mut Take<'_>) -> Result<()> {
        let mut waiting: Vec<&Piece> = Vec::new();
        let mut sum = 0;
        for piece in pieces {
            let is_here = matches!(piece, Piece::Bytes(_));
            if is_here || waiting.len() >= PIECES || sum + piece.byte_len() > PIECE_BYTES {
                if !waiting.is_empty() {
                    self.fetch(&waiting, take)?;
                }
                (waiting, sum) = (Vec::new(), 0);
            }
            match piece {
                Piece::Bytes(bytes) => take(bytes)?,
                stored => {
                    waiting.push(stored);
                    sum += stored.byte_len();
                }
            }
        }
        if waiting.is_empty() { Ok(()) } else { self.fetch(&waiting, take) }
    }

    fn missing(&self, ids: &[Id]) -> Result<HashSet<Id>> {
        self.some_of("lacking", ids)
    }

    fn known(&self, commits: &[Id]) -> Result<HashSet<Id>> {
        self.some_of("known", commits)
    }

    fn bundle_bytes(&self) -> u64 {
        BUNDLE
    }

    fn send(&self, bundles: &[Bundle], read: &ReadPart<'_>, progress: &dyn Progress) -> Result<u64> {
        send::send(self, bundles, read, progress)
    }

    fn note_pruned(&self, pruned: &[(Id, PrunedMark)]) -> Result<()> {
        let mut rest = pruned;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(refs::marks_at_once(rest, MARKS, MARK_BYTES));
            refs::note_pruned(self, now)?;
            rest = later;
        }
        Ok(())
    }

    fn move_refs(&self, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>> {
        let mut out = Vec::new();
        for moves in moves.chunks(MOVES) {
            out.extend(refs::move_all(self, moves, message)?);
        }
        Ok(out)
    }
}
