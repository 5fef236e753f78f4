//! Uploads by the Xet protocol, which the Hugging Face clients use where `hf_xet` is installed.
//!
//! The client cuts files into chunks, sends these in *xorbs* and then a *shard*, which says what chunks each file is
//! made of. Here the files are put together at once, checked by their SHA-256 and kept as LFS objects: from there on
//! they are committed as those are. Chunks are not stored, and nothing is downloaded this way. As the client remembers
//! for each address which chunks are there, each upload gets an address of its own.
//!
//! Specified at <https://huggingface.co/docs/xet>. Of what is optional there is no deduplication between uploads (404),
//! and no second version of the shard route (404).

pub mod internals;
mod shard;
mod xorb;

use crate::{
    hub::{preupload::UploadQuery, sha256_of, site::Site},
    incoming::{Holder, Incoming, Session},
    request::prelude::*,
};
use mdl_repo::Progress;
use serde_json::{Value, json};
use shard::FileInfo;
use std::{
    fs::File,
    io::{self, BufReader, Read},
};
use xorb::Xorbs;

/// Most bytes of a xorb, and of a shard: the protocol's limit is 64 MiB, before what frames them.
const MOST: u64 = 80 << 20;
/// Most files of a shard. The clients send 256 at once.
const MOST_FILES: u64 = 16_384;
/// The protocol's chunks have 8 KiB or more, but for the last of a file. This much of a file for each of its chunks is
/// enough here, and `FEW` chunks are always: so the work is as large as what is written.
const LEAST: u64 = 1024;
const FEW: u64 = 1024;
/// An upload of more bytes than this may have several shards, which share xorbs: a client begins another one at 64 MiB,
/// which at the smallest chunks (8 KiB, 48 bytes in a shard) is at 11 GiB.
const ONE_SHARD: u64 = 8 << 30;
/// How long an address is good for, in seconds.
const SECONDS: i64 = 24 * 3600;
const CAS_URL: HeaderName = HeaderName::from_static("x-xet-cas-url");
const TOKEN: HeaderName = HeaderName::from_static("x-xet-access-token");
const EXPIRES: HeaderName = HeaderName::from_static("x-xet-token-expiration");

/// `GET /api/models/{owner}/{name}/xet-write-token/{rev}`: where to send chunks, and with what token: the caller's own.
pub(super) async fn write_token(
    Write(access): Write,
    site: Site,
    Query(query): Query<UploadQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    query.check()?;
    let sent = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.split_once(' '));
    let token = sent.map_or("", |(_, token)| token.trim());
    let expires = jiff::Timestamp::now().as_second().saturating_add(SECONDS);
    let url = site.link(&format!("/{}/info/lfs/xet/{}", access.name, Session::new()?));
    let text = |value: &str| HeaderValue::from_str(value).map_err(Problem::internal);
    let named = [(CAS_URL, text(&url)?), (TOKEN, text(token)?), (EXPIRES, HeaderValue::from(expires))];
    let told = json!({"casUrl": url, "accessToken": token, "exp": expires});
    Ok((HeaderMap::from_iter(named), Json(told)).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct XorbPath {
    session: String,
    hash: String,
}

/// `POST .../xet/{session}/v1/xorbs/default/{hash}`: keeps chunks until the shard comes.
pub(super) async fn put_xorb(
    Write(access): Write,
    Path(at): Path<XorbPath>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Json<Value>> {
    let session = Session::parse(&at.session)?;
    sha256_of(&at.hash).ok_or_else(|| wrong("xorbs are called by 64 hex digits"))?;
    let incoming = access.app.incoming();
    let holder = access.holder()?;
    let received = incoming.receive(&holder, body.into_data_stream(), length(&headers), MOST).await?;
    let app = access.app.clone();
    work(move || app.incoming().xorbs.keep(&holder, &session, &at.hash, received)).await?;
    Ok(Json(json!({"was_inserted": true})))
}

#[derive(Debug, Deserialize)]
pub(super) struct ShardPath {
    session: String,
}

/// `POST .../xet/{session}/v1/shards`: puts the files together and keeps them as LFS objects.
pub(super) async fn put_shard(
    Write(access): Write,
    Path(at): Path<ShardPath>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Json<Value>> {
    let session = Session::parse(&at.session)?;
    let holder = access.holder()?;
    let received = access.app.incoming().receive(&holder, body.into_data_stream(), length(&headers), MOST).await?;
    access
        .heavy(move |access, progress| {
            let incoming = access.app.incoming();
            let open = || File::open(received.path()).map(BufReader::new).map_err(crate::problem::storage_failed);
            check(open()?, incoming.max_upload)?;
            let mut xorbs = Xorbs::new(|hash: &str| File::open(incoming.xorbs.path(&holder.repo, &session, hash)));
            for file in shard::files(open()?)? {
                put_together(access, incoming, &holder, &file?, &mut xorbs, progress)?;
            }
            incoming.xorbs.drop_session(&holder.repo, &session, ONE_SHARD);
            Ok(Json(json!({"result": 1})))
        })
        .await
}

/// Looks over a shard before anything is made of it: what it asks for is no more than one upload may be.
fn check(shard: impl Read, max_upload: u64) -> Result<()> {
    let (mut files, mut bytes) = (0, 0u64);
    for file in shard::files(shard)? {
        let file = file?;
        (files, bytes) = (files + 1, bytes.saturating_add(file.size()));
        if bytes > max_upload {
            return Err(Problem::too_large(format!("the files of the shard have more than {max_upload} bytes")));
        }
        if files > MOST_FILES {
            return Err(wrong(&format!("a shard may have {MOST_FILES} files here")));
        }
        if file.chunks() > file.size() / LEAST + FEW {
            return Err(wrong("the chunks of a file are smaller than the protocol has them"));
        }
    }
    Ok(())
}

/// Makes a file of its chunks, unless it is here.
fn put_together(
    access: &Access,
    incoming: &Incoming,
    holder: &Holder,
    file: &FileInfo,
    xorbs: &mut Xorbs<impl Fn(&str) -> io::Result<File>>,
    progress: &dyn Progress,
) -> Result<()> {
    let gone = || if progress.stopped() { Err(Problem::usage("the client is gone")) } else { Ok(()) };
    gone()?;
    let oid = hex::encode(file.sha256);
    if incoming.objects.find(&holder.repo, &access.repo, &oid).is_some_and(|found| found.size == file.size()) {
        return Ok(());
    }
    let made = incoming.make(holder, file.size(), |put| {
        file.segments.iter().try_for_each(|segment| gone().and_then(|()| xorbs.read(segment, put)))
    })?;
    if made.sha256 != file.sha256 {
        return Err(wrong(&format!("the chunks make another SHA-256 than {oid}")));
    }
    incoming.objects.keep(holder, &oid, made)
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// What was sent is not as the protocol has it.
fn wrong(message: &str) -> Problem {
    Problem::refused(message).hint("upload it again")
}

#[cfg(test)]
mod tests;
