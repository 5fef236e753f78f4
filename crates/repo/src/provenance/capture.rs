//! Captures provenance: git's own program is asked about the code, the process about the rest.

use crate::provenance::{Code, Dataset, Environment, Provenance, VERSION, Wanted};
use mdl_store::Result;
use std::{
    collections::BTreeMap,
    env,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long git may take for an answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Variables that say how a run was set up. Others may hold secrets, and say more about the user than about the run.
const VARIABLES: [&str; 9] = [
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "SLURM_JOB_ID",
    "CUBLAS_WORKSPACE_CONFIG",
];
/// What the name of an option has in it whose value is left out.
const SECRETS: [&str; 7] = ["token", "secret", "password", "passwd", "credential", "apikey", "key"];
/// In place of such a value.
const HIDDEN: &str = "***";

/// Says where a version comes from that is made now in this directory.
///
/// # Errors
/// A data set cannot be read, or is not told of rightly. Where there is no git, or no repository, nothing is said of
/// the code.
pub fn capture(directory: &Path, wanted: &Wanted) -> Result<Provenance> {
    Ok(Provenance {
        version: VERSION,
        code: code(directory),
        command: without_secrets(&wanted.command),
        environment: Environment {
            mdl: env!("CARGO_PKG_VERSION").to_owned(),
            os: env::consts::OS.to_owned(),
            arch: env::consts::ARCH.to_owned(),
            cpus: thread::available_parallelism().map_or(0, usize::from),
            packages: wanted.packages.clone(),
            devices: wanted.devices.clone(),
            variables: variables(),
        },
        datasets: wanted.datasets.iter().map(|text| Dataset::read(text)).collect::<Result<_>>()?,
    })
}

fn variables() -> BTreeMap<String, String> {
    VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?))).collect()
}

fn code(directory: &Path) -> Option<Code> {
    let text = |args: &[&str]| Some(git(directory, args)?.trim_end().to_owned()).filter(|t| !t.is_empty());
    Some(Code {
        revision: text(&["rev-parse", "--verify", "HEAD"])?,
        dirty: git(directory, &["status", "--porcelain", "--untracked-files=no"]).map(|out| !out.trim().is_empty()),
        remote: text(&["config", "--get", "remote.origin.url"]).map(|url| without_user(&url)),
        directory: text(&["rev-parse", "--show-prefix"])
            .map(|d| d.trim_end_matches('/').to_owned())
            .unwrap_or_default(),
    })
}

/// What git prints; none where it fails, is not there, or takes too long. No hook and no monitor of files runs.
fn git(directory: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager"]).args(args);
    command.current_dir(directory).env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    command.env("GIT_NO_LAZY_FETCH", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut out = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = out.read_to_end(&mut text);
        tell.send(read.map(|_| text))
    });
    let text = told.recv_timeout(TIME_LIMIT);
    if text.is_err() {
        // It may have ended by now.
        let _ = child.kill();
    }
    let is_done = child.wait().ok()?.success();
    let text = text.ok()?.ok()?;
    is_done.then(|| String::from_utf8_lossy(&text).into_owned())
}

/// An address without its user and password.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find('/').unwrap_or(rest.len());
            let from = rest[..host].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[from..])
        }
        None => url.to_owned(),
    }
}

/// Words of a command without the values of options whose names speak of secrets, and without users in addresses:
/// `--hf-token X`, `--hf-token=X`, `HF_TOKEN=X`.
fn without_secrets(words: &[String]) -> Vec<String> {
    let speaks = |name: &str| {
        let name = name.to_lowercase().replace(['-', '_'], "");
        SECRETS.iter().any(|s| if *s == "key" { name.ends_with(s) } else { name.contains(s) })
    };
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut hides_next = false;
    for word in words {
        let is_option = word.starts_with('-');
        out.push(match word.split_once('=') {
            _ if hides_next && !is_option => HIDDEN.to_owned(),
            Some((name, _)) if speaks(name) => format!("{name}={HIDDEN}"),
            _ => without_user(word),
        });
        hides_next = is_option && !word.contains('=') && speaks(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (given, kept) in [
            ("train.py --lr 1e-3", "train.py --lr 1e-3"),
            ("--hf-token hf_x --out run", "--hf-token *** --out run"),
            ("--hf_token=hf_x HF_TOKEN=y", "--hf_token=*** HF_TOKEN=***"),
            ("--wandb-api-key k --keys 3 --monkey", "--wandb-api-key *** --keys 3 --monkey"),
            ("--password --verbose x", "--password --verbose x"),
            ("--db https://ada:pw@host/x a@b", "--db https://host/x a@b"),
        ] {
            assert_eq!(without_secrets(&words(given)), words(kept), "{given}");
        }
    }

    #[test]
    fn addresses_lose_their_users() {
        for (given, kept) in [
            ("https://ada:secret@example.org/x@y.git", "https://example.org/x@y.git"),
            ("https://example.org/x", "https://example.org/x"),
            ("git@example.org:ada/x.git", "git@example.org:ada/x.git"),
            ("ssh://git@example.org", "ssh://example.org"),
        ] {
            assert_eq!(without_user(given), kept);
        }
    }
}
