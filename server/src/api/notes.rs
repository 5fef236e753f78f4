//! Routes `.../notes/{rev}`: what was noted on a version after it was committed.

use crate::{
    api::entry::{json_number, rfc3339},
    request::prelude::*,
};
use mdl_repo::{NoteValue, note_value};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys of one request at most.
const MAX_KEYS: usize = 1000;

/// What is noted under a key, by whom and when.
#[derive(Debug, Serialize, ToSchema)]
struct Noted {
    /// A number, or a text; numbers that JSON lacks are `"NaN"`, `"Infinity"`, `"-Infinity"`.
    value: Value,
    /// When: RFC 3339.
    date: String,
    by: String,
}

/// What is noted on a version.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NotesInfo {
    /// The version.
    commit: String,
    notes: BTreeMap<String, Noted>,
}

/// What is to be noted on a version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNotes {
    /// By key: a number (a metric), a text, or null: what is noted there is removed.
    notes: BTreeMap<String, Value>,
}

/// Show what was noted on a version
#[utoipa::path(get, path = "/notes/{rev}", tag = "versions", responses((status = 200, body = NotesInfo)))]
pub(super) async fn show(Read(access): Read, Path(at): Path<AtRev>) -> Result<Json<NotesInfo>> {
    work(move || {
        let id = revision::resolve(&access.repo, &at.rev)?;
        info(&access.repo, &id)
    })
    .await
}

/// Note metrics and texts on a version
///
/// The version and its id stay what they are. What is noted stands beside what it was committed with, and of the same
/// name in its place. The same request can be sent again.
#[utoipa::path(
    post, path = "/notes/{rev}", tag = "versions", request_body = NewNotes, responses((status = 200, body = NotesInfo))
)]
pub(super) async fn change(
    Write(access): Write,
    Path(at): Path<AtRev>,
    Body(asked): Body<NewNotes>,
) -> Result<Json<NotesInfo>> {
    if asked.notes.len() > MAX_KEYS {
        return Err(Problem::too_large(format!("more than {MAX_KEYS} keys")));
    }
    let values = asked.notes.into_iter().map(|(key, value)| Ok((key, read(value)?)));
    let values = values.collect::<Result<BTreeMap<String, Option<NoteValue>>>>()?;
    work(move || {
        let repo = &*access.repo;
        let id = revision::resolve(repo, &at.rev)?;
        mdl_repo::set_notes(repo, &id, &values, access.signature().as_ref())?;
        info(repo, &id)
    })
    .await
}

fn read(value: Value) -> Result<Option<NoteValue>> {
    match value {
        Value::Null => Ok(None),
        Value::Number(n) => Ok(n.as_f64().map(NoteValue::Metric)),
        Value::String(text) if matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") => Ok(Some(note_value(&text))),
        Value::String(text) => Ok(Some(NoteValue::Text(text))),
        _ => Err(Problem::usage("a note is a number, a text or null")),
    }
}

fn info(repo: &Repo, id: &Id) -> Result<Json<NotesInfo>> {
    let all = mdl_repo::notes(repo)?;
    let one = |(key, note, value): (&str, &mdl_repo::Note, &NoteValue)| {
        let value = match value {
            NoteValue::Metric(v) => json_number(*v),
            NoteValue::Text(text) => Value::String(text.clone()),
        };
        (key.to_owned(), Noted { value, date: rfc3339(note.time_ms, 0), by: note.by.clone() })
    };
    Ok(Json(NotesInfo { commit: id.to_hex(), notes: all.on(id).map(one).collect() }))
}
