//! A command that says how good a checkpoint is. Neighbours: `candidate` writes the files it looks at. It must not know what it
//! measures.

use super::{Checkpoint, candidate};
use crate::{RepoError, Result};
use mdl_codec::baselines::State;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const PULSE: Duration = Duration::from_millis(20);

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
    /// Writes the reconstruction as files, runs the command and removes the files. A command that fails, takes too long or says
    /// something else than a finite number gives no quality.
    ///
    /// # Errors
    /// Files that cannot be written, or have checksums.
    pub fn judge(&self, checkpoint: &Checkpoint, state: &State) -> Result<Verdict> {
        let folder = self.scratch.join(format!("mdl-compare-{}", std::process::id()));
        let failed = || RepoError::io(format!("cannot write {}", folder.display()));
        // What a run that was cut off left behind.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(failed())?;
        let verdict = candidate::write(checkpoint, state, &folder).and_then(|()| self.run(&folder));
        let _ = fs::remove_dir_all(&folder);
        verdict
    }

    fn run(&self, folder: &std::path::Path) -> Result<Verdict> {
        let said = folder.with_extension("out");
        let failed = || RepoError::io(format!("cannot run {}", self.command));
        let out = fs::File::create(&said).map_err(failed())?;
        let mut child = Command::new("sh")
            .args(["-c", &self.command])
            .env("MDL_CANDIDATE_DIR", folder)
            .stdin(Stdio::null())
            .stdout(out)
            .spawn()
            .map_err(failed())?;
        let ended = self.wait(&mut child).map_err(failed())?;
        let text = fs::read(&said).map_err(failed())?;
        let _ = fs::remove_file(&said);
        Ok(match ended {
            None => Verdict::None(format!("took longer than {} s", self.timeout.as_secs())),
            Some(status) if !status.success() => Verdict::None(format!("ended with {status}")),
            Some(_) => number(&String::from_utf8_lossy(&text)),
        })
    }

    /// `None` where it had to be ended.
    fn wait(&self, child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if start.elapsed() > self.timeout {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(PULSE);
        }
    }
}

/// The last line that is not empty.
fn number(text: &str) -> Verdict {
    let line = text.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or_default();
    match line.parse::<f64>() {
        Ok(v) if v.is_finite() => Verdict::Quality(v),
        _ => Verdict::None(format!("said {line:?}, which is no finite number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_number() {
        assert_eq!(number("loading\n0.25\n\n"), Verdict::Quality(0.25));
        assert_eq!(number("1\n2e-3"), Verdict::Quality(0.002));
        for bad in ["", "nan", "inf", "0.5 ok", "loss: 3"] {
            assert!(matches!(number(bad), Verdict::None(_)), "{bad}");
        }
    }
}
