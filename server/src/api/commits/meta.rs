//! Fields of a `POST .../commits` request other than files: message, branch, parent, step, metrics.

use crate::request::{extract::null_or_absent, prelude::*};
use std::collections::BTreeMap;

/// Key in a commit's meta that holds the idempotency key; clients may not set it themselves.
pub(super) const IDEMPOTENCY: &str = "mdl.idempotency";

/// What the version starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Base {
    /// Nothing: its files are those that are sent.
    #[default]
    Empty,
    /// The version at the branch's tip: files that are neither sent nor removed stay.
    Parent,
}

/// An upload that becomes a file.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FromUpload {
    /// The file's name: `/`-separated.
    #[schema(example = "model.safetensors")]
    pub path: String,
    /// Name of the upload.
    pub upload: String,
    /// Whether the file is executable.
    #[serde(default)]
    pub executable: bool,
}

/// Fields of a new commit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCommit)]
pub(super) struct Meta {
    /// The branch, made from HEAD's commit if it is new. Default: the one HEAD is on.
    pub branch: Option<String>,
    /// The commit message. Default: `step N` if `step` is given.
    pub message: Option<String>,
    /// Optimizer steps trained so far.
    pub step: Option<u64>,
    /// Epochs trained so far.
    #[schema(minimum = 0)]
    pub epoch: Option<f64>,
    /// Numbers measured on this version.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Anything else worth keeping.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
    /// Where the branch must stand: a commit's id, or null for a branch that must not have a commit. Left out:
    /// wherever it stands.
    #[serde(default, deserialize_with = "null_or_absent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    pub expected: Option<Option<String>>,
    /// What the version starts from.
    #[serde(default)]
    pub base: Base,
    /// With `base: parent`: files to leave out; what ends in `/` is a directory.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Uploads that become files.
    #[serde(default)]
    pub uploads: Vec<FromUpload>,
    /// Sent files that are executable (a tar says so itself).
    #[serde(default)]
    pub executable: Vec<String>,
    /// Store weights lossily under this policy of the repository; nothing is measured.
    pub policy: Option<String>,
    /// The version that training was restored from since the last commit.
    pub resumed_from: Option<String>,
    /// Commit even if nothing changed.
    #[serde(default)]
    pub allow_empty: bool,
    /// Take damaged checkpoint files as plain bytes.
    #[serde(default)]
    pub allow_damaged: bool,
}

impl Meta {
    /// Reads it; refuses what contradicts itself.
    pub(super) fn parse(json: &[u8]) -> Result<Meta> {
        let meta: Meta =
            serde_json::from_slice(json).map_err(|e| Problem::usage(format!("meta cannot be read: {e}")))?;
        let refuse = |why: &str| Err(Problem::usage(why));
        if meta.message.as_ref().map_or(meta.step.is_none(), |m| m.trim().is_empty()) {
            return refuse("say what this version is with a message or a step");
        }
        if meta.epoch.is_some_and(|e| !e.is_finite() || e < 0.0) {
            return refuse("epoch must be a number from 0 up");
        }
        if meta.base == Base::Empty && !meta.remove.is_empty() {
            return refuse("`remove` wants `base: \"parent\"`");
        }
        if meta.meta.contains_key(IDEMPOTENCY) {
            let why = format!("{IDEMPOTENCY} in meta is set by the header Idempotency-Key");
            return Err(Problem::refused(why));
        }
        meta.expected()?;
        Ok(meta)
    }

    /// The message.
    pub(super) fn message(&self) -> String {
        let step = || format!("step {}", self.step.unwrap_or_default());
        self.message.clone().unwrap_or_else(step)
    }

    /// Where the branch must stand.
    pub(super) fn expected(&self) -> Result<Option<Option<Id>>> {
        let id = |text: &String| {
            text.parse::<Id>()
                .map_err(|_| Problem::usage("expected wants a commit's id of 64 hexadecimal digits, or null"))
        };
        self.expected.as_ref().map(|e| e.as_ref().map(id).transpose()).transpose()
    }
}
