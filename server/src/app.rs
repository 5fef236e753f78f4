//! State that all request handlers share: options, registry, tokens, caches, limits.

use crate::{
    api::Commits,
    audit,
    audit::AuditLog,
    auth::{Failures, Guard, Hosts, Sessions, Tokens},
    content::Content,
    health::Readiness,
    hub::Links,
    incoming::Incoming,
    metrics::Metrics,
    options::Options,
    problem::{Problem, Result},
    process::state,
    registry::{Registry, RepoKey, RepoName},
    tasks::{events::Events, jobs::Jobs, keyed_mutex::KeyedMutex, webhooks::Webhooks},
};
use mdl_codec::Engine;
use mdl_repo::Repo;
use std::{path::PathBuf, sync::Arc};
use tokio::sync::watch;

/// State that all request handlers share; a cheap handle.
#[derive(Clone, Debug)]
pub struct App(Arc<Inner>);

/// Parts of the state, and a getter for each.
macro_rules! parts {
    ($($(#[$doc:meta])* $visibility:vis $name:ident: $part:ty,)*) => {
        #[derive(Debug)]
        struct Inner {
            stopping: watch::Sender<bool>,
            $($name: $part,)*
        }

        impl App {
            $($(#[$doc])* $visibility fn $name(&self) -> &$part { &self.0.$name })*
        }
    };
}

parts! {
    /// The operator's options.
    pub options: Options,
    /// The server's own directory.
    pub state: PathBuf,
    /// The repositories.
    pub registry: Registry,
    /// The tokens.
    pub tokens: Tokens,
    /// Whether tokens are required.
    pub(crate) guard: Guard,
    /// Host names of the server.
    pub(crate) hosts: Hosts,
    /// Browser sessions.
    pub(crate) sessions: Sessions,
    /// Failed authentication attempts by address.
    pub(crate) failures: Failures,
    pub(crate) audit: AuditLog,
    /// Bytes of stored files.
    pub content: Content,
    /// Counters.
    pub metrics: Metrics,
    /// Incoming bytes.
    pub incoming: Incoming,
    /// Held while a version is committed to a repository, by whatever API, so that of many commits none has to start
    /// over and over. Only for fairness: other processes may commit meanwhile, so correctness must not depend on it.
    pub(crate) commit_lock: KeyedMutex<RepoKey>,
    /// Events about moved refs; [`App::ref_moved`] sends them.
    pub events: Events,
    /// Background jobs.
    pub jobs: Jobs,
    /// Webhooks for moved refs.
    pub webhooks: Webhooks,
    /// Commits that are being made.
    pub(crate) commits: Commits,
    /// Signed upload URLs.
    pub(crate) links: Links,
    /// Last result of the readiness check.
    pub(crate) readiness: Readiness,
}

impl App {
    /// Opens directories and state; starts no task.
    pub fn new(options: Options, engine: Arc<dyn Engine>) -> Result<App> {
        let state = options.state_dir()?;
        state::make(&state)?;
        let indexes = state.join("indexes");
        state::sweep_parts(&state);
        let registry = match &options.storage {
            Some(url) => Registry::of_bucket(url, indexes, options.read_only, engine)?,
            None => Registry::new(&options.root, options.read_only.then_some(indexes), engine)?,
        };
        let registry = registry.protected_by(options.protect.clone());
        let (tokens, hosts) = (Tokens::new(&state), Hosts::new(&options)?);
        // Only this machine can connect.
        let is_local = options.listen.ip().is_loopback() && hosts.are_loopback() && options.trusted_proxies.is_empty();
        let audit = options.audit_log.clone().unwrap_or_else(|| state.join(audit::FILE));
        Ok(App(Arc::new(Inner {
            guard: Guard::at_start(&tokens, is_local)?,
            sessions: Sessions::new(options.is_secure()),
            failures: Failures::new(options.token_failures),
            audit: AuditLog::new(audit)?,
            tokens,
            hosts,
            content: Content::new(&state, &options)?,
            metrics: Metrics::default(),
            incoming: Incoming::new(&state, &options, &registry)?,
            commit_lock: KeyedMutex::default(),
            events: Events::default(),
            jobs: Jobs::default(),
            webhooks: Webhooks::new(&state, &registry),
            commits: Commits::default(),
            links: Links::new(&state)?,
            readiness: Readiness::default(),
            stopping: watch::Sender::new(false),
            registry,
            state,
            options,
        })))
    }

    /// Opens a repository, without a check of the caller's rights.
    pub async fn repo(&self, name: &RepoName) -> Result<Arc<Repo>> {
        if let Some((repo, _)) = self.registry().unchanged(name) {
            return Ok(repo);
        }
        let (app, name) = (self.clone(), name.clone());
        work(move || app.registry().open(&name)).await
    }

    /// Starts the server's shutdown.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Returns whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    /// Waits for the start of the shutdown.
    pub async fn stopped(&self) {
        let mut seen = self.0.stopping.subscribe();
        // The sender lives in `self`.
        let _ = seen.wait_for(|stop| *stop).await;
    }
}

/// Runs blocking work (disk, decoding) on the blocking thread pool.
pub async fn work<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(f).await;
    done.map_err(|e| Problem::internal(format!("a task ended: {e}")))?
}
