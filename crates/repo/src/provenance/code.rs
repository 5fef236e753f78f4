//! The state of the code around a directory, as the `git` program says it: within a time, without prompts, hooks or a
//! network. Where there is no git or no repository there is nothing to say, which fails nothing.

use crate::provenance::{
    Code,
    redact::{redacted, redacted_url},
};
use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread::{self, sleep},
    time::{Duration, Instant},
};

/// How long git may take for all that is asked.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const LONGEST: u64 = 64 << 10;
/// Settings of a repository that would run something, or reach out.
const QUIET: [&str; 4] =
    ["core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "protocol.allow=never"];
/// What a hook or `git rebase --exec` sets would name another repository.
const OTHERS: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_CONFIG_PARAMETERS",
];

/// What git says of the code in a directory.
pub(super) fn code_in(dir: &Path) -> Option<Code> {
    let end = Instant::now() + TIME_LIMIT;
    let line = |args: &[&str]| {
        let answer = ask(dir, args, end)?;
        let text = answer.text.strip_suffix('\n').unwrap_or(&answer.text).to_owned();
        answer.ok.then_some(text)
    };
    let revision = line(&["rev-parse", "--verify", "HEAD^{commit}"])?;
    if !matches!(revision.len(), 40 | 64) || !revision.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let directory = line(&["rev-parse", "--show-prefix"]).map(|p| p.trim_end_matches('/').to_owned());
    let url = line(&["config", "--get", "remote.origin.url"]);
    let changes = ask(dir, &["status", "--porcelain", "--untracked-files=no"], end);
    Some(Code {
        revision,
        // One that says a lot is cut off, and then does not end well.
        dirty: changes.and_then(|answer| (answer.ok || !answer.text.is_empty()).then_some(!answer.text.is_empty())),
        remote: url.filter(|url| is_elsewhere(url)).map(|url| redacted(&redacted_url(&url), None)),
        directory: directory.unwrap_or_default(),
    })
}

/// Whether an address is not a place on this machine, which would mean nothing to others and may name its user.
fn is_elsewhere(url: &str) -> bool {
    match url.split_once("://") {
        Some((scheme, _)) => scheme != "file",
        // `host:path`, as scp has it.
        None => url.split_once(':').is_some_and(|(host, _)| !host.contains('/') && host.len() > 1),
    }
}

struct Answer {
    ok: bool,
    text: String,
}

/// Runs git; none: it is not there, or did not answer in time.
fn ask(dir: &Path, args: &[&str], end: Instant) -> Option<Answer> {
    let mut command = Command::new("git");
    for name in OTHERS {
        command.env_remove(name);
    }
    command.arg("-C").arg(dir).arg("--no-pager").args(QUIET.iter().flat_map(|setting| ["-c", setting])).args(args);
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let output = child.stdout.take()?;
    let (send, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(LONGEST).read_to_end(&mut bytes);
        let _ = send.send(read.map(|_| bytes));
    });
    let ok = wait(&mut child, end)?;
    let bytes = text.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?.ok()?;
    Some(Answer { ok, text: String::from_utf8(bytes).ok()? })
}

/// Waits for its end, and ends it where it takes too long.
fn wait(child: &mut Child, end: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < end => sleep(Duration::from_millis(2)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_this_machine_are_told_from_others() {
        for url in ["https://host/x", "ssh://git@host/x", "git@host:x/y", "host:x"] {
            assert!(is_elsewhere(url), "{url}");
        }
        for url in ["/home/ada/x", "../x", "file:///x", "./a:b", "C:/x"] {
            assert!(!is_elsewhere(url), "{url}");
        }
    }

    #[test]
    fn where_there_is_no_repository_there_is_nothing_to_say() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(code_in(dir.path()), None);
        assert_eq!(code_in(&dir.path().join("gone")), None);
    }
}
