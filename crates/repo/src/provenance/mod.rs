//! Provenance: which code, command, environment and data sets a version comes from, as its author says.
//!
//! A commit carries it as JSON (docs/format.md, "Provenance"); a signature of the commit covers it. It is exported as
//! in-toto statements ([`statement`]).

mod capture;
mod code;
mod dataset;
mod redact;
mod statement;

pub use capture::capture;
pub use statement::{Predicate, StatementRequest, statement};

use mdl_objects::{Commit, MAX_PROVENANCE};
use mdl_store::{RepoError, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the record that is written.
const VERSION: u32 = 1;

/// Where a version comes from. What is not known is left out; what a later program writes is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The version of this record.
    pub version: u32,
    /// The code that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The command that made it, word by word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What it was made on.
    #[serde(default)]
    pub environment: Environment,
    /// What it was made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<Dataset>,
}

/// A checkout of a git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// The commit that is checked out.
    pub revision: String,
    /// Whether files that git knows differ from it; none: git did not say in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
    /// The address of `origin`, without a user or a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The directory that the program ran in, relative to the top of the checkout.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
}

/// Programs and machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    #[serde(default)]
    pub mdl: String,
    /// Operating system, as Rust names it (`linux`).
    #[serde(default)]
    pub os: String,
    /// Processor's architecture, as Rust names it (`x86_64`).
    #[serde(default)]
    pub arch: String,
    /// Processors that the program may use.
    #[serde(default)]
    pub cpus: usize,
    /// Versions by name: `python`, and its packages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
    /// Accelerators by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Environment variables of the list that is captured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// A data set by name, with what tells whether another one is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// What it is called.
    pub name: String,
    /// Where it is, if that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Digests by algorithm, as in in-toto's DigestSet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digest: BTreeMap<String, String>,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Words of the command that made the version.
    pub command: Vec<String>,
    /// Versions of programs and packages, by name.
    pub packages: BTreeMap<String, String>,
    /// Accelerators by name.
    pub devices: Vec<String>,
    /// `NAME=PLACE`: see [`Dataset::read`].
    pub datasets: Vec<String>,
}

impl Provenance {
    /// What a commit says, if it says something.
    ///
    /// # Errors
    /// It is no record of this version: another program made it.
    pub fn from_commit(commit: &Commit) -> Result<Option<Provenance>> {
        let Some(text) = &commit.provenance else { return Ok(None) };
        let refused = |why: String| {
            let hint = "`mdl show` as JSON has its text; a newer program may know more";
            RepoError::user(format!("the provenance of the version is not understood: {why}"), hint)
        };
        let found: Provenance = serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
        match found.version {
            VERSION => Ok(Some(found)),
            other => Err(refused(format!("it is of version {other}"))),
        }
    }

    /// What a commit says, for people: lines with their names, each on one line.
    pub fn summary_lines(commit: &Commit) -> Vec<(&'static str, String)> {
        let found = match Provenance::from_commit(commit) {
            Ok(None) => return Vec::new(),
            Ok(Some(found)) => found.lines(),
            Err(_) => vec![("Origin", "a record that this program does not understand".to_owned())],
        };
        // A line feed could pass for another field.
        found.into_iter().map(|(name, text)| (name, text.replace(char::is_control, "\u{fffd}"))).collect()
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        if let Some(code) = &self.code {
            let remote = code.remote.as_ref().map(|r| format!(" of {r}")).unwrap_or_default();
            let dirty = if code.dirty == Some(true) { ", with changes" } else { "" };
            out.push(("Code", format!("{}{remote}{dirty}", code.revision)));
        }
        if !self.command.is_empty() {
            out.push(("Command", self.command.join(" ")));
        }
        for set in &self.datasets {
            let place = set.uri.as_ref().map(|uri| format!(" {uri}")).unwrap_or_default();
            let digest: String = set.digest.iter().map(|(algorithm, hex)| format!(" {algorithm}:{hex}")).collect();
            out.push(("Data", format!("{}{place}{digest}", set.name)));
        }
        let e = &self.environment;
        let mut made_on = vec![format!("mdl {}", e.mdl), format!("{} {}, processors: {}", e.os, e.arch, e.cpus)];
        made_on.extend(e.devices.iter().cloned());
        made_on.extend(e.packages.iter().map(|(name, version)| format!("{name} {version}")));
        out.push(("Made on", made_on.join("; ")));
        out
    }

    /// As a commit has it.
    ///
    /// # Errors
    /// It is too long.
    pub fn to_text(&self) -> Result<String> {
        let text =
            serde_json::to_string(self).map_err(|e| RepoError::io("cannot write down a provenance")(e.into()))?;
        match text.len() > MAX_PROVENANCE {
            false => Ok(text),
            true => Err(RepoError::user(
                format!("the provenance has {} bytes, and at most {MAX_PROVENANCE} are kept", text.len()),
                "name fewer data sets, or a shorter command",
            )),
        }
    }
}
