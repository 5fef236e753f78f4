//! Route `POST .../commits`: uploads files and commits them.

mod made;
mod make;
mod meta;
mod receive;
mod replay;
mod tar;

pub(crate) use make::{Files, stored_files};
pub(crate) use replay::Commits;

use crate::request::prelude::*;
use axum::extract::Request;
use made::Made;
use make::{Committed, Order, branch, make};
use meta::Meta;
use receive::Incoming;
use replay::{Fingerprint, shown};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CommitQuery {
    /// With a body of `application/x-tar`: the commit's fields, as JSON (`NewCommit`).
    meta: Option<String>,
}

/// A commit as a form: first `meta`, then files, each as a part `file` whose filename is its path in the version; or
/// all as one part `tar`.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only described")]
struct CommitForm {
    meta: Meta,
    #[schema(value_type = Option<Vec<String>>, content_media_type = "application/octet-stream")]
    file: Vec<u8>,
    #[schema(value_type = Option<String>, content_media_type = "application/x-tar")]
    tar: Vec<u8>,
}

/// Commit
///
/// Files come as a form (`meta` first), as a tar with `?meta=`, or were uploaded before and are named in a JSON body.
/// Nothing changes unless all of it arrived. With `Idempotency-Key` it can be sent again: what was committed before is
/// answered with 200.
#[utoipa::path(
    post, path = "/commits", tag = "commits",
    params(
        CommitQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "The client's own name for this commit"),
    ),
    request_body(content(
        (CommitForm = "multipart/form-data"), (Vec<u8> = "application/x-tar"), (Meta = "application/json"),
    )),
    responses(
        (status = 201, body = Made, headers(("Location" = String, description = "The commit"))),
        (status = 200, body = Made, description = "It was made before, with the same Idempotency-Key",
            headers(("Idempotency-Replayed" = String, description = "true"))),
        (status = 409,
            description = "The branch is not where it was expected; an upload is not whole; another request has the key"),
    )
)]
pub(super) async fn create(
    Write(access): Write,
    Query(query): Query<CommitQuery>,
    request: Request,
) -> Result<Response> {
    let app = &access.app;
    let shown = shown(request.headers())?;
    let (meta, incoming) = Incoming::open(request, query.meta).await?;
    let said = meta.branch.clone();
    let branch = access.work(move |repo| branch(repo, said.as_deref())).await?;
    let key = shown.map(|k| app.commits().key(&k, &access.key()?, &branch, &meta)).transpose()?;
    let on = branch.clone();
    let find = access.work(move |repo| {
        let earlier = key.as_ref().map(|key| key.find(repo, &on)).transpose()?.flatten();
        Ok((key, earlier))
    });
    let (mut key, earlier) = find.await?;
    if let (Some(key), Some(earlier)) = (&key, &earlier) {
        // Before the files are read: the fields have to be the same.
        earlier.refuse_other(earlier.print.meta == key.print.meta)?;
    }
    let intake = incoming.files(app, access.holder()?, earlier.is_none()).await?;
    if let Some(key) = &mut key {
        key.print.files = Fingerprint::of_files(&intake.files);
    }
    let Committed { id, replayed } = match earlier {
        Some(earlier) => {
            earlier.refuse_other(key.as_ref().is_some_and(|key| earlier.print == key.print))?;
            Committed { id: earlier.id, replayed: true }
        }
        None => {
            let (access, branch) = (access.clone(), branch.clone());
            let order = Order { access, branch, meta, files: intake.files, key };
            // One after the other: of many that commit to a branch at once, none has to start over and over. Taken
            // before the permit: a request that waits here blocks no other repository.
            let alone = app.commit_lock().lock(order.access.key()?).await;
            let turn = app.commits().turns.clone().acquire_owned().await.map_err(Problem::internal)?;
            // The work goes on if the client leaves; files, key and turn stay with it.
            let made = work(move || {
                let (_alone, _turn) = (alone, turn);
                make(&order)
            });
            made.await?
        }
    };
    let made = access.work(move |repo| Made::from_commit(repo, branch, id)).await?;
    let headers = super::location(&access.name, "commits", &id.to_hex())?;
    Ok(match replayed {
        false => (StatusCode::CREATED, headers, Json(made)).into_response(),
        true => (headers, [(REPLAYED, HeaderValue::from_static("true"))], Json(made)).into_response(),
    })
}
