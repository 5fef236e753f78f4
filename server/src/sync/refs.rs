//! Sync routes for refs: lists branches and tags, and moves several at once.

use crate::{
    api,
    request::prelude::*,
    sync::{PROTOCOL, serving, theirs},
};
use mdl_remote::sync::RefMove;
use mdl_repo::{NOTES, check_ref_name};

/// Moves of one request.
const MAX_MOVES: usize = 4096;

/// A branch or tag, and what it holds.
#[derive(Debug, Serialize, ToSchema)]
struct SyncRef {
    /// Its full name.
    #[schema(example = "refs/heads/main")]
    name: String,
    /// A commit's id; of an annotated tag the tag's.
    id: String,
}

/// All branches and tags, and the notes on versions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SyncRefs {
    /// Version of the protocol that the server speaks.
    protocol: u32,
    /// Branch that HEAD is on, by its short name; none: it is on a commit by itself.
    head: Option<String>,
    /// By full name.
    refs: Vec<SyncRef>,
}

/// A ref that is to move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncMove {
    /// Full name of a branch or tag.
    #[schema(example = "refs/heads/main")]
    name: String,
    /// Its expected value; null: it does not exist.
    expected: Option<String>,
    /// Its new value; null: delete it.
    new: Option<String>,
    /// Allow a move that is no fast-forward, or a changed tag.
    #[serde(default)]
    force: bool,
}

/// Refs that are to move, one after the other.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncMoves {
    moves: Vec<SyncMove>,
    /// For the reflog.
    #[serde(default)]
    message: String,
}

/// Outcome of a move.
#[derive(Debug, Serialize, ToSchema)]
struct SyncMoved {
    /// The ref's full name.
    name: String,
    /// Whether it has the new value.
    ok: bool,
    /// Why not.
    problem: Option<ProblemDocument>,
}

/// Outcomes of the moves, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SyncOutcome {
    refs: Vec<SyncMoved>,
}

/// Where branches and tags stand
#[utoipa::path(get, path = "/refs", tag = "sync", responses((status = 200, body = SyncRefs)))]
pub(super) async fn list(Read(access): Read) -> Result<Json<SyncRefs>> {
    work(move || {
        let refs = access.repo.refs();
        let mut all = Vec::new();
        for prefix in [HEADS, TAGS] {
            let found = refs.list(prefix)?.into_iter();
            all.extend(found.map(|(short, id)| SyncRef { name: format!("{prefix}{short}"), id: id.to_hex() }));
        }
        let notes = refs.get(&RefName::parse(NOTES)?)?;
        all.extend(notes.map(|id| SyncRef { name: NOTES.to_owned(), id: id.to_hex() }));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Json(SyncRefs { protocol: PROTOCOL, head: revision::head_branch(&access.repo)?, refs: all }))
    })
    .await
}

fn read(asked: SyncMove) -> Result<RefMove> {
    let notes = (asked.name == NOTES && asked.new.is_some()).then_some("notes");
    let short = asked.name.strip_prefix(HEADS).or(asked.name.strip_prefix(TAGS)).or(notes);
    let shown = || asked.name.chars().take(200).collect::<String>();
    let short = short.ok_or_else(|| {
        Problem::usage(format!("{:?} is neither a branch nor a tag", shown()))
            .hint("name refs/heads/... or refs/tags/...")
    })?;
    check_ref_name(short)?;
    let id = |text: &Option<String>| text.as_deref().map(api::id).transpose();
    Ok(RefMove { expected: id(&asked.expected)?, new: id(&asked.new)?, force: asked.force, name: asked.name })
}

/// Move branches and tags
///
/// Each by compare-and-swap, after a check that all new values are here; if something is missing none is moved, and the
/// answer is 404. A move that has happened already is reported as done: the same request can be sent again.
#[utoipa::path(
    post, path = "/refs", tag = "sync", request_body = SyncMoves, responses((status = 200, body = SyncOutcome))
)]
pub(super) async fn move_all(Write(access): Write, Body(asked): Body<SyncMoves>) -> Result<Json<SyncOutcome>> {
    if asked.moves.len() > MAX_MOVES {
        return Err(Problem::too_large(format!("more than {MAX_MOVES} moves")));
    }
    let line = api::reflog_line(&asked.message);
    let moves = asked.moves.into_iter().map(read).collect::<Result<Vec<RefMove>>>()?;
    work(move || {
        let line = if line.is_empty() { "push" } else { &line };
        Ok(Json(moved(&access, &moves, line)?))
    })
    .await
}

fn moved(access: &Access, moves: &[RefMove], line: &str) -> Result<SyncOutcome> {
    let repo = &*access.repo;
    let who = access.signature();
    // Refs that are there already count as done and send no event.
    let before = moves.iter().map(|m| repo.refs().get(&RefName::parse(&m.name)?));
    let before = before.collect::<mdl_repo::Result<Vec<Option<Id>>>>()?;
    let done = mdl_remote::sync::receive_refs(repo, moves, false, who.as_ref(), line, &serving(&access.app))
        .map_err(theirs)?;
    let mut refs = Vec::with_capacity(moves.len());
    for ((m, before), done) in moves.iter().zip(before).zip(done) {
        if done.is_ok() && before != m.new && m.name != NOTES {
            access.moved(&m.name, m.expected, m.new);
        }
        refs.push(SyncMoved {
            name: m.name.clone(),
            ok: done.is_ok(),
            problem: done.err().map(|e| theirs(e).document()),
        });
    }
    Ok(SyncOutcome { refs })
}
