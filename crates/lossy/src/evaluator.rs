//! Runs the user's evaluator: a shell command that looks at a checkpoint and prints a number.

use crate::Evaluator;
use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

/// Environment variable that names the candidate's directory.
const DIR: &str = "MDL_CANDIDATE_DIR";
/// Most bytes of output that are read.
const OUTPUT: u64 = 1 << 20;
/// Most bytes of the end of what it says on standard error that are repeated, and most lines of it.
const LAST_WORDS: (usize, usize) = (1 << 10, 5);
/// Most characters of a line that is no number that are repeated.
const QUOTED: usize = 120;
/// How long the rest of what it says on standard error is waited for once it has ended.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How often a running command is checked.
const TICK: Duration = Duration::from_millis(2);

/// A command that measures checkpoints.
#[derive(Debug)]
pub struct CommandEvaluator {
    command: String,
    timeout: Duration,
    jobs: usize,
    /// Whether a checkpoint is to be kept exact where nothing can be measured.
    keep_going: bool,
    answered: bool,
    /// Why the last candidate has no number.
    pub failures: Vec<String>,
}

impl CommandEvaluator {
    /// Runs `command` by `sh -c` with `MDL_CANDIDATE_DIR` set, for at most this long.
    pub fn new(command: String, timeout: Duration) -> CommandEvaluator {
        let (keep_going, answered) = (false, false);
        CommandEvaluator { command, timeout, jobs: 1, keep_going, answered, failures: Vec::new() }
    }

    /// The same, for a commit that is made also where no number was ever given: every bit is then kept.
    #[must_use]
    pub fn keep_going(self, keep_going: bool) -> CommandEvaluator {
        CommandEvaluator { keep_going, ..self }
    }

    /// Whether it was run and never gave a number.
    pub fn is_mute(&self) -> bool {
        !self.answered && !self.failures.is_empty()
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
            .stderr(Stdio::piped())
            // A group of its own, so that what it starts ends with it.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot run a shell: {e}"))?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let (closed, close) = mpsc::channel::<()>();
        if let Some(err) = child.stderr.take() {
            let tail = said.clone();
            std::thread::spawn(move || {
                repeat(err, &tail);
                drop(closed);
            });
        }
        // What it left running, in a session of its own too, may hold this pipe open for ever.
        let words = || {
            let _ = close.recv_timeout(LAST_MOMENT);
            last_words(&said.lock().unwrap_or_else(PoisonError::into_inner))
        };
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
            end(&mut child);
            return Err(format!("it ended with {status}{}", words()));
        }
        // A process that it left running may hold the pipe open.
        let rest = deadline.saturating_duration_since(Instant::now());
        let Ok(bytes) = output.recv_timeout(rest) else {
            end(&mut child);
            return Err("its output does not end".to_owned());
        };
        number(&String::from_utf8_lossy(&bytes)).map_err(|why| {
            end(&mut child);
            why + &words()
        })
    }

    fn note(&mut self, result: Result<f64, String>) -> Option<f64> {
        self.answered |= result.is_ok();
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

/// Repeats what a command says on standard error, and keeps the end of it.
fn repeat(mut err: impl Read, tail: &Mutex<Vec<u8>>) {
    let mut part = [0; 1 << 12];
    while let Ok(n @ 1..) = err.read(&mut part) {
        // If ours is closed there is nowhere to repeat it.
        let _ = io::stderr().write_all(&part[..n]);
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&part[..n]);
        let surplus = tail.len().saturating_sub(LAST_WORDS.0);
        tail.drain(..surplus);
    }
}

/// The last lines of what a command said, if there are any.
fn last_words(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let mut lines: Vec<&str> = text.lines().rev().filter(|l| !l.trim().is_empty()).take(LAST_WORDS.1).collect();
    lines.reverse();
    if lines.is_empty() { String::new() } else { format!("; it said: {}", lines.join(" / ")) }
}

/// The number on the last line that is not empty.
fn number(output: &str) -> Result<f64, String> {
    let line = output.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().trim();
    match line.parse::<f64>() {
        Ok(n) if n.is_finite() => Ok(n),
        Ok(_) => Err(format!("it printed {line}")),
        Err(_) if line.is_empty() => Err("it printed nothing".to_owned()),
        Err(_) => {
            let quoted: String = line.chars().take(QUOTED).collect();
            Err(format!("its last line is {quoted:?}, not a number"))
        }
    }
}

impl Evaluator for CommandEvaluator {
    fn gave_up(&self) -> bool {
        !self.keep_going && self.is_mute()
    }

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
    fn what_went_wrong_is_quoted() {
        let why = |command: &str| {
            let mut evaluator = CommandEvaluator::new(command.to_owned(), Duration::from_secs(9));
            assert_eq!(evaluator.evaluate(Path::new("/tmp")), None);
            assert!(evaluator.is_mute() && evaluator.gave_up());
            evaluator.failures.remove(0)
        };
        assert_eq!(why("echo loss=1"), "its last line is \"loss=1\", not a number");
        assert_eq!(why("true"), "it printed nothing");
        let lines = why("seq 1 99 >&2; echo 'no module named torch' >&2; exit 3");
        assert_eq!(lines, "it ended with exit status: 3; it said: 96 / 97 / 98 / 99 / no module named torch");
        assert!(why("sleep 60 >&2 & echo here >&2; exit 3").ends_with("it said: here"));
        let mut answers = CommandEvaluator::new("echo 1".to_owned(), Duration::from_secs(9));
        answers.evaluate(Path::new("/tmp"));
        assert!(!answers.is_mute());
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
        // One that has left the group holds its standard error, and nothing ends it.
        assert_eq!(run("setsid sleep 60 & echo here >&2; exit 3", 9.0), None);
        assert_eq!(run("setsid sleep 60 >/dev/null & echo here >&2; echo none", 9.0), None);
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
