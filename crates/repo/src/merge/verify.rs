//! Makes a merge anew by its recipe, and compares what comes of it with what is stored.

use crate::{
    merge::{
        make::{MadeFile, planned},
        recipe::Recipe,
    },
    pruned::{Standing, standing},
    repo::Repo,
};
use mdl_lossy::Scratch;
use mdl_objects::{Id, Mode};
use mdl_store::{
    Progress, RepoError, Result,
    write::{Chains, Hints, Ingest, Policy, Report, Sink},
};

/// What came of it.
#[derive(Clone, Debug)]
pub struct VerifiedMerge {
    /// The merge.
    pub id: Id,
    /// Its recipe.
    pub recipe: Recipe,
    /// Files that are as the recipe makes them.
    pub files: u64,
    /// Tensors that were computed.
    pub computed: usize,
    /// Files that are not, or that one of the two does not have.
    pub differing: Vec<String>,
}

/// Makes a merge anew and compares ids of all its files.
///
/// # Errors
/// It has no recipe, or an input is not exact any more; absent or damaged objects; an I/O error.
pub fn verify_merge(repo: &Repo, id: &Id, progress: &dyn Progress) -> Result<VerifiedMerge> {
    let commit = repo.odb().commit(id)?;
    let recipe = Recipe::from_commit(&commit)
        .ok_or_else(|| RepoError::user(format!("{} has no recipe", id.short()), "name a version that a merge made"))?;
    let base = recipe.base.as_ref().and_then(|base| base.parse::<Id>().ok()).filter(|_| recipe.needs_base());
    for input in recipe.inputs.iter().map(|i| commit.parents[*i]).chain(base) {
        if standing(repo, &input, &repo.odb().commit(&input)?)? != Standing::Committed {
            let message = format!("{} cannot be made anew: {} is not exact any more", id.short(), input.short());
            return Err(RepoError::user(message, "its files are stored all the same"));
        }
    }
    let plan = planned(repo, &recipe, &commit.parents)?.map_err(|conflicts| {
        let first = conflicts.first().map(|c| c.path.as_str()).unwrap_or_default();
        RepoError::user(format!("the recipe leaves {first} undecided"), "another program wrote it")
    })?;
    let stored = repo.odb().files(&commit.tree)?;
    let scratch = Scratch::new(repo)?;
    let made = plan.make(repo, &scratch.fresh("merge")?, progress)?;
    let policy = Policy { chains: Chains::NONE, allow_damaged: true };
    let (sink, hints) = (Sink::Ids, &Hints::default());
    let mut ingest = Ingest { odb: repo.odb(), sink, policy, hints, progress, report: Report::default() };
    let mut same = |rel: &str, file: &MadeFile| -> Result<bool> {
        let Some(entry) = stored.get(rel) else { return Ok(false) };
        let (mode, id): (Mode, Id) = match file {
            MadeFile::Stored(e) => (e.mode, e.id),
            MadeFile::New(file) => {
                let crate::commit::Content::Disk(path) = &file.content else { return Ok(false) };
                let found = ingest.file(path, rel, None)?;
                (found.mode, found.id)
            }
        };
        Ok((mode, id) == (entry.mode, entry.id))
    };
    let mut done = VerifiedMerge { id: *id, recipe, files: 0, computed: plan.computed(), differing: Vec::new() };
    for (rel, file) in &made {
        match same(rel, file)? {
            true => done.files += 1,
            false => done.differing.push(rel.clone()),
        }
    }
    done.differing.extend(stored.keys().filter(|rel| !made.contains_key(*rel)).cloned());
    Ok(done)
}
