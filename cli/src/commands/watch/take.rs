//! Commits one checkpoint that has settled.

use super::Watch;
use crate::{
    checkpoints::{
        SOURCE, SOURCE_TREE,
        find::{WatchedEntry, stamp},
        name::title,
        trainer,
        whole::{Whole, check},
    },
    commands::prelude::*,
};
use mdl_objects::Commit;
use mdl_repo::{CommitRequest, Committed, ErrorKind, WriteTransaction};

/// How often a commit is retried when other writers move the branch.
const TRIES: u32 = 5;

/// Outcome of committing a checkpoint.
#[derive(Debug)]
pub enum Taken {
    /// A new commit.
    Committed(Box<Committed>),
    /// The branch has it already.
    Known(Id),
    /// It has no tensors.
    NoCheckpoint,
    /// Another process deleted it meanwhile.
    Deleted,
    /// Another process writes to it again.
    Changing,
    /// It cannot be committed as it is. `again`: a retry may help without a change to it.
    Failed { why: String, kind: &'static str, again: bool },
}

impl Watch {
    /// Commits it, unless the branch has it.
    pub fn take(&mut self, context: &Context, repo: &Repo, found: &mut WatchedEntry) -> Taken {
        let why = match check(found) {
            Whole::NoTensors => return Taken::NoCheckpoint,
            Whole::No(why) => Taken::Failed { why, kind: "damaged", again: false },
            Whole::Yes => match self.attempt(context, repo, found) {
                Ok(taken) => return taken,
                Err(CliError::Repo(RepoError::FileChanged { .. })) => return Taken::Changing,
                Err(error) => Taken::Failed { why: error.message(), kind: error.kind_name(), again: passing(&error) },
            },
        };
        // An error about a checkpoint that is being deleted or written is no failure.
        match stamp(&found.path) {
            Ok(None) => Taken::Deleted,
            Ok(Some(now)) if now != found.stamp => Taken::Changing,
            _ => why,
        }
    }

    fn attempt(&mut self, context: &Context, repo: &Repo, found: &mut WatchedEntry) -> Result<Taken> {
        trainer::ask(&found.path, &mut found.place);
        self.known.refresh(repo, &self.branch)?;
        let mut plan = self.lossy.plan(repo)?;
        let mut tree = None;
        if plan.is_some() || !self.known.versions_of(&found.name).is_empty() {
            tree = Some(mdl_repo::identify(repo, &found.path, &context.bars)?);
        }
        if let Some(id) = tree.and_then(|tree| self.known.with(&found.name, &tree)) {
            return Ok(Taken::Known(id));
        }
        let mut request = self.request(found);
        if let Some(tree) = tree.filter(|_| plan.is_some()) {
            request.meta.insert(SOURCE_TREE.to_owned(), tree.to_hex());
        }
        let mut tries = 0;
        let done = loop {
            tries += 1;
            let done = match &mut plan {
                Some(plan) => mdl_repo::commit_lossy(repo, &request, &mut plan.request(), &context.bars),
                None => mdl_repo::commit(repo, &request, &context.bars),
            };
            match done {
                Err(RepoError::Conflict { .. } | RepoError::Overtaken) if tries < TRIES => {}
                done => break done?,
            }
        };
        let commit = repo.odb().commit(&done.id)?;
        if let Some(taken) = self.torn(repo, found, &done, &commit)? {
            return Ok(taken);
        }
        self.known.moved(done.id, &commit);
        self.resumed_from = None;
        Ok(Taken::Committed(Box::new(done)))
    }

    fn request(&self, found: &WatchedEntry) -> CommitRequest {
        CommitRequest {
            source: Some(found.path.clone()),
            message: title(&found.name).to_owned(),
            branch: Some(self.branch.clone()),
            step: found.place.step,
            epoch: found.place.epoch,
            metrics: found.place.metrics.clone(),
            meta: [(SOURCE.to_owned(), found.name.clone())].into(),
            // A checkpoint equal to the one before still gets its own commit.
            allow_empty: true,
            resumed_from: self.resumed_from,
            provenance: self.provenance.clone(),
            ..CommitRequest::default()
        }
    }

    /// Undoes the commit if files were deleted, added or changed while it was made: it may lack some, or mix old and
    /// new ones. A checkpoint that was deleted only after it had been read is a good version.
    fn torn(&self, repo: &Repo, found: &WatchedEntry, done: &Committed, commit: &Commit) -> Result<Option<Taken>> {
        let now = stamp(&found.path).map_err(RepoError::io(format!("cannot look at {}", found.path.display())))?;
        if now.as_ref() == Some(&found.stamp) {
            return Ok(None);
        }
        let files = mdl_repo::files(repo, &done.id)?;
        let has = |(rel, (size, _)): (&String, &(u64, i128))| files.get(rel).is_some_and(|e| e.size == *size);
        let all = files.len() == found.stamp.len() && found.stamp.iter().all(has);
        let mut left = now.iter().flatten();
        if all && left.all(|(rel, state)| found.stamp.get(rel) == Some(state)) {
            return Ok(None);
        }
        let name = RefName::branch(&self.branch)?;
        let why = format!("watch: {} changed while it was read", found.name);
        let transaction = match &done.parent {
            Some(parent) => WriteTransaction::begin_at(repo, parent)?,
            None => WriteTransaction::begin(repo)?,
        };
        transaction.update_ref(&name, Some(done.id), done.parent, &commit.author, &why)?;
        Ok(Some(if now.is_none() { Taken::Deleted } else { Taken::Changing }))
    }
}

/// Returns whether a retry may help without a change to the checkpoint: a full disk, a branch moved by other writers.
fn passing(error: &CliError) -> bool {
    let CliError::Repo(error) = error else { return true };
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Conflict | ErrorKind::Corrupt | ErrorKind::NotFound)
}
