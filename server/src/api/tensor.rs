//! Route `GET .../tensor/{rev}/{path}`: one tensor's values at a revision, or a slice of them.

use crate::{
    api::files,
    content::{Asked, ByteResponse, PART, Reader, Sink, stream_body},
    request::prelude::*,
};
use axum::body::Body;
use mdl_objects::Named;
use mdl_repo::{Axis, Elements, Slice, npy_header, safetensors_header, shape_of};
use std::ops::Range;

const DTYPE: HeaderName = HeaderName::from_static("x-mdl-dtype");
const SHAPE: HeaderName = HeaderName::from_static("x-mdl-shape");
/// Bytes decoded at a time for a part of a tensor.
const CHUNK: u64 = 32 << 20;

/// Format of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// The elements, little-endian, row by row.
    #[default]
    Raw,
    /// A numpy file.
    Npy,
    /// A safetensors file with this one tensor.
    Safetensors,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TensorQuery {
    /// The tensor's name in the file.
    name: String,
    /// Default: `raw`.
    #[serde(default)]
    #[param(inline, required = false)]
    format: Format,
    /// As numpy's: `0:10,:`, `-1`, `::2`, `...,0`. Steps go forwards.
    slice: Option<String>,
}

/// What is to be sent.
struct Wanted {
    elements: Elements,
    axes: Vec<Axis>,
    /// The stored tensor, if all of it is wanted unchanged.
    whole: Option<Id>,
    shape: Vec<u64>,
    head: Vec<u8>,
    len: u64,
    etag: String,
}

fn find(repo: &Repo, rev: &str, path: &str, query: &TensorQuery) -> Result<Wanted> {
    let (_, entry) = files::find(repo, rev, path)?;
    let missing = || RepoError::not_found(Missing::Tensor, format!("{} in {path}", query.name));
    if entry.mode != Mode::Manifest {
        return Err(missing().into());
    }
    let manifest = repo.odb().manifest(&entry.id)?;
    let elements = Elements::find(&manifest, &query.name, path)?;
    let axes = match &query.slice {
        None => elements.all(),
        Some(text) => text.parse::<Slice>().map_err(Problem::usage)?.apply(&elements.shape)?,
    };
    let shape = shape_of(&axes);
    let head = match query.format {
        Format::Raw => Vec::new(),
        Format::Npy => npy_header(elements.dtype, &shape),
        Format::Safetensors => safetensors_header(&[(&query.name, elements.dtype, &shape)])?,
    };
    let named = manifest.find(&query.name).ok_or_else(missing)?;
    let all = axes.iter().zip(&elements.shape).all(|(a, &n)| *a == Axis::whole(n));
    let whole = match named {
        Named::Tensor(t) if all && query.format == Format::Raw => Some(t.id),
        _ => None,
    };
    let (Named::Tensor(t) | Named::View(t, _)) = named;
    let mut seen = blake3::Hasher::new();
    seen.update(format!("{} {axes:?} ", t.id).as_bytes());
    if let Named::View(_, v) = named {
        seen.update(format!("{} {} {:?} {:?} ", v.offset, v.dtype, v.shape, v.strides).as_bytes());
    }
    seen.update(&head);
    let etag = seen.finalize().to_hex().to_string();
    let too_long = || RepoError::user("these are more bytes than anyone can hold", "choose a part of them");
    let len = elements.byte_len(&axes)?.checked_add(head.len() as u64).ok_or_else(too_long)?;
    Ok(Wanted { elements, axes, whole, shape, head, len, etag })
}

async fn send(reader: &Reader, wanted: Wanted, bytes: Range<u64>) -> Result<Body> {
    let (repo, len) = (reader.repo.clone(), bytes.end - bytes.start);
    stream_body(&reader.app, &reader.party, len, PART, move |sink| match wanted.whole {
        Some(id) if len < wanted.len => part(&repo, &id, bytes, sink),
        _ => {
            sink(&wanted.head)?;
            Ok(wanted.elements.stream(repo.odb(), &wanted.axes, sink)?)
        }
    })
    .await
}

fn part(repo: &Repo, id: &Id, bytes: Range<u64>, sink: Sink<'_>) -> Result<()> {
    let (tensor, mut at) = (repo.odb().tensor(id)?, bytes.start);
    while at < bytes.end {
        let chunk = tensor.range(at, CHUNK.min(bytes.end - at))?;
        sink(&chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// Download one tensor, or a slice of it
///
/// Only the segments that hold the slice are decoded. A raw tensor that is asked for as a whole can be had in parts
/// (`Range`).
#[utoipa::path(
    get, path = "/tensor/{rev}/{*path}", tag = "contents",
    params(
        TensorQuery, ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-None-Match" = Option<String>, Header), ("If-Range" = Option<String>, Header),
    ),
    responses(
        (status = 200, description = "The values", body = super::Binary, content_type = "application/octet-stream",
            headers(
                ("X-Mdl-Dtype" = String, description = "Element type"),
                ("X-Mdl-Shape" = String, description = "`10,768`; empty: one number"),
            )),
        (status = 206, description = "A part of them", body = super::Binary, content_type = "application/octet-stream"),
        (status = 304, description = "The client has them"),
    )
)]
pub(super) async fn get(
    Read(access): Read,
    Path(at): Path<AtFile>,
    Query(query): Query<TensorQuery>,
    asked: Asked,
) -> Result<Response> {
    let wanted = access.work(move |repo| find(repo, &at.rev, &at.path, &query)).await?;
    let mut offer = ByteResponse::attachment("bytes", wanted.len, wanted.etag.clone());
    offer.ranges = wanted.whole.is_some();
    let dtype = HeaderValue::from_static(wanted.elements.dtype.name());
    let dims: Vec<String> = wanted.shape.iter().map(u64::to_string).collect();
    let shape = HeaderValue::from_str(&dims.join(",")).map_err(Problem::internal)?;
    let reader = access.reader();
    let mut response = offer.answer(&asked, async |bytes| send(&reader, wanted, bytes).await).await?;
    response.headers_mut().extend([(DTYPE, dtype), (SHAPE, shape)]);
    Ok(response)
}

/// Ask for a tensor's length, type, shape and ETag
#[utoipa::path(
    head, path = "/tensor/{rev}/{*path}", tag = "contents",
    params(TensorQuery, ("If-None-Match" = Option<String>, Header)),
    responses(
        (status = 200, description = "There is such a tensor"),
        (status = 304, description = "The client has it"),
        (status = "default", description = "As for GET, without the document"),
    )
)]
pub(super) async fn head(read: Read, at: Path<AtFile>, query: Query<TensorQuery>, asked: Asked) -> Result<Response> {
    get(read, at, query, asked).await
}
