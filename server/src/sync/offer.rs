//! Fetch plans: which of the objects that a client wants the repository has, and in which packs.

use crate::{
    api::Binary,
    request::prelude::*,
    sync::{ids_of, octets, standalone},
};
use mdl_objects::Kind;
use mdl_remote::sync::{Filter, Want};

/// Ids of a kind in one request.
const MAX_IDS: usize = 1 << 16;
/// Patterns of one request, and the longest.
const MAX_PATTERNS: usize = 256;
const LONGEST: usize = 512;
/// Decoded bytes that one request may have encoded anew; a single tensor may be longer.
const MAX_LOGICAL: u64 = 4 << 30;

/// What the client wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncWant {
    /// Commits and annotated tags (64 hex digits), wanted with their history; at most 65,536.
    #[serde(default)]
    tips: Vec<String>,
    /// Single objects, wanted without anything they name; at most 65,536.
    #[serde(default)]
    objects: Vec<String>,
    /// Commits that the client has, with all their history and contents; at most 65,536. Unknown ones are ignored.
    #[serde(default)]
    haves: Vec<String>,
    /// Of the haves only the commits are sure to be there.
    #[serde(default)]
    partial: bool,
    /// Contents are wanted only of this many generations, the tips being the first.
    #[schema(minimum = 1)]
    depth: Option<u32>,
    /// Files and tensors that are wanted: `FILE` or `FILE:TENSOR`, both globs; left out: all.
    only: Option<Vec<String>>,
}

/// Tensors that are wanted whole.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncTensors {
    /// Ids (64 hex digits), at most 65,536.
    tensors: Vec<String>,
}

fn only(patterns: Option<Vec<String>>) -> Result<Option<Filter>> {
    let Some(patterns) = patterns else { return Ok(None) };
    if patterns.len() > MAX_PATTERNS || patterns.iter().any(|p| p.len() > LONGEST) {
        let message = format!("more than {MAX_PATTERNS} patterns, or one of more than {LONGEST} bytes");
        return Err(Problem::too_large(message));
    }
    Ok(Some(Filter::new(&patterns)?))
}

fn want(asked: SyncWant) -> Result<Want> {
    if asked.depth == Some(0) {
        return Err(Problem::usage("depth is at least 1"));
    }
    Ok(Want {
        tips: ids_of("tips", &asked.tips, MAX_IDS)?,
        objects: ids_of("objects", &asked.objects, MAX_IDS)?,
        haves: ids_of("haves", &asked.haves, MAX_IDS)?,
        partial: asked.partial,
        depth: asked.depth,
        only: only(asked.only)?,
    })
}

/// What the repository has of what is wanted
///
/// The answer is a plan (docs/protocol.md): the objects, and where in which packs their encoded bytes lie.
#[utoipa::path(
    post, path = "/offer", tag = "sync", request_body = SyncWant,
    responses((status = 200, body = Binary, content_type = "application/octet-stream"))
)]
pub(super) async fn offer(Read(access): Read, Body(asked): Body<SyncWant>) -> Result<Response> {
    let want = want(asked)?;
    let plan = access.heavy(move |access, watch| {
        let repo = &access.repo;
        repo.odb().refresh();
        // Tips that are no commits are refused before the walk.
        for tip in &want.tips {
            repo.odb().find(&mdl_repo::peel(repo, tip)?, Kind::Commit)?;
        }
        let plan = mdl_remote::sync::plan_transfer(repo, &want, watch).map_err(|e| hide_promisor(repo, e))?;
        Ok(octets(plan.encode()?))
    });
    plan.await
}

/// Hides the promisor's URL of a partial repository, which may be a local path: it goes to the log only.
fn hide_promisor(repo: &Repo, error: RepoError) -> Problem {
    let is_path = |url: &str| !url.contains("://") || url.starts_with("file:");
    let inside = repo.config().remotes().values().any(|r| r.partial && is_path(&r.url));
    if !matches!(error, RepoError::User { .. }) || !inside {
        return error.into();
    }
    tracing::warn!(%error, "cannot offer");
    Problem::refused("the repository that was asked is a partial clone of another and lacks what is wanted")
        .hint("ask its administrator where the whole one is, and clone from there")
}

/// Have tensors encoded to stand alone
///
/// For a client that lacks their delta bases. They are put into a pack that is kept for a day, longer if it is asked
/// for again. More than 4 GiB of tensors at once are refused with 413, unless it is a single one: ask for fewer then.
#[utoipa::path(
    post, path = "/whole", tag = "sync", request_body = SyncTensors,
    responses((status = 200, body = Binary, content_type = "application/octet-stream"))
)]
pub(super) async fn whole(Read(access): Read, Body(asked): Body<SyncTensors>) -> Result<Response> {
    let mut ids = ids_of("tensors", &asked.tensors, MAX_IDS)?;
    ids.sort();
    ids.dedup();
    let plan = access.heavy(move |access, watch| {
        access.repo.odb().refresh();
        let mut sum = 0u64;
        for id in &ids {
            sum = sum.saturating_add(access.repo.odb().find(id, Kind::Tensor)?.record.logical);
        }
        if sum > MAX_LOGICAL && ids.len() > 1 {
            let message = format!("{sum} bytes of tensors, more than {MAX_LOGICAL}");
            return Err(Problem::too_large(message).hint("ask for fewer at once"));
        }
        Ok(octets(standalone::make(access, &ids, watch)?.encode()?))
    });
    plan.await
}
