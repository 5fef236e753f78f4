//! What a rule about refs is against.

use mdl_objects::Id;
use std::fmt;

/// What a rule about refs is against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The ref would be deleted.
    Deletion,
    /// The ref would leave what it holds behind.
    Rewind {
        /// What it holds.
        old: Id,
        /// What it was to hold.
        new: Id,
    },
    /// No allowed signer stands behind what is new.
    Unsigned {
        /// The commit or tag.
        commit: Id,
        /// What its signature is worth.
        why: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Deletion => f.write_str("it is not to be deleted"),
            Refusal::Rewind { old, new } => {
                write!(f, "it only moves forward, and {} is not in the history of {}", old.short(), new.short())
            }
            Refusal::Unsigned { commit, why } => {
                write!(f, "{} needs the signature of an allowed signer: {why}", commit.short())
            }
        }
    }
}

impl Refusal {
    /// A next step.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Refusal::Deletion => "who runs the server can allow it",
            Refusal::Rewind { .. } => "get what is there and build on it, or move another branch",
            Refusal::Unsigned { .. } => "sign every new version with a key in the server's list of allowed signers",
        }
    }
}
