//! Routes `.../jobs`: start, list, show and cancel maintenance jobs (gc, compact, fsck).

use crate::{
    app::App,
    auth::{Access, Scope, Write},
    problem::{Problem, ProblemDocument, Result},
    request::{
        extract::{Body, Path},
        routes::{Need, Needs},
    },
    tasks::jobs::{JobInfo, JobKind, NewJob},
};
use axum::{Json, extract::State, response::IntoResponse};
use http::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, start).needs(Need::Write))
        .routes(routes!(show, cancel).needs(Need::Write))
}

/// Jobs of a repository that the server remembers, the newest first.
#[derive(Debug, Serialize, ToSchema)]
struct JobList {
    jobs: Vec<JobInfo>,
}

/// A check only reads; whatever deletes or moves stored bytes is for administrators.
fn allowed(access: &Access, kind: JobKind) -> Result<()> {
    if kind == JobKind::Fsck || access.caller.may(Scope::Admin, &access.name, false) {
        return Ok(());
    }
    Err(Problem::forbidden(format!("the token does not allow to administer {}", access.name)))
}

/// Start a job
///
/// `fsck` wants a token that may write, `compact` and `gc` one that may administer. A repository has one job at a time.
#[utoipa::path(
    post,
    path = "/repos/{owner}/{name}/jobs",
    tag = "jobs",
    params(("owner" = String, Path), ("name" = String, Path)),
    request_body = NewJob,
    responses(
        (status = 202, body = JobInfo, headers(("Location" = String, description = "The job"))),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn start(State(app): State<App>, Write(access): Write, Body(new): Body<NewJob>) -> Result<impl IntoResponse> {
    allowed(&access, new.kind)?;
    let job = app.start_job(&access, new)?;
    let location = super::location(&access.name, "jobs", job.id())?;
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(job.info())))
}

/// List jobs
#[utoipa::path(
    get,
    path = "/repos/{owner}/{name}/jobs",
    tag = "jobs",
    params(("owner" = String, Path), ("name" = String, Path)),
    responses(
        (status = 200, body = JobList),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn list(State(app): State<App>, Write(access): Write) -> Result<Json<JobList>> {
    let jobs = app.jobs().of(&access.key()?);
    let jobs = jobs.iter().map(|j| j.info()).collect();
    Ok(Json(JobList { jobs }))
}

/// Look at a job
#[utoipa::path(
    get,
    path = "/repos/{owner}/{name}/jobs/{id}",
    tag = "jobs",
    params(("owner" = String, Path), ("name" = String, Path), ("id" = String, Path)),
    responses(
        (status = 200, body = JobInfo),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn show(
    State(app): State<App>,
    Write(access): Write,
    Path((_, _, id)): Path<(String, String, String)>,
) -> Result<Json<JobInfo>> {
    Ok(Json(app.jobs().find(&access.key()?, &id)?.info()))
}

/// Cancel a job
///
/// It is asked to stop, and does at the next step; nothing is lost. Look at it again to see whether it was quicker.
#[utoipa::path(
    delete,
    path = "/repos/{owner}/{name}/jobs/{id}",
    tag = "jobs",
    params(("owner" = String, Path), ("name" = String, Path), ("id" = String, Path)),
    responses(
        (status = 202, body = JobInfo),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "It is over"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn cancel(
    State(app): State<App>,
    Write(access): Write,
    Path((_, _, id)): Path<(String, String, String)>,
) -> Result<impl IntoResponse> {
    let job = app.jobs().find(&access.key()?, &id)?;
    allowed(&access, job.kind())?;
    if !job.cancel() {
        return Err(Problem::conflict("the job is over"));
    }
    Ok((StatusCode::ACCEPTED, Json(job.info())))
}
