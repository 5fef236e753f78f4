//! Remedies: what can be done about a refusal.

use mdl_objects::Id;
use std::fmt;

/// What can be done about a refusal, in words that fit every caller. Programs name their own options instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// What these words say; empty: nothing.
    Text(String),
    /// Another name, or to force it.
    NameOrForce,
    /// To force a deletion.
    ForceDeletion,
    /// To move a branch that one is on by a reset.
    Reset,
    /// To go on from a version (named so) on a branch of its own, or to check it out elsewhere.
    BranchOrCheckOut(String),
    /// To name a directory, where there is no work tree.
    NamePath,
    /// To follow symbolic links, or to ignore them.
    FollowLinks,
    /// To remove or move what is in the way (the words say which), or to check out elsewhere.
    CheckOutElsewhere(&'static str),
    /// To allow a shard without files.
    AllowEmptyShard,
    /// To take back the pruning of a version first.
    UndoPrune(Id),
    /// To look at the time of grace of pruned versions.
    PruneGrace,
    /// To ask two questions in place of one about two revisions.
    TwoRevisions,
    /// To look at a tensor's shape.
    ShowShape,
    /// To name one file.
    OneFile,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Text(text) => f.write_str(text),
            Remedy::NameOrForce => f.write_str("choose another name, or force it"),
            Remedy::ForceDeletion => f.write_str("force the deletion to delete it all the same"),
            Remedy::Reset => f.write_str("a reset moves it"),
            Remedy::BranchOrCheckOut(label) => {
                write!(f, "continue from {label} on a new branch, or check it out into another directory")
            }
            Remedy::NamePath => f.write_str("name a directory"),
            Remedy::FollowLinks => f.write_str("links are not stored: follow them, or name them in .mdlignore"),
            Remedy::CheckOutElsewhere(first) => write!(f, "{first}, or check out into another directory"),
            Remedy::AllowEmptyShard => f.write_str("a rank without files says that it has none"),
            Remedy::UndoPrune(commit) => write!(f, "take back the pruning of {} first", commit.short()),
            Remedy::PruneGrace => {
                f.write_str("a pruned version's contents are there until a collection after `gc.grace_hours`")
            }
            Remedy::TwoRevisions => f.write_str("the log of B lists what leads to it, a diff compares two"),
            Remedy::ShowShape => f.write_str("a listing of the file shows the shape"),
            Remedy::OneFile => f.write_str("name one file; the status compares the work tree with its version"),
        }
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Remedy {
        Remedy::Text(text)
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Remedy {
        Remedy::Text(text.to_owned())
    }
}
