//! The training command that a watch runs: its start, the signals passed on to it, and its end.

use super::quit::Quit;
use crate::commands::prelude::*;
use mdl_repo::ErrorKind;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process, waitid};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    flag,
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Signals that a terminal, a scheduler or a person sends to a training run.
const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// Those of them that ask it to end.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// How soon after one signal the same one again is still the same request.
const TWICE: Duration = Duration::from_millis(200);
/// How long a command that may have got a signal has to end by it.
const MOMENT: Duration = Duration::from_millis(100);

/// A running command.
#[derive(Debug)]
pub struct Running {
    /// Set when it has ended.
    pub ended: Arc<AtomicBool>,
    /// Set when it was asked to end: the sender of the signal then waits for us too.
    pub asked: Arc<AtomicBool>,
    waiter: JoinHandle<io::Result<ExitStatus>>,
}

/// The process while a signal can reach it: none once its number may be another's.
type Target = Arc<Mutex<Option<Pid>>>;

impl Running {
    /// Starts a command with our standard input. Its standard output is ours, or with `--json` our standard error.
    ///
    /// # Errors
    /// Exit code 127 where there is no such program, 126 where it cannot be run, as shells have it.
    pub fn start(context: &Context, command: &[OsString], quit: &Quit) -> Result<Running> {
        let Some((program, args)) = command.split_first() else {
            return Err(CliError::usage("no command is named after `--`", ""));
        };
        let failed = RepoError::io("cannot listen for signals");
        let ignored = ignored();
        let heard = PASSED_ON.iter().filter(|s| ignored >> (**s - 1) & 1 == 0);
        // A parent that ignored it had us ignore it, and then no child can be waited for.
        flag::register(SIGCHLD, Arc::default()).map_err(RepoError::io("cannot listen for signals"))?;
        // Before the start: a signal from then on is either ours to pass on, or kills both.
        let signals = SignalsInfo::<WithOrigin>::new(heard).map_err(failed)?;
        let mut starting = Command::new(program);
        starting.args(args);
        if context.global.json {
            let errors = io::stderr().as_fd().try_clone_to_owned();
            starting.stdout(Stdio::from(errors.map_err(RepoError::io("cannot share standard error"))?));
        }
        let mut child = starting.spawn().map_err(|error| not_started(program, &error))?;
        let pid = Pid::from_child(&child);
        let target: Target = Arc::new(Mutex::new(Some(pid)));
        let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (to, asks, quit) = (target.clone(), asked.clone(), quit.clone());
        thread::spawn(move || pass_on(signals, &to, &asks, &quit));
        let end = ended.clone();
        let waiter = thread::spawn(move || {
            // Waited for without being reaped: its number stays its own until no signal can be sent to it.
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            *target.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let status = child.wait();
            end.store(true, Ordering::Relaxed);
            status
        });
        Ok(Running { ended, asked, waiter })
    }

    /// Waits for its end and returns the exit code: its own, 128+n if signal n killed it.
    pub fn exit_code(self) -> Result<u8> {
        let status =
            self.waiter.join().unwrap_or_else(|_| Err(io::Error::other("the thread that waits for it failed")));
        let status = status.map_err(RepoError::io("cannot wait for the command"))?;
        let code = status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(1);
        Ok(u8::try_from(code).unwrap_or(1))
    }
}

/// Returns the mask of ignored signals, bit n-1 for signal n: what `nohup` and shells had us ignore, the command is to
/// ignore too, and a handler of ours would undo it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn not_started(program: &OsString, error: &io::Error) -> CliError {
    let (code, kind) = match error.kind() {
        io::ErrorKind::NotFound => (127, ErrorKind::NotFound),
        _ => (126, ErrorKind::Io),
    };
    let message = format!("cannot start {}: {error}", program.display());
    CliError::Command { code, kind, message, hint: "what follows `--` is a program and its arguments".into() }
}

/// Passes signals on while the command runs. After its end a second one that asks to end does so at once; the first one
/// may be what has ended the command, and what that left is still to be kept.
fn pass_on(mut signals: SignalsInfo<WithOrigin>, target: &Target, asked: &AtomicBool, quit: &Quit) {
    let mut heard: HashMap<i32, Instant> = HashMap::new();
    for Origin { signal, cause, .. } in &mut signals {
        let ends = ENDING.contains(&signal);
        // `timeout` signals its child and then the whole group, at once.
        let before = heard.insert(signal, Instant::now());
        if ends && before.is_some_and(|at| at.elapsed() < TWICE) {
            continue;
        }
        let first = ends && !asked.swap(true, Ordering::Relaxed);
        let to = || *target.lock().unwrap_or_else(PoisonError::into_inner);
        let beside_us = to().is_some_and(|pid| getpgid(Some(pid)) == Ok(getpgrp()));
        match cause {
            // A terminal has sent it to the whole group already: a second one would cut a trainer's clean end short.
            Cause::Kernel if beside_us => continue,
            // So may a scheduler have, which cannot be told: what has ended by it needs no other.
            _ if beside_us && ends => wait_for_end(target),
            _ => {}
        }
        let to = target.lock().unwrap_or_else(PoisonError::into_inner);
        match (*to, Signal::from_named_raw(signal)) {
            (Some(pid), Some(signal)) => drop(kill_process(pid, signal)),
            _ if ends && !first => quit.ask(signal),
            _ => {}
        }
    }
}

/// Waits a moment for the command's end.
fn wait_for_end(target: &Target) {
    let end = Instant::now() + MOMENT;
    while Instant::now() < end && target.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        thread::sleep(MOMENT / 20);
    }
}
