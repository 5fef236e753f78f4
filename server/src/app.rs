//! State that all request handlers share: options, registry, tokens, caches, limits.

use crate::{
    api::Commits,
    audit,
    audit::AuditLog,
    auth::{Failures, Guard, Hosts, Sessions, Tokens},
    content::Content,
    health::Readiness,
    hub::Hub,
    incoming::Incoming,
    metrics::Metrics,
    options::Options,
    problem::{Problem, Result},
    process::state,
    registry::{Registry, RepoKey, RepoName},
    sync::Transfers,
    tasks::{events::Events, jobs::Jobs, keyed_mutex::KeyedMutex, webhooks::Webhooks},
};
use mdl_codec::Engine;
use mdl_repo::Repo;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::watch;

/// State that all request handlers share; a cheap handle.
#[derive(Clone, Debug)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    state: PathBuf,
    registry: Registry,
    tokens: Tokens,
    guard: Guard,
    hosts: Hosts,
    sessions: Sessions,
    failures: Failures,
    audit: AuditLog,
    content: Content,
    metrics: Metrics,
    incoming: Incoming,
    commit_lock: KeyedMutex<RepoKey>,
    events: Events,
    jobs: Jobs,
    webhooks: Webhooks,
    commits: Commits,
    hub: Hub,
    transfers: Transfers,
    readiness: Readiness,
    stopping: watch::Sender<bool>,
}

impl App {
    /// Opens directories and state; starts no task.
    ///
    /// # Errors
    /// The directories cannot be made or read.
    pub fn new(options: Options, engine: Arc<dyn Engine>) -> Result<App> {
        let state = options.state_dir()?;
        state::make(&state)?;
        let indexes = state.join("indexes");
        state::sweep_parts(&state);
        let registry = match &options.storage {
            Some(url) => Registry::of_bucket(url, indexes, options.read_only, engine)?,
            None => Registry::new(&options.root, options.read_only.then_some(indexes), engine)?,
        };
        let (tokens, hosts) = (Tokens::new(&state), Hosts::new(&options)?);
        let audit = options.audit_log.clone().unwrap_or_else(|| state.join(audit::FILE));
        Ok(App(Arc::new(Inner {
            guard: Guard::at_start(&tokens, is_local(&options, &hosts))?,
            sessions: Sessions::new(options.is_secure()),
            failures: Failures::new(options.token_failures),
            audit: AuditLog::new(audit)?,
            tokens,
            hosts,
            content: Content::new(&state, &options)?,
            metrics: Metrics::new(),
            incoming: Incoming::new(&state, &options, &registry)?,
            commit_lock: KeyedMutex::default(),
            events: Events::new(),
            jobs: Jobs::default(),
            webhooks: Webhooks::new(&state, &registry),
            commits: Commits::default(),
            hub: Hub::new(&state)?,
            readiness: Readiness::default(),
            transfers: Transfers::new(&options),
            stopping: watch::Sender::new(false),
            registry,
            state,
            options,
        })))
    }

    /// The operator's options.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The server's own directory.
    pub fn state(&self) -> &Path {
        &self.0.state
    }

    /// The repositories.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Whether tokens are required.
    pub fn guard(&self) -> &Guard {
        &self.0.guard
    }

    /// Host names of the server.
    pub fn hosts(&self) -> &Hosts {
        &self.0.hosts
    }

    /// Browser sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Failed authentication attempts by address.
    pub fn failures(&self) -> &Failures {
        &self.0.failures
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &AuditLog {
        &self.0.audit
    }

    /// Bytes of stored files.
    pub fn content(&self) -> &Content {
        &self.0.content
    }

    /// Last result of the readiness check.
    pub(crate) fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    /// Incoming bytes.
    pub fn incoming(&self) -> &Incoming {
        &self.0.incoming
    }

    /// Held while a version is committed to a repository, by whatever API, so that of many commits none has to start
    /// over and over. Only for fairness: other processes may commit meanwhile, so correctness must not depend on it.
    pub(crate) fn commit_lock(&self) -> &KeyedMutex<RepoKey> {
        &self.0.commit_lock
    }

    /// Events about moved refs; [`App::ref_moved`] sends them.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Background jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// Webhooks for moved refs.
    pub fn webhooks(&self) -> &Webhooks {
        &self.0.webhooks
    }

    /// Commits that are being made.
    pub(crate) fn commits(&self) -> &Commits {
        &self.0.commits
    }

    /// What the Hugging Face clients' and git-lfs's routes share.
    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// State of sync transfers.
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.0.transfers
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        is_local(self.options(), self.hosts())
    }

    /// Opens a repository, without a check of the caller's rights.
    ///
    /// # Errors
    /// There is none of the name; it cannot be opened.
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

/// Returns whether only this machine can connect: a loopback address, no proxy, and no other name.
fn is_local(options: &Options, hosts: &Hosts) -> bool {
    options.listen.ip().is_loopback() && hosts.are_loopback() && options.trusted_proxies.is_empty()
}

/// Runs blocking work (disk, decoding) on the blocking thread pool.
///
/// # Errors
/// Those of `f`.
pub async fn work<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(f).await {
        Ok(done) => done,
        Err(e) => Err(Problem::internal(format!("a task ended: {e}"))),
    }
}
