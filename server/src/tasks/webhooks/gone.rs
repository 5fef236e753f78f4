//! Removes webhooks of deleted repositories, and migrates those from before repositories had identities.

use crate::{
    registry::{Registry, RepoKey},
    tasks::webhooks::{All, OfRepo},
};
use http::StatusCode;
use mdl_repo::Repo;
use std::time::UNIX_EPOCH;

/// How long webhooks of a missing repository stay: its file system may only be unmounted.
const KEPT_MS: i64 = 24 * 3600 * 1000;

impl All {
    /// Gives webhooks that have only a name to the repository that they were set for, and drops those of repositories
    /// that have been gone for long. Returns whether anything changed.
    pub(super) fn look_after(&mut self, registry: &Registry, now: i64) -> bool {
        let mut changed = false;
        for of_repo in &mut self.repositories {
            changed |= of_repo.look_after(registry, now);
        }
        let before = self.repositories.len();
        self.repositories.retain(|r| r.gone_ms.is_none_or(|gone| now.saturating_sub(gone) < KEPT_MS));
        changed || self.repositories.len() != before
    }
}

impl OfRepo {
    fn look_after(&mut self, registry: &Registry, now: i64) -> bool {
        let found = match registry.open(&self.repo) {
            Ok(repo) => RepoKey::new(&self.repo, &repo).map(|key| (key, repo)),
            Err(e) => Err(e),
        };
        let is_gone = match found {
            Ok((key, repo)) if self.identity.is_none() => {
                self.identity = Some(key.identity.to_string());
                self.keep_its_own(&repo);
                self.gone_ms = None;
                return true;
            }
            Ok((key, _)) => !self.is(&key),
            Err(e) if e.status == StatusCode::NOT_FOUND => true,
            // It cannot be opened now.
            Err(_) => return false,
        };
        let gone_ms = is_gone.then(|| self.gone_ms.unwrap_or(now));
        std::mem::replace(&mut self.gone_ms, gone_ms) != gone_ms
    }

    /// Drops those that are older than the repository: they were set for another one of its name.
    fn keep_its_own(&mut self, repo: &Repo) {
        let made = crate::incoming::migrate::made(repo).and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let made_ms = made.map_or(0, |t| t.as_millis() as i64);
        let before = self.webhooks.len();
        self.webhooks.retain(|hook| hook.created_ms >= made_ms);
        if self.webhooks.len() < before {
            let dropped = before - self.webhooks.len();
            tracing::warn!(repo = %self.repo, dropped, "webhooks of an earlier repository of this name are dropped");
        }
    }
}
