//! Errors of a run: kinds, exit codes, and messages on standard error.

use crate::{context::Context, render::visible};
use mdl_repo::{ErrorKind, Missing, RepoError};
use mdl_server::problem::{self, Problem};
use serde_json::json;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Result of the commands.
pub type Result<T> = std::result::Result<T, CliError>;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum CliError {
    /// The repository refused or failed.
    Repo(RepoError),
    /// The same, where the command has a better hint than the error.
    Hinted { error: Box<RepoError>, hint: String },
    /// An error of the command itself.
    Own { kind: ErrorKind, message: String, hint: String },
    /// A command that could not be started; the exit code is that of shells.
    Command { code: u8, kind: ErrorKind, message: String, hint: String },
    /// A command that we ran ended so: only its exit code is left to set.
    Ended(u8),
    /// Standard output failed.
    Output(io::Error),
    /// The output already says "no": only the exit code, 1, is left to set.
    Told,
    /// A check found damage and has printed where.
    Damaged(u64),
    /// Some of several operations failed, the others succeeded. The kind of the first failure gives the exit code.
    Some(Vec<CliError>),
}

const DAMAGED: &str = "versions that are not named are whole; put back the damaged files from a copy of the \
    repository, or commit the affected checkpoints again if you still have them: what is damaged is then stored anew";

/// Hint about files in the way, for commands with `--force`.
const FORCE: &str = "commit them first, or pass --force to lose the changes";
/// The same, for commands without.
const NO_FORCE: &str = "commit them first, or drop the changes with `mdl checkout HEAD --only FILE --force`";

/// An error of a verb without `--force`.
pub fn unforced(error: RepoError) -> CliError {
    match error {
        RepoError::FilesInTheWay { .. } => CliError::hinted(error, NO_FORCE),
        other => other.into(),
    }
}

/// The kinds with their names in JSON and their exit codes.
const KINDS: [(ErrorKind, &str, u8); 6] = [
    (ErrorKind::User, "user", 1),
    (ErrorKind::Usage, "usage", 2),
    (ErrorKind::NotFound, "not_found", 3),
    (ErrorKind::Conflict, "conflict", 4),
    (ErrorKind::Corrupt, "corrupt", 5),
    (ErrorKind::Io, "io", 6),
];

fn name_and_code(kind: ErrorKind) -> (&'static str, ExitCode) {
    let (_, name, code) = KINDS.into_iter().find(|k| k.0 == kind).unwrap_or(KINDS[0]);
    (name, code.into())
}

impl From<RepoError> for CliError {
    fn from(error: RepoError) -> CliError {
        CliError::Repo(error)
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> CliError {
        let name = if problem.kind == "internal" { "io" } else { problem.kind };
        let kind = KINDS.iter().find(|k| k.1 == name).map_or(ErrorKind::User, |k| k.0);
        CliError::Own { kind, message: problem.message, hint: problem.hint.unwrap_or_default() }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        CliError::Output(error)
    }
}

impl CliError {
    /// Arguments that do not fit together.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> CliError {
        CliError::Own { kind: ErrorKind::Usage, message: message.into(), hint: hint.into() }
    }

    /// An error with another next step than its own.
    pub fn hinted(error: RepoError, hint: impl Into<String>) -> CliError {
        CliError::Hinted { error: Box::new(error), hint: hint.into() }
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            CliError::Repo(error) => error.kind(),
            CliError::Hinted { error, .. } => error.kind(),
            CliError::Own { kind, .. } | CliError::Command { kind, .. } => *kind,
            CliError::Output(_) => ErrorKind::Io,
            CliError::Told | CliError::Ended(_) => ErrorKind::User,
            CliError::Damaged(_) => ErrorKind::Corrupt,
            CliError::Some(errors) => errors.first().map_or(ErrorKind::User, CliError::kind),
        }
    }

    pub fn kind_name(&self) -> &'static str {
        name_and_code(self.kind()).0
    }

    pub fn message(&self) -> String {
        match self {
            CliError::Repo(error) => error.to_string(),
            CliError::Hinted { error, .. } => error.to_string(),
            CliError::Own { message, .. } | CliError::Command { message, .. } => message.clone(),
            CliError::Output(e) => format!("cannot write to standard output: {e}"),
            CliError::Told | CliError::Ended(_) => String::new(),
            CliError::Damaged(n) => format!("{} found", crate::render::count(*n, "problem")),
            CliError::Some(errors) => errors.iter().map(CliError::message).collect::<Vec<_>>().join("; "),
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            CliError::Repo(e @ RepoError::NotFound { what, .. }) => {
                not_found_hint(*what).map(str::to_owned).or_else(|| problem::hint(e))
            }
            CliError::Repo(RepoError::FilesInTheWay { .. }) => Some(FORCE.to_owned()),
            CliError::Repo(e) => problem::hint(e),
            CliError::Hinted { hint, .. } | CliError::Own { hint, .. } | CliError::Command { hint, .. } => {
                Some(hint.clone()).filter(|h| !h.is_empty())
            }
            CliError::Damaged(_) => Some(DAMAGED.to_owned()),
            CliError::Some(errors) => errors.iter().find_map(CliError::hint),
            CliError::Output(_) | CliError::Told | CliError::Ended(_) => None,
        }
    }
}

/// Where to look for what there is.
fn not_found_hint(what: Missing) -> Option<&'static str> {
    Some(match what {
        Missing::Repository => "make one here with `mdl init`, or name one with --repo DIR or MDL_REPO",
        Missing::Revision | Missing::Commit => "`mdl log --all` lists commits, `mdl branch` and `mdl tag` names",
        Missing::Version => "`mdl commit` makes the first",
        Missing::Branch => "`mdl branch` lists the branches",
        Missing::Tag => "`mdl tag` lists the tags",
        Missing::File => "`mdl ls REV` lists the files of a revision",
        Missing::Tensor => "`mdl ls REV PATH` lists the tensors of a file",
        Missing::Setting => "`mdl config` lists the settings",
        Missing::Policy => "`mdl policy list` lists the policies; a file's name ends in .toml",
        Missing::Remote => "`mdl remote -v` lists the remotes, `mdl remote add NAME URL` names one",
        _ => return None,
    })
}

/// Tells the user and gives the exit code.
pub fn report(context: &Context, error: &CliError) -> ExitCode {
    let ((kind, mut code), message, hint) = (name_and_code(error.kind()), error.message(), error.hint());
    match error {
        CliError::Command { code: own, .. } => code = (*own).into(),
        CliError::Ended(code) => return (*code).into(),
        // The reader of our output closed the pipe, as `head` does: no error.
        CliError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        CliError::Told => return code,
        _ => {}
    }
    let mut err = io::stderr().lock();
    // If standard error is closed too, the exit code still tells.
    let _ = if context.global.json {
        writeln!(err, "{}", json!({"error": {"kind": kind, "message": message, "hint": hint}}))
    } else {
        let paint = context.error_paint();
        let hint = hint.map_or_else(String::new, |h| format!("{} {h}\n", paint.cyan("hint:")));
        let messages = match error {
            CliError::Some(errors) => errors.iter().map(CliError::message).collect(),
            _ => vec![message],
        };
        let lines = messages.iter().map(|m| format!("{} {}\n", paint.red("error:"), visible(m)));
        write!(err, "{}{hint}", lines.collect::<String>())
    };
    code
}

/// The arguments could not be understood, or help was asked for.
pub fn usage(error: &clap::Error) -> ExitCode {
    let (kind, code) = name_and_code(ErrorKind::Usage);
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        let hint = "run `mdl --help` or `mdl VERB --help`";
        let document = json!({"error": {"kind": kind, "message": message.trim(), "hint": hint}});
        let _ = writeln!(io::stderr(), "{document}");
    } else {
        let _ = error.print();
    }
    code
}
