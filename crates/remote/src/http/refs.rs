//! Refs over HTTP: listing them, marks of pruned versions sent before they move, and moves of several.

use super::{HttpPeer, MAX_JSON, answer::Document, parse};
use crate::{
    peer::{Advertised, nonsense},
    sync::RefMove,
};
use mdl_objects::Id;
use mdl_repo::{PrunedMark, RepoError, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Version of the protocol that this program speaks.
const PROTOCOL: u64 = 1;

#[derive(Deserialize)]
struct Refs {
    head: Option<String>,
    refs: Vec<Ref>,
}

#[derive(Deserialize)]
struct Ref {
    name: String,
    id: Id,
}

#[derive(Deserialize)]
struct Outcome {
    refs: Vec<Moved>,
}

#[derive(Deserialize)]
struct Moved {
    name: String,
    ok: bool,
    problem: Option<Document>,
}

/// What the server at `url` says of its refs; makes sure that both speak of the same protocol.
pub(super) fn advertised(url: &str, bytes: &[u8]) -> Result<Advertised> {
    let answer: Value = parse(bytes)?;
    // Of a newer protocol nothing but the number is sure to be where it is looked for.
    let spoken = answer.get("protocol").and_then(Value::as_u64).unwrap_or_default();
    if spoken != PROTOCOL {
        let message = format!("{url} speaks version {spoken} of the protocol, this program {PROTOCOL}");
        return Err(RepoError::user(message, "update the older of the two"));
    }
    let Refs { head, refs } = parse(bytes)?;
    let mut refs: Vec<(String, Id)> = refs.into_iter().map(|r| (r.name, r.id)).collect();
    refs.sort();
    Ok(Advertised { head, refs })
}

/// Tells of versions that were pruned here, or aged.
pub(super) fn note_pruned(peer: &HttpPeer, pruned: &[(Id, PrunedMark)]) -> Result<()> {
    let line = |(id, mark): &(Id, PrunedMark)| {
        let mark = mark.short();
        match mark.stand_in {
            None => json!({"commit": id, "time_ms": mark.time_ms, "rules": mark.rules}),
            Some(tree) => json!({"commit": id, "time_ms": mark.time_ms, "rules": mark.rules, "tree": tree}),
        }
    };
    let body = json!({"pruned": pruned.iter().map(line).collect::<Vec<Value>>()});
    peer.wire.call(HttpPeer::long_post("pruned", &body, MAX_JSON))?;
    Ok(())
}

/// Asks for moves, and tells what became of each.
pub(super) fn move_all(peer: &HttpPeer, moves: &[RefMove], message: &str) -> Result<Vec<Result<()>>> {
    let body = json!({"moves": moves, "message": message});
    let outcome: Outcome = parse(&peer.wire.call(HttpPeer::long_post("refs", &body, MAX_JSON))?)?;
    let matches = outcome.refs.iter().map(|r| &r.name).eq(moves.iter().map(|m| &m.name));
    if !matches {
        return Err(nonsense("it tells of other refs than were to move"));
    }
    let told = moves.iter().zip(outcome.refs);
    let outcome = |(m, r): (&RefMove, Moved)| r.ok.then_some(()).ok_or_else(|| r.problem.unwrap_or_default().of_ref(m));
    Ok(told.map(outcome).collect())
}
