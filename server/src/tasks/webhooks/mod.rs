//! Webhooks for moved refs, stored in a private file of the state directory.

pub mod address;
mod deliver;
mod gone;

pub use deliver::run;

use crate::{
    problem::{Problem, Result, storage_failed},
    process::state::{lock, now_ms, random_hex, write_private},
    registry::{Registry, RepoKey, RepoName},
};
use globset::GlobBuilder;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use utoipa::ToSchema;

const FILE: &str = "webhooks.json";
const VERSION: u32 = 2;
/// Time between checks for deleted repositories.
const PAUSE: Duration = Duration::from_secs(15 * 60);
/// Webhooks of a repository.
const MAX_HOOKS: usize = 32;
const LONGEST_SECRET: usize = 256;
const LONGEST_GLOB: usize = 256;

/// A webhook as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub struct Webhook {
    /// Its name.
    pub id: String,
    /// Where it goes.
    pub url: String,
    /// What its bodies are signed with.
    secret: Option<String>,
    /// The refs it is for, a glob over full names; none: all.
    pub refs: Option<String>,
    /// Who set it.
    pub by: String,
    /// When: milliseconds since 1970.
    pub created_ms: i64,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Outcome of a delivery.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WebhookDelivery {
    /// Its name, as in `X-Mdl-Delivery`.
    pub id: String,
    /// The moved ref.
    pub r#ref: String,
    /// HTTP status of the receiver's answer; none: there was none.
    pub status: Option<u16>,
    /// Whether the receiver accepted it.
    pub ok: bool,
    /// Why not.
    pub error: Option<String>,
    /// Times it was tried.
    pub tries: u32,
    /// When it ended: milliseconds since 1970.
    pub time_ms: i64,
}

/// The webhooks of all repositories.
#[derive(Debug)]
pub struct Webhooks {
    file: PathBuf,
    last: Mutex<HashMap<String, WebhookDelivery>>,
    looked: Mutex<Instant>,
}

/// The file as it is written.
#[derive(Default, Serialize, Deserialize)]
struct All {
    version: u32,
    repositories: Vec<OfRepo>,
}

/// Webhooks of a repository.
#[derive(Serialize, Deserialize)]
struct OfRepo {
    repo: RepoName,
    /// The repository's identity; none: set before identities existed, and the repository was not seen since.
    identity: Option<String>,
    /// When it was first seen that the repository is gone: milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone_ms: Option<i64>,
    webhooks: Vec<Webhook>,
}

impl OfRepo {
    fn is(&self, repo: &RepoKey) -> bool {
        self.repo == repo.name && self.identity.as_ref().is_some_and(|i| *i == repo.identity.to_string())
    }
}

impl All {
    /// Parses the file, also the older form without identities: a map from names.
    fn parse(json: &[u8]) -> serde_json::Result<All> {
        let value: serde_json::Value = serde_json::from_slice(json)?;
        if value.get("version").is_some_and(serde_json::Value::is_u64) {
            return serde_json::from_value(value);
        }
        let named: BTreeMap<RepoName, Vec<Webhook>> = serde_json::from_value(value)?;
        let of_repo = |(repo, webhooks)| OfRepo { repo, identity: None, gone_ms: None, webhooks };
        Ok(All { version: VERSION, repositories: named.into_iter().map(of_repo).collect() })
    }

    fn for_repo_mut(&mut self, repo: &RepoKey) -> &mut Vec<Webhook> {
        let at = self.repositories.iter().position(|r| r.is(repo));
        let at = at.unwrap_or_else(|| {
            self.repositories.push(OfRepo {
                repo: repo.name.clone(),
                identity: Some(repo.identity.to_string()),
                gone_ms: None,
                webhooks: Vec::new(),
            });
            self.repositories.len() - 1
        });
        &mut self.repositories[at].webhooks
    }
}

impl Webhook {
    /// Whether its bodies are signed.
    pub fn is_signed(&self) -> bool {
        self.secret.is_some()
    }

    fn is_about(&self, name: &str) -> bool {
        self.refs.as_ref().is_none_or(|glob| matches(glob, name).unwrap_or(false))
    }
}

fn matches(glob: &str, name: &str) -> std::result::Result<bool, globset::Error> {
    let glob = GlobBuilder::new(glob).literal_separator(true).build()?;
    Ok(glob.compile_matcher().is_match(name))
}

impl Webhooks {
    /// The webhooks in a state directory. Those from before there were identities go to the repositories that they were
    /// set for.
    pub fn new(state: &Path, registry: &Registry) -> Webhooks {
        let webhooks = Webhooks { file: state.join(FILE), last: Mutex::default(), looked: Mutex::new(Instant::now()) };
        webhooks.look_after(registry);
        webhooks
    }

    fn read(&self) -> Result<All> {
        match fs::read(&self.file) {
            Ok(bytes) => All::parse(&bytes).map_err(Problem::internal),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(All::default()),
            Err(e) => Err(storage_failed(e)),
        }
    }

    fn change<T>(&self, f: impl FnOnce(&mut All) -> Result<T>) -> Result<T> {
        let _alone = lock(&self.file)?;
        let mut all = self.read()?;
        let out = f(&mut all)?;
        all.version = VERSION;
        all.repositories.retain(|r| !r.webhooks.is_empty());
        let json = serde_json::to_vec_pretty(&all).map_err(Problem::internal)?;
        write_private(&self.file, &json).map_err(storage_failed)?;
        Ok(out)
    }

    /// Removes webhooks of deleted repositories and assigns identities, from time to time.
    pub fn release(&self, registry: &Registry) {
        let mut looked = self.looked.lock();
        if looked.elapsed() < PAUSE {
            return;
        }
        *looked = Instant::now();
        drop(looked);
        self.look_after(registry);
    }

    fn look_after(&self, registry: &Registry) {
        let changed = self.read().is_ok_and(|mut all| all.look_after(registry, now_ms()));
        let kept = match changed {
            true => self.change(|all| Ok(all.look_after(registry, now_ms()))).map(drop),
            false => Ok(()),
        };
        if let Err(problem) = kept {
            tracing::warn!(why = problem.message, "webhooks of repositories that are gone stay");
        }
    }

    /// Those of a repository.
    pub fn for_repo(&self, repo: &RepoKey) -> Result<Vec<Webhook>> {
        let found = self.read()?.repositories.into_iter().find(|r| r.is(repo));
        Ok(found.map(|r| r.webhooks).unwrap_or_default())
    }

    /// One of a repository.
    pub fn find(&self, repo: &RepoKey, id: &str) -> Result<Webhook> {
        let found = self.for_repo(repo)?.into_iter().find(|h| h.id == id);
        found.ok_or_else(|| missing(id))
    }

    /// Sets one. Whether its URL may be used has been checked.
    pub fn add(
        &self,
        repo: &RepoKey,
        url: String,
        secret: Option<String>,
        refs: Option<String>,
        by: &str,
    ) -> Result<Webhook> {
        if secret.as_ref().is_some_and(|s| s.is_empty() || s.len() > LONGEST_SECRET) {
            return Err(Problem::refused(format!("a secret has 1 to {LONGEST_SECRET} bytes")));
        }
        if let Some(glob) = &refs {
            if glob.len() > LONGEST_GLOB {
                return Err(Problem::refused("the glob is too long"));
            }
            matches(glob, "").map_err(|e| Problem::refused(e.to_string()))?;
        }
        let hook = Webhook { id: random_hex(8)?, url, secret, refs, by: by.to_owned(), created_ms: now_ms() };
        self.change(|all| {
            let hooks = all.for_repo_mut(repo);
            if hooks.len() >= MAX_HOOKS {
                return Err(Problem::conflict(format!("{repo} has {MAX_HOOKS} webhooks already")));
            }
            hooks.push(hook.clone());
            Ok(hook)
        })
    }

    /// Removes one.
    pub fn remove(&self, repo: &RepoKey, id: &str) -> Result<()> {
        self.change(|all| {
            let hooks = all.for_repo_mut(repo);
            let before = hooks.len();
            hooks.retain(|h| h.id != id);
            if hooks.len() == before { Err(missing(id)) } else { Ok(()) }
        })?;
        self.last.lock().remove(id);
        Ok(())
    }

    /// Returns the outcome of the last delivery since the server started.
    pub fn last_of(&self, id: &str) -> Option<WebhookDelivery> {
        self.last.lock().get(id).cloned()
    }
}

fn missing(id: &str) -> Problem {
    Problem::not_found("webhook", id.chars().take(64).collect::<String>())
}
