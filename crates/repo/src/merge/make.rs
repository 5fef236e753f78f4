//! Makes the files of a merge below a scratch directory, by its recipe.

use crate::{
    commit::{Content, FileRole, NewFile, role_of_file, stored_file},
    merge::{
        choose::{FileChoice, Inputs, Rules, choose},
        combine::{FilePlan, plan},
        conflict::MergeConflict,
        recipe::Recipe,
    },
    repo::Repo,
};
use mdl_objects::{Entry, Id};
use mdl_store::{Progress, Result};
use std::{collections::BTreeMap, path::Path};

/// A file of the result, not made yet.
enum Planned {
    Take(Entry),
    Make(Entry, FilePlan),
}

/// The result of a recipe, with nothing left to decide.
pub(super) struct MergePlan {
    files: BTreeMap<String, Planned>,
    /// Whether a version has state of an optimizer.
    pub has_state: bool,
}

/// A file of the result.
pub(super) enum MadeFile {
    /// That of a version.
    Stored(Entry),
    /// One below the scratch directory.
    New(NewFile),
}

/// What a recipe makes of these parents, or what is to be decided first. No tensor is read.
pub(super) fn planned(
    repo: &Repo,
    recipe: &Recipe,
    parents: &[Id],
) -> Result<std::result::Result<MergePlan, Vec<MergeConflict>>> {
    let rules = Rules::new(recipe)?;
    let inputs = Inputs::read(repo, recipe, parents)?;
    let choices = choose(repo, &rules, &inputs)?;
    let (mut files, mut conflicts, mut has_state) = (BTreeMap::new(), choices.conflicts, false);
    for (rel, choice) in choices.files {
        let planned = match choice {
            FileChoice::Take(entry) => Planned::Take(entry),
            FileChoice::Combine { versions, base } => {
                let (plan, more) = plan(repo, &rules, &rel, &versions, base.as_ref())?;
                conflicts.extend(more);
                let [ours, ..] = &versions[..] else { continue };
                if plan.is_ours() { Planned::Take(ours.clone()) } else { Planned::Make(ours.clone(), plan) }
            }
        };
        let (Planned::Take(entry) | Planned::Make(entry, _)) = &planned;
        has_state |= matches!(role_of_file(repo.odb(), &rel, entry)?, FileRole::State | FileRole::Mixed);
        files.insert(rel, planned);
    }
    Ok(if conflicts.is_empty() { Ok(MergePlan { files, has_state }) } else { Err(conflicts) })
}

impl MergePlan {
    /// Tensors that are computed.
    pub fn computed(&self) -> usize {
        let count = |file: &Planned| match file {
            Planned::Take(_) => 0,
            Planned::Make(_, plan) => plan.computed(),
        };
        self.files.values().map(count).sum()
    }

    /// Makes the files below `dir`.
    pub fn make(&self, repo: &Repo, dir: &Path, progress: &dyn Progress) -> Result<BTreeMap<String, MadeFile>> {
        let sizes = self.files.values().map(|f| if let Planned::Make(e, _) = f { e.size } else { 0 });
        progress.begin("merging", sizes.sum());
        let mut made = BTreeMap::new();
        for (rel, file) in &self.files {
            let file = match file {
                Planned::Take(entry) => MadeFile::Stored(entry.clone()),
                Planned::Make(ours, plan) => {
                    let path = dir.join(rel);
                    plan.write(repo, (rel, ours), &path, progress)?;
                    MadeFile::New(NewFile {
                        rel: rel.clone(),
                        executable: ours.executable,
                        content: Content::Disk(path),
                    })
                }
            };
            made.insert(rel.clone(), file);
        }
        progress.end();
        Ok(made)
    }
}

/// The same files, as a commit takes them.
pub(super) fn as_new_files(repo: &Repo, made: BTreeMap<String, MadeFile>) -> Result<Vec<NewFile>> {
    let new = |(rel, file)| match file {
        MadeFile::New(file) => Ok(file),
        MadeFile::Stored(entry) => {
            let content = Content::Stored(stored_file(repo, &entry)?);
            Ok(NewFile { rel, executable: entry.executable, content })
        }
    };
    made.into_iter().map(new).collect()
}
