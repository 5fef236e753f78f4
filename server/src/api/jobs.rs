//! Routes `.../jobs`: start, list, show and cancel maintenance jobs (gc, compact, fsck).

use crate::{
    auth::Scope,
    request::prelude::*,
    tasks::jobs::{JobInfo, JobKind, NewJob},
};

/// Jobs of a repository that the server remembers, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobList {
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
    post, path = "/jobs", tag = "jobs", request_body = NewJob,
    responses((status = 202, body = JobInfo, headers(("Location" = String, description = "The job"))))
)]
pub(super) async fn start(Write(access): Write, Body(new): Body<NewJob>) -> Result<impl IntoResponse> {
    allowed(&access, new.kind)?;
    let job = access.start_job(new)?;
    Ok((StatusCode::ACCEPTED, super::location(&access.name, "jobs", &job.id)?, Json(job.info())))
}

/// List jobs
#[utoipa::path(get, path = "/jobs", tag = "jobs", responses((status = 200, body = JobList)))]
pub(super) async fn list(Write(access): Write) -> Result<Json<JobList>> {
    Ok(Json(JobList { jobs: access.app.jobs().for_repo(&access.key()?).iter().map(|j| j.info()).collect() }))
}

/// Look at a job
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", responses((status = 200, body = JobInfo)))]
pub(super) async fn show(Write(access): Write, AtId(id): AtId) -> Result<Json<JobInfo>> {
    Ok(Json(access.app.jobs().find(&access.key()?, &id)?.info()))
}

/// Cancel a job
///
/// It is asked to stop, and does at the next step; nothing is lost. Look at it again to see whether it was quicker.
#[utoipa::path(
    delete, path = "/jobs/{id}", tag = "jobs",
    responses((status = 202, body = JobInfo), (status = 409, description = "It is over"))
)]
pub(super) async fn cancel(Write(access): Write, AtId(id): AtId) -> Result<impl IntoResponse> {
    let job = access.app.jobs().find(&access.key()?, &id)?;
    allowed(&access, job.new.kind)?;
    if !job.cancel() {
        return Err(Problem::conflict("the job is over"));
    }
    Ok((StatusCode::ACCEPTED, Json(job.info())))
}
