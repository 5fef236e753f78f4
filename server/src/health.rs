//! Routes for operators: `/healthz`, `/readyz`, `/metrics`; and the 404 of unknown routes.

use crate::{
    app::{App, work},
    auth::{Caller, Scope},
    problem::{Problem, Result},
    process::state::now_ms,
    registry::RepoName,
    request::routes::{Need, Routes},
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri, header};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// Time and result of the last readiness check of the repositories' storage.
pub type Readiness = Arc<Mutex<Option<(Instant, bool)>>>;

/// How long a readiness result is reused: within it, all callers together cause one check.
const READY_FRESH: Duration = Duration::from_secs(2);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Routes that need no token.
pub fn open() -> Routes {
    Routes::new().get(Need::Nothing, "/healthz", || async { "ok\n" }).get(Need::Nothing, "/readyz", ready)
}

/// Routes for authenticated callers.
pub fn guarded() -> Routes {
    Routes::new().get(Need::Known, "/metrics", metrics)
}

/// Checks that the repositories' storage is reachable, once for all requests within [`READY_FRESH`].
async fn ready(State(app): State<App>) -> Result<Response> {
    if app.is_stopping() {
        return Err(Problem::busy("stopping", 30));
    }
    let readiness = app.readiness().clone();
    let mut looked = readiness.lock().await;
    if looked.is_none_or(|(when, _)| when.elapsed() >= READY_FRESH) {
        let ready = work(move || app.registry().list().map(drop)).await.is_ok();
        *looked = Some((Instant::now(), ready));
    }
    match *looked {
        Some((_, true)) => Ok(([(header::CACHE_CONTROL, "no-store")], "ready\n").into_response()),
        _ => Err(Problem::busy("the repositories cannot be listed; the log says why", 5)),
    }
}

async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response> {
    if caller.is_anonymous() && !caller.may_everywhere(Scope::Read) {
        return Err(Problem::unauthorized("metrics want a token"));
    }
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], app.metrics().text()).into_response())
}

/// Answers requests without a route.
pub async fn nothing_here(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {path:?}"))
}

/// Logs who may do what; refuses to start a server that others can reach without tokens or `--anonymous`.
pub fn say_who_may(app: &App) -> Result<()> {
    let tokens = app.tokens().all()?.len();
    if let Some(said) = app.options().anonymous {
        let anonymous = said.scope().map_or("read what is open to all", Scope::name);
        tracing::info!(tokens, anonymous, "guarded, but for what --anonymous allows");
    } else if app.guard().is_open(app.tokens())? {
        tracing::warn!("open: everyone on this machine may do everything until there is a token (`mdl token create`)");
    } else if !app.tokens().were_ever_made()? {
        return Err(unguarded(app));
    } else if tokens == 0 {
        tracing::warn!(
            "guarded, and there is no token: nothing but what is open to all can be read (`mdl token create`)"
        );
    } else {
        tracing::info!(tokens, "guarded: a token is asked for, but for reading what is open to all");
    }
    Ok(())
}

/// Logs which directories look served and are not, and which repositories no token reaches.
pub fn say_what_is_out_of_reach(app: &App) -> Result<()> {
    let ownerless = app.registry().ownerless()?;
    if !ownerless.is_empty() {
        tracing::warn!(
            directories = some_of(&ownerless),
            "not served: repositories are the directories OWNER/NAME below --root; move these into an owner's directory, \
             or serve one by naming it as --root"
        );
    }
    let options = app.options();
    // To list a bucket takes requests, and where all may read nothing is out of reach.
    let is_open = options.anonymous.is_some_and(|said| said.scope().is_some()) || app.guard().is_open(app.tokens())?;
    if options.storage.is_some() || is_open {
        return Ok(());
    }
    let (tokens, now) = (app.tokens().all()?, now_ms());
    if tokens.is_empty() {
        // As was said: nothing but what is open to all can be read.
        return Ok(());
    }
    let is_reached = |name: &RepoName| tokens.iter().any(|token| !token.is_over(now) && token.covers(name));
    let unreached: Vec<RepoName> = app.registry().list()?.into_iter().filter(|name| !is_reached(name)).collect();
    if !unreached.is_empty() {
        tracing::warn!(
            repositories = some_of(&unreached),
            "no token is good for these, and they can be read only where they are open to all \
             (`mdl token create --repo OWNER/NAME`)"
        );
    }
    Ok(())
}

/// The first few names of a list.
fn some_of(names: &[impl ToString]) -> String {
    const SHOWN: usize = 5;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(ToString::to_string).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    shown.join(", ")
}

fn unguarded(app: &App) -> Problem {
    let options = app.options();
    let way = match (&options.public_url, options.listen.ip().is_loopback()) {
        (_, false) => options.listen.to_string(),
        (Some(url), true) => url.clone(),
        (None, true) => format!("{} by a proxy or another name", options.listen),
    };
    Problem::forbidden(format!("others can reach {way}, and there are no tokens"))
        .hint("make one with `mdl token create`, or say what callers without one may do with --anonymous none|read|write|admin")
}
