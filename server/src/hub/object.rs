//! Download, upload and verification of one LFS object. `lfs` gives its URL, `incoming` keeps it, `links` may allow it.

use crate::{
    auth::{Caller, Scope, record},
    content::{self, Asked, Validator},
    hub::{links::Grant, raw, sha256_of},
    incoming::{Holder, Place},
    listener::Peer,
    middleware::body_limit,
    registry::{RepoKey, RepoName},
    request::prelude::*,
};
use axum::extract::FromRequestParts;
use http::request::Parts;

#[derive(Debug, Deserialize)]
pub(super) struct At {
    owner: String,
    name: String,
    oid: String,
}

/// An object, as clients name it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Named {
    pub(super) oid: String,
    pub(super) size: u64,
}

fn no_object(oid: &str) -> Problem {
    let shown: String = oid.chars().take(80).collect();
    Problem::not_found("object", shown)
}

fn lie(message: &str) -> Problem {
    Problem::refused(message).hint("nothing was kept: upload it again")
}

/// `GET /{owner}/{name}.git/info/lfs/objects/{oid}`.
pub(super) async fn download(Read(access): Read, Path(at): Path<At>, asked: Asked) -> Result<Response> {
    let (reader, oid) = (access.reader(), at.oid.clone());
    let found = work(move || Ok(access.app.incoming().objects.find(&access.key()?, &access.repo, &oid))).await?;
    let object = found.ok_or_else(|| no_object(&at.oid))?;
    match object.place {
        Place::Raw(path) => raw::respond(&path, object.size, at.oid, &asked).await,
        Place::Version(entry) => content::respond(&reader, &at.oid, &entry, &asked, Validator::Sha256).await,
    }
}

/// Extractor: the caller may upload the object of the path, by a signed link for it or with write access.
pub(super) struct Uploader {
    holder: Holder,
    at: At,
    grant: Grant,
}

impl FromRequestParts<App> for Uploader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Uploader> {
        let Path(at) = Path::<At>::from_request_parts(parts, app).await?;
        let name = RepoName::new(&at.owner, at.name.strip_suffix(".git").unwrap_or(&at.name))?;
        let caller = Caller::from_request_parts(parts, app).await?;
        let from = Peer::from_request_parts(parts, app).await?;
        // Errors about the link are shown only to callers with the right.
        let grant = Query::<Grant>::from_request_parts(parts, app).await.map(|Query(grant)| grant);
        let link = grant.as_ref().ok().filter(|grant| caller.is_anonymous() && grant.sig.is_some());
        let holder = match link {
            Some(link) => {
                let no_good = || app.no_good(from.0, "the link is wrong or over, or its token is");
                let holder = linked(app, &name, &at.oid, link).await?.ok_or_else(no_good)?;
                record::note_link(link.by.as_deref().unwrap_or_default(), &name);
                app.refuse_changes(Scope::Write)?;
                body_limit::allow(Scope::Write);
                holder
            }
            None => app.access(caller, name, Scope::Write).await?.holder()?,
        };
        let grant = grant?;
        Ok(Uploader { holder, at, grant })
    }
}

/// `PUT /{owner}/{name}.git/info/lfs/objects/{oid}`.
pub(super) async fn upload(
    State(app): State<App>,
    Uploader { holder, at, grant }: Uploader,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response> {
    let digest = sha256_of(&at.oid).ok_or_else(|| lie("objects are called by their SHA-256"))?;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.zip(grant.size).is_some_and(|(a, b)| a != b) {
        return Err(lie("the upload is not as long as was said"));
    }
    let incoming = app.incoming();
    let (len, max) = (grant.size.or(announced), incoming.max_upload);
    let most = grant.size.unwrap_or(max);
    let received = incoming.receive(&holder, body.into_data_stream(), len, most).await;
    let received = received.map_err(|e| match e.status {
        StatusCode::PAYLOAD_TOO_LARGE if most < max => lie("the upload is longer than was said"),
        _ => e,
    })?;
    if grant.size.is_some_and(|size| size != received.len) {
        return Err(lie("the upload is shorter than was said"));
    }
    if received.sha256 != digest {
        return Err(lie(&format!("the bytes have another SHA-256: {}", hex::encode(received.sha256))));
    }
    work(move || app.incoming().objects.keep(&holder, &at.oid, received)).await?;
    Ok(StatusCode::OK.into_response())
}

/// Returns the access that a link gives, if the repository exists and the link is valid.
async fn linked(app: &App, name: &RepoName, oid: &str, grant: &Grant) -> Result<Option<Holder>> {
    let Ok(repo) = app.repo(name).await else {
        return Ok(None);
    };
    let (app, name, oid, grant) = (app.clone(), name.clone(), oid.to_owned(), grant.clone());
    work(move || {
        let repo = RepoKey::new(&name, &repo)?;
        let token = app.links().allows(&app, &repo, &oid, &grant)?;
        Ok(token.map(|token| Holder { repo, token }))
    })
    .await
}

/// `POST /{owner}/{name}.git/info/lfs/verify`: whether an object has arrived.
pub(super) async fn verify(Write(access): Write, Body(named): Body<Named>) -> Result<()> {
    work(move || match access.app.incoming().objects.find(&access.key()?, &access.repo, &named.oid) {
        Some(object) if object.size == named.size => Ok(()),
        Some(_) => Err(lie("the object has another length")),
        None => Err(no_object(&named.oid)),
    })
    .await
}
