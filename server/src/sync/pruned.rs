//! Sync route for marks of versions that gave up contents where they come from: these must not count as missing.

use crate::{api, request::prelude::*};
use mdl_repo::{LeftOut, PrunedMark};
use std::collections::BTreeMap;

/// Marks of one request, and bytes of the rules of one.
const MAX_MARKS: usize = 2048;
const LONGEST: usize = 4096;

/// A file that a version lost.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncLeftOut {
    /// Whether `id` is a manifest's, else a blob's.
    manifest: bool,
    /// Its contents (64 hex digits).
    id: String,
    /// Bytes.
    size: u64,
    /// Whether it is executable.
    executable: bool,
}

/// A version that was pruned, that aged, or that lost its optimizer state.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SyncMark {
    /// Its commit (64 hex digits).
    commit: String,
    /// When: milliseconds since 1970.
    time_ms: i64,
    /// The rules none of which kept it, in words; at most 4,096 bytes.
    rules: String,
    /// Of a version that aged: root directory of the approximation that stands for its exact contents, as its commit
    /// names it (64 hex digits).
    tree: Option<String>,
    /// Of a version that lost its optimizer state, by their paths: the files that `tree` lacks. With them it is the
    /// tree of the version's approximation, or of its exact contents where its commit names no approximation.
    #[serde(default)]
    without: BTreeMap<String, SyncLeftOut>,
}

/// Versions that gave up contents.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncMarks {
    /// At most 2,048.
    pruned: Vec<SyncMark>,
}

fn read(asked: SyncMark) -> Result<(Id, PrunedMark)> {
    if asked.rules.len() > LONGEST {
        return Err(Problem::too_large(format!("rules of more than {LONGEST} bytes")));
    }
    let stand_in = asked.tree.as_deref().map(api::id).transpose()?;
    let mut without = BTreeMap::new();
    for (path, SyncLeftOut { manifest, id, size, executable }) in asked.without {
        without.insert(path, LeftOut { manifest, id: api::id(&id)?, size, executable });
    }
    Ok((api::id(&asked.commit)?, PrunedMark { time_ms: asked.time_ms, rules: asked.rules, stand_in, without }))
}

/// Note which versions were pruned where they come from
///
/// After their commits were sent, before refs move. A mark counts only for a commit that is here without its contents
/// and that no ref reaches yet; others are passed over. Asking again does no more.
#[utoipa::path(
    post, path = "/pruned", tag = "sync", request_body = SyncMarks,
    responses((status = 204, description = "Noted"))
)]
pub(super) async fn note(Write(access): Write, Body(asked): Body<SyncMarks>) -> Result<StatusCode> {
    if asked.pruned.len() > MAX_MARKS {
        return Err(Problem::too_large(format!("more than {MAX_MARKS} marks")));
    }
    let marks = asked.pruned.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    work(move || {
        mdl_remote::sync::receive_pruned(&access.repo, &marks)?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
