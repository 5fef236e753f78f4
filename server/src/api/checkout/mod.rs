//! Route `GET .../checkout/{rev}`: a version as one stream, its files as a tar or its tensors as safetensors.

mod archive;
mod gather;

use crate::{
    content::{Asked, ByteResponse, STREAM_UNITS, Sink, stream_body},
    request::prelude::*,
};
use archive::Archive;
use gather::Gathered;
use mdl_repo::{Odb, check_path};

/// What a version comes in.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Its files.
    #[default]
    Tar,
    /// Its tensors.
    Safetensors,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CheckoutQuery {
    /// Default: `tar`.
    #[serde(default)]
    #[param(inline, required = false)]
    format: Format,
    /// Only files that match: `*.safetensors` in any directory, `a/*.json` in one, `{a,b}*` either.
    only: Option<String>,
}

/// Writes a version.
type WriteVersion = Box<dyn FnOnce(&Odb, Sink<'_>) -> Result<()> + Send>;

/// A version laid out.
struct Layout {
    len: u64,
    media_type: &'static str,
    write: WriteVersion,
}

impl Layout {
    fn new(repo: &Repo, commit: &Id, query: &CheckoutQuery) -> Result<Layout> {
        let files = mdl_repo::files_matching(repo, commit, query.only.as_slice())?;
        Ok(match query.format {
            Format::Tar => {
                // What a checkout writes nowhere, no archive brings.
                files.keys().try_for_each(|path| check_path(path))?;
                let tar = Archive::new(files, repo.odb().commit(commit)?.author.time_ms)?;
                let (len, media_type) = (tar.len, "application/x-tar");
                Layout { len, media_type, write: Box::new(move |odb, sink| tar.stream_files(odb, sink)) }
            }
            Format::Safetensors => {
                let gathered = Gathered::new(repo, &files)?;
                let (len, media_type) = (gathered.len, "application/octet-stream");
                Layout { len, media_type, write: Box::new(move |odb, sink| gathered.stream_files(odb, sink)) }
            }
        })
    }
}

/// Download a version
///
/// `tar`: its files, the executable bit kept, all with the time of the commit; the same version is the same archive,
/// byte for byte. `safetensors`: all tensors of its files under their names, as one file; where files share a name, it
/// has `PATH:` in front in each. A tensor that several names share is there once for each.
#[utoipa::path(
    get, path = "/checkout/{rev}", tag = "contents",
    params(CheckoutQuery, ("If-None-Match" = Option<String>, Header)),
    responses(
        (status = 200, description = "The version",
            content((super::Binary = "application/x-tar"), (super::Binary = "application/octet-stream"))),
        (status = 304, description = "The client has it"),
    )
)]
pub(super) async fn checkout(
    Read(access): Read,
    Path(at): Path<AtRev>,
    Query(query): Query<CheckoutQuery>,
    asked: Asked,
) -> Result<Response> {
    let layout = access.work(move |repo| {
        let version = Version::read(repo, revision::resolve(repo, &at.rev)?)?;
        let asked = format!("{} {:?} {:?}", version.cache_id(), query.format, query.only);
        Ok((Layout::new(repo, &version.id, &query)?, blake3::hash(asked.as_bytes()).to_hex().to_string()))
    });
    let (Layout { len, media_type, write }, etag) = layout.await?;
    let (reader, repo) = (access.reader(), access.repo);
    let mut response = ByteResponse::attachment("bytes", len, etag);
    (response.ranges, response.media_type) = (false, media_type);
    let make = move |sink: Sink<'_>| write(repo.odb(), sink);
    response.answer(&asked, async |_| stream_body(&reader.app, &reader.party, len, STREAM_UNITS, make).await).await
}
