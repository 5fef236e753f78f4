//! Route `POST .../commits`: uploads files and commits them.

mod made;
mod make;
mod meta;
mod receive;
mod replay;
mod tar;

pub(crate) use replay::Commits;

use crate::{
    app::{App, work},
    auth::Write,
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::Query,
        routes::{Need, Needs},
    },
};
use axum::{
    Json,
    extract::{DefaultBodyLimit, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use made::Made;
use make::{Order, Outcome, branch, make};
use meta::Meta;
use receive::Incoming;
use replay::{Earlier, Fingerprint, Key, shown};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub(super) fn routes() -> OpenApiRouter<App> {
    // Files are bounded by what `incoming` takes, all else by what is read of it.
    OpenApiRouter::new().routes(routes!(create).needs(Need::Write)).layer(DefaultBodyLimit::disable())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CommitQuery {
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
    post,
    path = "/repos/{owner}/{name}/commits",
    tag = "commits",
    params(
        ("owner" = String, Path), ("name" = String, Path), CommitQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "The client's own name for this commit"),
    ),
    request_body(content(
        (CommitForm = "multipart/form-data"),
        (Vec<u8> = "application/x-tar"),
        (Meta = "application/json"),
    )),
    responses(
        (status = 201, body = Made, headers(("Location" = String, description = "The commit"))),
        (status = 200, body = Made, description = "It was made before, with the same Idempotency-Key",
            headers(("Idempotency-Replayed" = String, description = "true"))),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json",
            description = "The branch is not where it was expected; an upload is not whole; another request has the key"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn create(
    State(app): State<App>,
    Write(access): Write,
    Query(query): Query<CommitQuery>,
    request: Request,
) -> Result<Response> {
    let shown = shown(request.headers())?;
    let (meta, incoming) = Incoming::open(request, query.meta).await?;
    let (repo, said) = (access.repo.clone(), meta.branch.clone());
    let branch = work(move || branch(&repo, said.as_deref())).await?;
    let key = shown.map(|k| app.commits().key(&k, &access.key()?, &branch)).transpose()?;
    let repo = access.repo.clone();
    let (key, earlier, print) = before(repo, branch.clone(), key, &meta).await?;
    let intake = incoming.files(&app, access.holder()?, earlier.is_none()).await?;
    let print = Fingerprint { files: Fingerprint::of_files(&intake.files), ..print };
    let outcome = match earlier {
        Some(earlier) => {
            earlier.refuse_other(earlier.print == print)?;
            Outcome::Replayed(earlier.id)
        }
        None => {
            let order = Order {
                access: access.clone(),
                branch: branch.clone(),
                meta,
                files: intake.files,
                key: key.map(|k| (k, print)),
            };
            // One after the other: of many that commit to a branch at once, none has to start over and over. Taken
            // before the permit: a request that waits here blocks no other repository.
            let alone = app.commit_lock().lock(access.key()?).await;
            let turn = app.commits().turns.clone().acquire_owned().await.map_err(Problem::internal)?;
            let app = app.clone();
            // The work goes on if the client leaves; files, key and turn stay with it.
            work(move || {
                let (_alone, _turn) = (alone, turn);
                make(&app, &order)
            })
            .await?
        }
    };
    let repo = access.repo.clone();
    let (id, replayed) = match outcome {
        Outcome::Made(id) => (id, false),
        Outcome::Replayed(id) => (id, true),
    };
    let made = work(move || Made::of(&repo, branch, id)).await?;
    let location = super::location(&access.name, "commits", &id.to_hex())?;
    let headers = [(header::LOCATION, location)];
    Ok(match replayed {
        false => (StatusCode::CREATED, headers, Json(made)).into_response(),
        true => (headers, [(REPLAYED, HeaderValue::from_static("true"))], Json(made)).into_response(),
    })
}

/// Looks for an earlier commit with the same key before the files are read: its fields have to be the same.
async fn before(
    repo: std::sync::Arc<mdl_repo::Repo>,
    branch: String,
    key: Option<Key>,
    meta: &Meta,
) -> Result<(Option<Key>, Option<Earlier>, Fingerprint)> {
    let Some(key) = key else {
        return Ok((None, None, Fingerprint::default()));
    };
    let print = Fingerprint { meta: Fingerprint::of_meta(meta)?, files: String::new() };
    let (key, earlier) = work(move || {
        let earlier = key.find(&repo, &branch)?;
        Ok((key, earlier))
    })
    .await?;
    if let Some(earlier) = &earlier {
        earlier.refuse_other(earlier.print.meta == print.meta)?;
    }
    Ok((Some(key), earlier, print))
}
