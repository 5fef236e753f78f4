//! Merges: versions of several histories become one, their weights by a strategy, their other files by identity.
//!
//! Order: what cannot be decided is found before a tensor is read; the new version is stored whole; the files of the
//! work tree become its own and the branch moves, as the record of an operation in progress says (`in_progress`):
//! killed there, it can be gone on with or taken back.

mod choose;
mod combine;
mod conflict;
mod make;
mod recipe;
mod soup;
mod verify;

pub use conflict::{MergeConflict, MergeReason};
pub use recipe::{Override, RECIPE_KEY, Recipe, Rule, Side, SoupKind};
pub use soup::{Measure, Measured, SoupRequest, soup};
pub use verify::{VerifiedMerge, verify_merge};

use crate::{
    aging::age_arrived,
    branches::{Merged, merge as fast_forward},
    commit::{CommitRequest, check_names, disk_room::with_room, write_commit},
    history::{merge_bases, reaches},
    in_progress::refuse_in_progress,
    pruned::refuse_pruned,
    repo::Repo,
    sequencer::{begin_merge, finish_merge},
    work_tree::lock_work_tree,
};
use make::{as_new_files, planned};
use mdl_lossy::Scratch;
use mdl_objects::{Id, Resume};
use mdl_store::{Missing, Progress, RepoError, Result};
use std::path::Path;

/// When the branch only moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastForward {
    /// Where it can.
    #[default]
    Allowed,
    /// Never: there is always a new version.
    Never,
    /// Always; where it cannot, nothing is done.
    Only,
}

/// What is to be merged into the present branch, and how.
#[derive(Clone, Debug)]
pub struct MergeRequest {
    /// The other versions, and what the user calls them.
    pub others: Vec<(Id, String)>,
    /// What becomes of tensors that differ.
    pub strategy: Rule,
    /// Other rules for some files or tensors.
    pub overrides: Vec<Override>,
    /// Whether state of the optimizer is computed as weights are; else it is that of the present branch.
    pub with_state: bool,
    /// Message; none: one that names the versions and the strategy.
    pub message: Option<String>,
    /// When the branch only moves forward.
    pub fast_forward: FastForward,
}

/// What a merge came to.
#[derive(Clone, Debug)]
pub enum MergeOutcome {
    /// The branch has all the versions already.
    UpToDate,
    /// The branch moved forward.
    FastForward {
        /// Its commit before; none if it had none.
        from: Option<Id>,
        /// Its commit now.
        to: Id,
    },
    /// There is a new version.
    Merged(MergedVersion),
    /// Nothing was changed: these are to be decided on.
    Conflicts(Vec<MergeConflict>),
}

/// A version that a merge made.
#[derive(Clone, Debug)]
pub struct MergedVersion {
    /// The branch's commit before.
    pub from: Id,
    /// The new commit.
    pub id: Id,
    /// How its weights were made.
    pub recipe: Box<Recipe>,
    /// The common ancestors; the first is the recipe's base, if it has one.
    pub bases: Vec<Id>,
    /// Tensors that were computed.
    pub computed: usize,
}

/// Merges versions into the present branch.
///
/// # Errors
/// Uncommitted changes; a strategy that cannot be followed; `Conflict` where the branch moved meanwhile; as of a commit
/// and a checkout. The branch is then where it was.
pub fn merge_versions(repo: &Repo, request: &MergeRequest, progress: &dyn Progress) -> Result<MergeOutcome> {
    refuse_in_progress(repo)?;
    let Some(head) = repo.refs().head_commit()? else {
        return match &request.others[..] {
            [(other, label)] => forward(repo, other, label, progress),
            _ => Err(RepoError::not_found(Missing::Version, "HEAD")),
        };
    };
    let mut others = Vec::new();
    for (id, label) in &request.others {
        if !reaches(repo, &head, id)? && !others.iter().any(|(other, _)| other == id) {
            refuse_pruned(repo, id)?;
            others.push((*id, label.clone()));
        }
    }
    match &others[..] {
        [] => return Ok(MergeOutcome::UpToDate),
        [(other, label)] if request.fast_forward != FastForward::Never && reaches(repo, other, &head)? => {
            return forward(repo, other, label, progress);
        }
        _ if request.fast_forward == FastForward::Only => {
            return Err(RepoError::user("the present branch cannot move forward to it", "allow a merge"));
        }
        _ => {}
    }
    let parents: Vec<Id> = std::iter::once(head).chain(others.iter().map(|(id, _)| *id)).collect();
    let bases = merge_bases(repo, &parents)?;
    let mut recipe = Recipe::new(request.strategy.resolved(parents.len())?, (0..parents.len()).collect());
    for over in &request.overrides {
        let rule = over.rule.resolved(parents.len())?;
        recipe.overrides.push(Override { glob: over.glob.clone(), rule });
    }
    recipe.with_state = request.with_state;
    recipe.base = bases.first().map(Id::to_hex);
    if recipe.base.is_none() && recipe.needs_base() {
        return Err(RepoError::user(
            format!("{} starts from a common ancestor, and these versions have none", recipe.strategy.name()),
            "use a strategy that does without, such as average or slerp",
        ));
    }
    let labels: Vec<&str> = others.iter().map(|(_, label)| label.as_str()).collect();
    let message = || format!("Merge {} ({})", labels.join(", "), recipe.strategy.name());
    let message = request.message.clone().unwrap_or_else(message);
    make_version(repo, &parents, recipe, bases, message, progress)
}

fn forward(repo: &Repo, other: &Id, label: &str, progress: &dyn Progress) -> Result<MergeOutcome> {
    Ok(match fast_forward(repo, other, label, progress)? {
        Merged::UpToDate => MergeOutcome::UpToDate,
        Merged::FastForward { from, to } => MergeOutcome::FastForward { from, to },
    })
}

/// Makes the version of a recipe, whose first parent is HEAD's, and moves files and branch to it.
fn make_version(
    repo: &Repo,
    parents: &[Id],
    recipe: Recipe,
    bases: Vec<Id>,
    message: String,
    progress: &dyn Progress,
) -> Result<MergeOutcome> {
    let lock = lock_work_tree(repo, progress)?;
    let record = repo.work().map(|_| begin_merge(repo, progress)).transpose()?;
    let plan = match planned(repo, &recipe, parents)? {
        Ok(plan) => plan,
        Err(conflicts) => return Ok(MergeOutcome::Conflicts(conflicts)),
    };
    let scratch = Scratch::new(repo)?;
    let made = plan.make(repo, &scratch.fresh("merge")?, progress)?;
    let list = as_new_files(repo, made)?;
    check_names(&list)?;
    let request = CommitRequest {
        message,
        meta: [(RECIPE_KEY.to_owned(), recipe.to_json()?)].into(),
        other_parents: parents[1..].to_vec(),
        expects: Some(Some(parents[0])),
        resume: plan.has_state.then_some(Resume::Approximate),
        files: Some(list.clone()),
        allow_empty: true,
        ..CommitRequest::default()
    };
    let written = with_room(repo, progress, || write_commit(repo, &request, Path::new(""), &list, None, progress))?;
    let id = written.id;
    match record {
        Some(record) => finish_merge(repo, &lock, record, (id, written.transaction), progress).map(drop)?,
        None => {
            let who = repo.config.moved_by(None);
            let first_line = request.message.lines().next().unwrap_or_default();
            let (head, tip) = (&written.target.head, written.target.tip);
            written.transaction.advance(head, tip, id, &who, &format!("merge: {first_line}"))?;
            // The branch has moved; what cannot be noted now is noted by the next commit.
            let _ = age_arrived(repo, &written.transaction, id);
        }
    }
    Ok(MergeOutcome::Merged(MergedVersion {
        from: parents[0],
        id,
        recipe: recipe.into(),
        bases,
        computed: plan.computed(),
    }))
}
