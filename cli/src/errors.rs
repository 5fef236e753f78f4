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
    Hinted { error: RepoError, hint: String },
    /// An error of the command itself.
    Said { code: Code, message: String, hint: String },
    /// Standard output failed.
    Output(io::Error),
    /// The output already says "no": only the exit code is left to set.
    Told(Code),
    /// A check found damage and has printed where.
    Damaged(u64),
    /// Some of several operations failed, the others succeeded. The kind of the first failure gives the exit code.
    Some(Vec<CliError>),
}

const DAMAGED: &str = "versions that are not named are whole; put back the damaged files from a copy of the repository, or \
    commit the affected checkpoints again if you still have them: what is damaged is then stored anew";

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

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    User = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Corrupt = 5,
    Io = 6,
}

impl Code {
    /// Name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Code::User => "user",
            Code::Usage => "usage",
            Code::NotFound => "not_found",
            Code::Conflict => "conflict",
            Code::Corrupt => "corrupt",
            Code::Io => "io",
        }
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Code {
        match kind {
            ErrorKind::User => Code::User,
            ErrorKind::Usage => Code::Usage,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::Corrupt => Code::Corrupt,
            ErrorKind::Io => Code::Io,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

impl From<RepoError> for CliError {
    fn from(error: RepoError) -> CliError {
        CliError::Repo(error)
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> CliError {
        let code = match problem.kind {
            "usage" => Code::Usage,
            "not_found" => Code::NotFound,
            "conflict" => Code::Conflict,
            "corrupt" => Code::Corrupt,
            "io" | "internal" => Code::Io,
            _ => Code::User,
        };
        CliError::Said { code, message: problem.message, hint: problem.hint.unwrap_or_default() }
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
        CliError::Said { code: Code::Usage, message: message.into(), hint: hint.into() }
    }

    /// An error with another next step than its own.
    pub fn hinted(error: RepoError, hint: impl Into<String>) -> CliError {
        let hint = hint.into();
        CliError::Hinted { error, hint }
    }

    pub fn code(&self) -> Code {
        match self {
            CliError::Repo(error) | CliError::Hinted { error, .. } => error.kind().into(),
            CliError::Said { code, .. } => *code,
            CliError::Output(_) => Code::Io,
            CliError::Told(code) => *code,
            CliError::Damaged(_) => Code::Corrupt,
            CliError::Some(errors) => errors.first().map_or(Code::User, CliError::code),
        }
    }

    /// Name of the kind in JSON.
    pub fn kind(&self) -> &'static str {
        self.code().name()
    }

    pub fn message(&self) -> String {
        match self {
            CliError::Repo(error) | CliError::Hinted { error, .. } => error.to_string(),
            CliError::Said { message, .. } => message.clone(),
            CliError::Output(e) => format!("cannot write to standard output: {e}"),
            CliError::Told(_) => String::new(),
            CliError::Damaged(n) => format!("{} found", crate::render::count(*n, "problem")),
            CliError::Some(errors) => errors.iter().map(CliError::message).collect::<Vec<_>>().join("; "),
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            CliError::Repo(RepoError::NotFound { what, .. }) if not_found_hint(*what).is_some() => {
                not_found_hint(*what).map(str::to_owned)
            }
            CliError::Repo(RepoError::FilesInTheWay { .. }) => Some(FORCE.to_owned()),
            CliError::Repo(e) => problem::hint(e),
            CliError::Hinted { hint, .. } | CliError::Said { hint, .. } => Some(hint.clone()).filter(|h| !h.is_empty()),
            CliError::Damaged(_) => Some(DAMAGED.to_owned()),
            CliError::Some(errors) => errors.iter().find_map(CliError::hint),
            CliError::Output(_) | CliError::Told(_) => None,
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
        Missing::Remote => "`mdl remote -v` lists the remotes, `mdl remote add NAME URL` names one",
        _ => return None,
    })
}

/// Tells the user and gives the exit code.
pub fn report(context: &Context, error: &CliError) -> ExitCode {
    match error {
        // The reader of our output closed the pipe, as `head` does: no error.
        CliError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        CliError::Told(code) => return (*code).into(),
        _ => {}
    }
    let (code, message, hint) = (error.code(), error.message(), error.hint());
    let mut err = io::stderr().lock();
    // If standard error is closed too, the exit code still tells.
    let _ = if context.global.json {
        writeln!(err, "{}", json!({"error": {"kind": code.name(), "message": message, "hint": hint}}))
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
    code.into()
}

/// The arguments could not be understood, or help was asked for.
pub fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        let hint = "run `mdl --help` or `mdl VERB --help`";
        let document = json!({"error": {"kind": Code::Usage.name(), "message": message.trim(), "hint": hint}});
        let _ = writeln!(io::stderr(), "{document}");
    } else {
        let _ = error.print();
    }
    Code::Usage.into()
}
