//! What operators ask: is it alive, is it ready, its numbers; and the answer where there is no route. Neighbours: `metrics`, the
//! registry. It must not know what is in a repository.

use crate::{
    app::{App, work},
    auth::{Caller, Scope},
    problem::{Problem, Result},
    routes::{Need, Routes},
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri, header};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Routes for anybody.
pub fn open() -> Routes {
    Routes::new()
        .get(Need::Nothing, "/healthz", || async { "ok\n" })
        .get(Need::Nothing, "/readyz", ready)
}

/// Routes for whom the server knows.
pub fn guarded() -> Routes {
    Routes::new().get(Need::Known, "/metrics", metrics)
}

async fn ready(State(app): State<App>) -> Result<Response> {
    if app.is_stopping() {
        return Err(Problem::busy("stopping", 30));
    }
    work(move || app.registry().list().map(drop)).await?;
    Ok("ready\n".into_response())
}

async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response> {
    if matches!(caller, Caller::Anonymous(granted) if granted < Some(Scope::Read)) {
        return Err(Problem::unauthorized("metrics want a token"));
    }
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], app.metrics().text()).into_response())
}

/// There is no such route.
pub async fn nothing_here(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        format!("there is nothing at {path:?}"),
    )
}

/// A server that others can reach must say who may do what.
///
/// # Errors
/// It does not.
pub fn refuse_unguarded(app: &App) -> Result<()> {
    if app.is_loopback() || app.options().anonymous.is_some() || !app.tokens().all()?.is_empty() {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "others can reach {}, and there are no tokens",
        app.options().listen
    ))
    .hint("make one with `mdl token create`, or say what anybody may do with --anonymous none|read|write|admin"))
}
