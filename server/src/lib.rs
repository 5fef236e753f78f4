//! `mdl serve`: HTTP server for repositories.
//!
//! Modules: `api` (mdl's own API; the CLI takes the JSON of commits and files from it), `hub` (Hugging Face Hub and
//! git-lfs), `pages` (HTML); under them `auth` (tokens and rights), `sync` (clone, fetch, push), `content` (downloads),
//! `incoming` (uploads), `registry` (open repositories), `listener` (connections), `middleware`, `amounts` (sizes and
//! numbers for people, here and in the CLI).

pub mod amounts;
pub mod api;
pub mod app;
mod audit;
pub mod auth;
pub mod content;
mod health;
mod hub;
pub mod incoming;
mod listener;
mod metrics;
pub mod middleware;
pub mod options;
mod pages;
pub mod problem;
pub mod process;
pub mod registry;
pub mod request;
mod sync;
pub mod tasks;

use crate::{
    app::App,
    listener::Listener,
    request::routes::{Route, Routes},
};
use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
};
use mdl_codec::Engine;
use std::{sync::Arc, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tower_http::{catch_panic::CatchPanicLayer, timeout::RequestBodyTimeoutLayer};

pub use crate::{
    middleware::Rates,
    options::{Anonymous, LogFormat, Options, Tls},
};
#[doc(hidden)]
pub use hub::xet::internals as xet_internals;
pub use ipnet::IpNet;

/// How often unused resources are released.
const RELEASE_EVERY: Duration = Duration::from_secs(15);
/// How long a repository may be unused before its index is free for other processes.
const IDLE: Duration = Duration::from_secs(30);

/// How long blocking work may go on once every request has ended or was cut off.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Routes behind the `identify` middleware.
fn guarded() -> Routes {
    api::routes().merge(hub::routes()).merge(pages::routes()).merge(health::guarded())
}

/// Every route, with the right that it needs.
pub fn route_table() -> Vec<Route> {
    guarded().merge(health::open()).list().to_vec()
}

/// All routes with their middleware.
pub fn router(app: &App, rates: &Rates) -> Router {
    let guarded = guarded()
        .into_router()
        .fallback(health::nothing_here)
        .layer(from_fn(middleware::body_limit::limit))
        .layer(from_fn_with_state(rates.clone(), middleware::limit))
        .layer(from_fn_with_state(app.clone(), auth::identify));
    Router::new()
        .merge(guarded)
        .merge(health::open().into_router())
        .layer(from_fn_with_state(app.clone(), middleware::body_limit::bound))
        .layer(RequestBodyTimeoutLayer::new(app.options().stall_timeout))
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(from_fn(middleware::protect))
        .layer(from_fn_with_state(app.clone(), middleware::observe))
        .layer(from_fn_with_state(app.clone(), middleware::proxies::name_client))
        .with_state(app.clone())
}

/// Serves until SIGTERM or SIGINT (a second one ends it at once). Calls `ready` with the address once connections are
/// accepted.
pub fn run(
    mut options: Options,
    engine: Arc<dyn Engine>,
    log: LogFormat,
    ready: impl FnOnce(&str),
) -> problem::Result<()> {
    process::log::start(log);
    process::prepare(&mut options)?;
    // From here on there are threads.
    let app = App::new(options, engine)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(problem::Problem::internal)?;
    let served = runtime.block_on(async {
        // Listened to before anything is served: a signal that comes earlier ends the process as it would any other.
        // In between, tokio would take it and tell no task.
        let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        let [Ok(terminate), Ok(interrupt)] = signals else {
            return Err(problem::Problem::internal("signals cannot be listened to"));
        };
        tokio::spawn(stop_on_signals(app.clone(), terminate, interrupt));
        serve(app, ready).await
    });
    // Blocking work that does not notice the shutdown is cut off: commits are crash-safe, so this loses nothing.
    runtime.shutdown_timeout(SHUTDOWN_GRACE);
    served
}

async fn stop_on_signals(app: App, mut terminate: Signal, mut interrupt: Signal) {
    for again in [false, true] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if again {
            std::process::exit(130);
        }
        app.stop();
    }
}

/// Serves until the app is stopped. Calls `ready` with the address once connections are accepted. Refuses to start
/// where others can connect, and there are neither tokens nor `--anonymous`.
pub async fn serve(app: App, ready: impl FnOnce(&str)) -> problem::Result<()> {
    health::say_who_may(&app)?;
    health::say_what_is_out_of_reach(&app)?;
    let listener = Listener::bind(&app).await?;
    ready(&listener.url());
    let rates = Rates::new(app.options().rate);
    let router = router(&app, &rates);
    let releasing = tokio::spawn(release_unused(app.clone(), rates));
    tokio::spawn(tasks::webhooks::run(app.clone()));
    listener.run(&app, router).await;
    releasing.abort();
    Ok(())
}

/// Releases unused resources from time to time.
async fn release_unused(app: App, rates: Rates) {
    let mut ticks = tokio::time::interval(RELEASE_EVERY);
    loop {
        ticks.tick().await;
        rates.release();
        let app = app.clone();
        // Closing an index writes to disk.
        let _ = tokio::task::spawn_blocking(move || {
            app.incoming().sweep(&app);
            sync::standalone::sweep(&app);
            app.webhooks().release(app.registry());
            app.registry().release(IDLE);
            app.sessions().sweep();
            app.failures().sweep();
        })
        .await;
    }
}
