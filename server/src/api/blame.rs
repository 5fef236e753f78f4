//! Route `GET .../blame`: in which versions tensors changed, and by how much.

use crate::{
    api::entry::{Number, rfc3339},
    request::prelude::*,
};
use mdl_repo::{Amounts, Blame, BlameQuery, BlamedTensor, BlamedVersion, Selection, layer_of};

/// Versions looked at: by default, and at most.
const VERSIONS: usize = 100;
const MAX_VERSIONS: usize = 1000;
/// Most tensors, and changes of all of them, in an answer.
const MAX_TENSORS: usize = 20_000;
const MAX_CHANGES: usize = 200_000;

/// Of which changes the amount is computed.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum By {
    /// Of none: no tensor is decoded.
    #[default]
    None,
    /// Of each tensor's last one.
    Last,
    /// Of all.
    All,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct BlameParams {
    /// The last version. Default: HEAD.
    rev: Option<String>,
    /// Only tensors that this matches: `FILE:TENSOR` or `:TENSOR`, as globs; a `FILE` means all of its tensors.
    glob: Option<String>,
    /// Of which changes the amount is computed, which decodes the tensor twice each. Default: none.
    #[serde(default)]
    #[param(inline)]
    by: By,
    /// Only what changed this row, counted from 0 along the first axis.
    row: Option<u64>,
    /// The newest versions that are looked at.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// In which versions tensors changed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BlameInfo {
    /// By first parents, oldest first.
    versions: Vec<VersionInfo>,
    /// Whether there are older versions: what was there in the first one is then from before.
    more: bool,
    tensors: Vec<BlamedInfo>,
    /// Tensors that are left out, because the answer is long enough.
    left_out: u64,
}

/// A version that was looked at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BlamedVersion)]
struct VersionInfo {
    commit: String,
    step: Option<u64>,
    /// When: RFC 3339.
    date: String,
    /// The first line of its message.
    message: String,
    /// Whether its contents are gone: what changed in it counts for the next one that has some.
    gone: bool,
}

/// A tensor, and when it changed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BlamedTensor)]
struct BlamedInfo {
    path: String,
    name: String,
    /// The part of the name that tells its layer.
    layer: String,
    dtype: &'static str,
    shape: Vec<u64>,
    /// Oldest first.
    changes: Vec<ChangeInfo>,
}

/// A change of a tensor.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BlamedChange)]
struct ChangeInfo {
    /// The version, by its place in `versions`.
    version: usize,
    /// `added`, `modified` or `deleted`.
    change: &'static str,
    /// ||b - a|| / ||a||, where it was asked for and both have one type and shape.
    rel_l2: Option<Number>,
}

/// Say in which versions each tensor changed
///
/// Ids alone tell: nothing is decoded unless amounts or a row are asked for, which can take long. It ends when the
/// client goes away.
#[utoipa::path(get, path = "/blame", tag = "versions", params(BlameParams), responses((status = 200, body = BlameInfo)))]
pub(super) async fn blame(Read(access): Read, Query(query): Query<BlameParams>) -> Result<Json<BlameInfo>> {
    let found = access.heavy(move |access, watch| {
        let repo = &*access.repo;
        let id = revision::resolve(repo, query.rev.as_deref().unwrap_or("HEAD"))?;
        let asked = BlameQuery {
            selection: Selection::new(&query.glob.into_iter().collect::<Vec<_>>())?,
            amounts: match query.by {
                By::None => Amounts::None,
                By::Last => Amounts::Last,
                By::All => Amounts::All,
            },
            row: query.row,
            versions: query.limit.unwrap_or(VERSIONS).clamp(1, MAX_VERSIONS),
        };
        Ok(Json(bounded(mdl_repo::blame(repo, &id, &asked, watch)?)))
    });
    found.await
}

fn version(v: BlamedVersion) -> VersionInfo {
    let date = rfc3339(v.time_ms, 0);
    VersionInfo { commit: v.id.to_hex(), step: v.step, date, message: v.subject, gone: v.gone }
}

fn tensor(t: BlamedTensor) -> BlamedInfo {
    let change = |c: &mdl_repo::BlamedChange| ChangeInfo {
        version: c.version,
        change: c.change.name(),
        rel_l2: c.rel_l2.map(Number::from),
    };
    BlamedInfo {
        layer: layer_of(&t.name).to_owned(),
        dtype: t.dtype.name(),
        changes: t.changes.iter().map(change).collect(),
        path: t.path,
        name: t.name,
        shape: t.shape,
    }
}

/// Leaves out what is too much, and counts it.
fn bounded(found: Blame) -> BlameInfo {
    let all = found.tensors.len();
    let mut room = MAX_CHANGES;
    let fits = |t: &BlamedTensor| {
        let left = room.checked_sub(t.changes.len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let tensors: Vec<BlamedInfo> = found.tensors.into_iter().take(MAX_TENSORS).take_while(fits).map(tensor).collect();
    BlameInfo {
        versions: found.versions.into_iter().map(version).collect(),
        more: found.more,
        left_out: (all - tensors.len()) as u64,
        tensors,
    }
}
