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

/// How many of these marks fit one request; one at least.
pub(super) fn marks_at_once(marks: &[(Id, PrunedMark)], most: usize, most_bytes: usize) -> usize {
    // What stands around a path, and around rules of the longest.
    const FILE: usize = 200;
    const MARK: usize = 400;
    let mut bytes = 0usize;
    let fits = |(_, mark): &&(Id, PrunedMark)| {
        let files: usize = mark.without.keys().map(|path| 2 * path.len() + FILE).sum();
        bytes = bytes.saturating_add(files + 4 * mark.rules.len().min(1000) + MARK);
        bytes <= most_bytes
    };
    marks.iter().take(most).take_while(fits).count().max(1)
}

/// Tells of versions that gave up contents here.
pub(super) fn note_pruned(peer: &HttpPeer, pruned: &[(Id, PrunedMark)]) -> Result<()> {
    let line = |(id, mark): &(Id, PrunedMark)| {
        let mark = mark.short();
        let mut line = json!({"commit": id, "time_ms": mark.time_ms, "rules": mark.rules});
        if let Some(tree) = mark.stand_in {
            line["tree"] = json!(tree);
        }
        if !mark.without.is_empty() {
            line["without"] = json!(mark.without);
        }
        line
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

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;
    use mdl_repo::LeftOut;

    #[test]
    fn marks_are_sent_in_requests_that_are_not_too_long() {
        let id = Id::from_content(Kind::Blob, b"");
        let file = LeftOut { manifest: false, id, size: 0, executable: false };
        let mark = |files: usize| {
            let without = (0..files).map(|i| (format!("{i:0>100}"), file.clone())).collect();
            (id, PrunedMark { without, stand_in: Some(id), ..PrunedMark::default() })
        };
        let marks: Vec<_> = [10, 10, 1000, 10].map(mark).into();
        let at_once = |marks: &[_], bytes| marks_at_once(marks, 3, bytes);
        assert_eq!((at_once(&marks, 100_000), at_once(&marks[2..], 100_000)), (2, 1));
        assert_eq!(at_once(&marks, 1 << 20), 3);
        for mark in &marks {
            let line = serde_json::to_vec(&mark.1.without).expect("json").len();
            assert_eq!(at_once(&[mark.clone(), mark.clone()], 2 * line), 1, "more than it is");
        }
    }
}
