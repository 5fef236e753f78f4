//! Runs the user's evaluator: a shell command that looks at a checkpoint and prints a number.

use crate::Evaluator;
use std::{
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

/// Environment variable that names the candidate's directory.
const DIR: &str = "MDL_CANDIDATE_DIR";
/// Most bytes of output that are read.
const OUTPUT: u64 = 1 << 20;
/// How often a running command is checked.
const TICK: Duration = Duration::from_millis(2);

/// A command that measures checkpoints.
#[derive(Debug)]
pub struct CommandEvaluator {
    command: String,
    timeout: Duration,
    jobs: usize,
    /// Why the last candidate has no number.
    pub failures: Vec<String>,
}

impl CommandEvaluator {
    /// Runs `command` by `sh -c` with `MDL_CANDIDATE_DIR` set, for at most this long.
    pub fn new(command: String, timeout: Duration) -> CommandEvaluator {
        CommandEvaluator { command, timeout, jobs: 1, failures: Vec::new() }
    }

    /// The same, with so many commands side by side (at least one).
    #[must_use]
    pub fn side_by_side(self, jobs: usize) -> CommandEvaluator {
        CommandEvaluator { jobs: jobs.max(1), ..self }
    }

    /// The finite number on the last line that the command prints for the checkpoint in `dir`.
    ///
    /// # Errors
    /// Why there is none, in words: it failed, took too long, printed something else.
    pub fn run(&self, dir: &Path) -> Result<f64, String> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .env(DIR, dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A group of its own, so that what it starts ends with it.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot run a shell: {e}"))?;
        let (send, output) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = out.take(OUTPUT).read_to_end(&mut bytes);
                let _ = send.send(bytes);
            });
        }
        let deadline = Instant::now() + self.timeout;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(TICK),
                Ok(None) => {
                    end(&mut child);
                    return Err(format!("no answer within {} s", self.timeout.as_secs()));
                }
                Err(e) => {
                    end(&mut child);
                    return Err(format!("cannot wait for it: {e}"));
                }
            }
        };
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        // A process that it left running may hold the pipe open.
        let rest = deadline.saturating_duration_since(Instant::now());
        let Ok(bytes) = output.recv_timeout(rest) else {
            end(&mut child);
            return Err("its output does not end".to_owned());
        };
        number(&String::from_utf8_lossy(&bytes))
    }

    fn note(&mut self, result: Result<f64, String>) -> Option<f64> {
        result.map_err(|why| self.failures.push(why)).ok()
    }
}

/// Ends the command and everything in its group.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    let _ = child.wait();
}

/// The number on the last line that is not empty.
fn number(output: &str) -> Result<f64, String> {
    let line = output.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().trim();
    match line.parse::<f64>() {
        Ok(n) if n.is_finite() => Ok(n),
        Ok(_) => Err(format!("it printed {line}")),
        Err(_) => Err(format!("its last line is {line:?}, not a number")),
    }
}

impl Evaluator for CommandEvaluator {
    fn evaluate(&mut self, dir: &Path) -> Option<f64> {
        let result = self.run(dir);
        self.note(result)
    }

    fn width(&self) -> usize {
        self.jobs
    }

    fn evaluate_all(&mut self, dirs: &[&Path]) -> Vec<Option<f64>> {
        let mut out = Vec::with_capacity(dirs.len());
        for dirs in dirs.chunks(self.jobs) {
            let this = &*self;
            let results: Vec<_> = std::thread::scope(|scope| {
                let running: Vec<_> = dirs.iter().map(|dir| scope.spawn(|| this.run(dir))).collect();
                let lost = |_| Err("nothing could wait for it".to_owned());
                running.into_iter().map(|r| r.join().unwrap_or_else(lost)).collect()
            });
            out.extend(results.into_iter().map(|r| self.note(r)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, seconds: f64) -> Option<f64> {
        CommandEvaluator::new(command.to_owned(), Duration::from_secs_f64(seconds)).evaluate(Path::new("/tmp"))
    }

    #[test]
    fn the_last_line_that_is_not_empty_counts() {
        assert_eq!(number("loading\n0.25\n\n"), Ok(0.25));
        assert_eq!(number("1\n2e-3"), Ok(0.002));
        for bad in ["", "nan", "inf", "0.5 ok", "loss: 3"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_line_is_the_number() {
        assert_eq!(run("echo loading; echo 1.5", 9.0), Some(1.5));
        assert_eq!(run("echo ' -2e-3 '; echo", 9.0), Some(-2e-3));
        assert_eq!(run("test \"$MDL_CANDIDATE_DIR\" = /tmp && echo 3", 9.0), Some(3.0));
    }

    #[test]
    fn whatever_else_happens_is_no_number() {
        for command in ["echo 1.5; exit 3", "echo nan", "echo inf", "true", "echo loss=1", "kill -9 $$"] {
            assert_eq!(run(command, 9.0), None, "{command}");
        }
    }

    #[test]
    fn several_run_side_by_side_and_answer_in_order() {
        let dir = tempfile::TempDir::new().expect("temp");
        let dirs: Vec<_> = ["0.5", "none", "2.5"].iter().map(|n| dir.path().join(n)).collect();
        dirs.iter().for_each(|d| std::fs::create_dir(d).expect("dir"));
        // Each waits for all others: one after the other none would end.
        let command = "touch \"$MDL_CANDIDATE_DIR/here\"; \
            until test $(ls \"$MDL_CANDIDATE_DIR\"/../*/here | wc -l) = 3; do sleep 0.01; done; basename \"$MDL_CANDIDATE_DIR\"";
        let mut evaluator = CommandEvaluator::new(command.to_owned(), Duration::from_secs(60)).side_by_side(3);
        let dirs: Vec<&Path> = dirs.iter().map(AsRef::as_ref).collect();
        assert_eq!(evaluator.width(), 3);
        assert_eq!(evaluator.evaluate_all(&dirs), [Some(0.5), None, Some(2.5)]);
        assert_eq!(evaluator.failures.len(), 1);
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let start = Instant::now();
        assert_eq!(run("sleep 60 & sleep 60; echo 1", 0.1), None);
        assert_eq!(run("sleep 60 & echo 1", 0.1), None);
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
