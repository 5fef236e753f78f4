//! Runs the command that says how good a checkpoint is.

use crate::{
    compare::{Checkpoint, candidate},
    systems::State,
};
use mdl_lossy::CommandEvaluator;
use mdl_store::{RepoError, Result};
use std::{fs, path::PathBuf, time::Duration};

/// A shell command.
#[derive(Clone, Debug)]
pub struct Evaluator {
    /// Run by `sh -c` with `MDL_CANDIDATE_DIR` set; the last line of its standard output is one number.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
    /// Where the candidate's directory is made, for the time of a run.
    pub scratch: PathBuf,
}

/// What it said.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A finite number.
    Quality(f64),
    /// Nothing that counts, and why.
    None(String),
}

impl Evaluator {
    /// Writes the reconstruction as files, runs the command and removes the files. A command that fails, takes too long
    /// or says something else than a finite number gives no quality.
    ///
    /// # Errors
    /// Files that cannot be written, or have checksums.
    pub fn judge(&self, checkpoint: &Checkpoint, state: &State) -> Result<Verdict> {
        let folder = self.scratch.join(format!("mdl-compare-{}", std::process::id()));
        let failed = || RepoError::io(format!("cannot write {}", folder.display()));
        // What a run that was cut off left behind.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(failed())?;
        let runner = CommandEvaluator::new(self.command.clone(), self.timeout);
        let verdict = candidate::write(checkpoint, state, &folder).map(|()| match runner.run(&folder) {
            Ok(quality) => Verdict::Quality(quality),
            Err(why) => Verdict::None(why),
        });
        let _ = fs::remove_dir_all(&folder);
        verdict
    }
}
