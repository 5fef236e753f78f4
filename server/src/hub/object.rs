//! One LFS object on its way in or out. Neighbours: `lfs` said where it goes, `objects` keeps it, `links` may allow it. It must not
//! know versions.

use super::{
    files::{hex, sha256_of},
    links::Grant,
    objects::Place,
    raw,
};
use crate::{
    app::{App, work},
    auth::{Caller, Read, Scope, Write},
    content::{self, Asked, Validator},
    extract::{Body, Path, Query},
    problem::{Problem, Result},
    registry::RepoName,
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

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
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "user", message).hint("nothing was kept: upload it again")
}

/// `GET /{owner}/{name}.git/info/lfs/objects/{oid}`.
pub(super) async fn download(
    State(app): State<App>,
    Read(access): Read,
    Path(at): Path<At>,
    asked: Asked,
) -> Result<Response> {
    let (app2, access2, oid) = (app.clone(), access.clone(), at.oid.clone());
    let found = work(move || Ok(app2.hub().objects.find(&access2.name, &access2.repo, &oid))).await?;
    let object = found.ok_or_else(|| no_object(&at.oid))?;
    match object.place {
        Place::Raw(path) => raw::respond(&path, object.size, &at.oid, &asked).await,
        Place::Version(entry) => content::respond(&app, &access.repo, &at.oid, &entry, &asked, Validator::Sha256).await,
    }
}

/// `PUT /{owner}/{name}.git/info/lfs/objects/{oid}`.
pub(super) async fn upload(
    State(app): State<App>,
    caller: Caller,
    Path(at): Path<At>,
    Query(grant): Query<Grant>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<Response> {
    let name = RepoName::new(&at.owner, at.name.strip_suffix(".git").unwrap_or(&at.name))?;
    let linked = caller.is_anonymous() && app.hub().links.allows(&app, &name, &at.oid, &grant)?;
    match linked {
        true => {
            crate::body_limit::allow(Scope::Write);
            drop(app.repo(&name).await?);
        }
        false => drop(app.access(caller, name.clone(), Scope::Write).await?),
    }
    let digest = sha256_of(&at.oid).ok_or_else(|| lie("objects are called by their SHA-256"))?;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.zip(grant.size).is_some_and(|(a, b)| a != b) {
        return Err(lie("the upload is not as long as was said"));
    }
    let received = app.spool().receive(body.into_data_stream(), grant.size).await;
    let received = received.map_err(|e| match (e.status, grant.size) {
        (StatusCode::PAYLOAD_TOO_LARGE, Some(size)) if size < app.spool().max() => {
            lie("the upload is longer than was said")
        }
        _ => e,
    })?;
    if grant.size.is_some_and(|size| size != received.len) {
        return Err(lie("the upload is shorter than was said"));
    }
    if received.sha256 != digest {
        return Err(lie(&format!(
            "the bytes have another SHA-256: {}",
            hex(&received.sha256)
        )));
    }
    work(move || app.hub().objects.keep(&name, &at.oid, received)).await?;
    Ok(StatusCode::OK.into_response())
}

/// `POST /{owner}/{name}.git/info/lfs/verify`: whether an object has arrived.
pub(super) async fn verify(State(app): State<App>, Write(access): Write, Body(named): Body<Named>) -> Result<()> {
    work(move || {
        let found = app.hub().objects.find(&access.name, &access.repo, &named.oid);
        match found {
            Some(object) if object.size == named.size => Ok(()),
            Some(_) => Err(lie("the object has another length")),
            None => Err(no_object(&named.oid)),
        }
    })
    .await
}
