//! Metrics of the last versions up to a commit, as series for plots.

use crate::{problem::Result, registry::RepoName};
use mdl_objects::{Commit, Id};
use mdl_repo::{NOTES, RefName, Repo};
use quick_cache::sync::Cache;
use std::{collections::HashMap, sync::Arc};

/// Most versions read: a page must not walk a long history.
pub const MAX: usize = 1000;
/// Metrics that are followed.
const MAX_METRICS: usize = 48;
/// Cached histories.
const REMEMBERED: usize = 32;

/// Metrics of the versions, oldest first.
#[derive(Debug, Default)]
pub struct Series {
    pub versions: Vec<Version>,
    /// By name, those with `loss` in it first: a value a version, where it has one.
    pub metrics: Vec<(String, Vec<Option<f64>>)>,
    /// Whether there are older versions, or more metrics.
    pub more_versions: bool,
    pub more_metrics: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub step: Option<u64>,
    pub logical: u64,
    pub stored: u64,
}

/// Orders metrics: the loss first, then other losses, then by name.
pub fn rank(name: &str) -> (u8, String) {
    let lower = name.to_ascii_lowercase();
    let rank = match lower.as_str() {
        "loss" | "train_loss" | "train/loss" => 0,
        other if other.contains("loss") => 1,
        _ => 2,
    };
    (rank, name.to_owned())
}

impl Series {
    /// Follows first parents from a commit.
    fn gather(repo: &Repo, from: Id) -> Result<Series> {
        let mut commits = Vec::new();
        let mut next = Some(from);
        while let Some(id) = next.filter(|_| commits.len() < MAX) {
            let commit = repo.odb().commit(&id)?;
            next = commit.parents.first().copied();
            commits.push((id, commit));
        }
        commits.reverse();
        let noted = mdl_repo::shown_notes(repo)?;
        let commits: Vec<(Id, Commit)> =
            commits.into_iter().map(|(id, commit)| (id, noted.annotated(&id, commit))).collect();
        let mut series = Series {
            versions: commits.iter().map(|(_, c)| version(c)).collect(),
            more_versions: next.is_some(),
            ..Series::default()
        };
        series.follow_metrics(&commits);
        Ok(series)
    }

    fn follow_metrics(&mut self, commits: &[(Id, Commit)]) {
        let mut found: HashMap<&str, Vec<Option<f64>>> = HashMap::new();
        for (i, (_, commit)) in commits.iter().enumerate() {
            for (name, value) in &commit.metrics {
                if found.len() >= MAX_METRICS && !found.contains_key(name.as_str()) {
                    self.more_metrics = true;
                    continue;
                }
                let values = found.entry(name).or_insert_with(|| vec![None; commits.len()]);
                if let Some(slot) = values.get_mut(i) {
                    *slot = Some(*value);
                }
            }
        }
        self.metrics = found.into_iter().map(|(name, v)| (name.to_owned(), v)).collect();
        self.metrics.sort_by_cached_key(|(name, _)| rank(name));
    }
}

fn version(commit: &Commit) -> Version {
    Version { step: commit.step, logical: commit.summary.logical_bytes, stored: commit.summary.stored_bytes }
}

/// Repository, commit, and the state of the notes.
type Key = (RepoName, Id, Option<Id>);

/// Cache of recent histories.
#[derive(Clone, Debug)]
pub struct Histories(Arc<Cache<Key, Arc<Series>>>);

impl Histories {
    pub fn new() -> Histories {
        Histories(Arc::new(Cache::new(REMEMBERED)))
    }

    /// The versions that lead to a commit.
    pub fn get_or_compute(&self, name: &RepoName, repo: &Repo, from: Id) -> Result<Arc<Series>> {
        let key = (name.clone(), from, repo.refs().get(&RefName::parse(NOTES)?)?);
        if let Some(found) = self.0.get(&key) {
            return Ok(found);
        }
        // Not `get_or_insert_with`: other requests would hold threads while they wait for this one.
        let series = Arc::new(Series::gather(repo, from)?);
        self.0.insert(key, series.clone());
        Ok(series)
    }
}
