//! Kinds of things that a name may stand for, in errors of names without a thing.

use mdl_objects::Kind;
use std::fmt;

macro_rules! kinds {
    ($($kind:ident $text:literal),* $(,)?) => {
        /// What was looked for and not found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Missing {
            $(#[doc = concat!("A ", $text, ".")] $kind,)*
        }

        impl Missing {
            const ALL: [Missing; [$($text),*].len()] = [$(Missing::$kind),*];

            /// Its name in messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Missing::$kind => $text,)*
                }
            }
        }
    };
}

kinds! {
    Repository "repository", Revision "revision", Version "version", Branch "branch", Tag "tag",
    BranchOrTag "branch or tag", Commit "commit", Tree "tree", Manifest "manifest", Tensor "tensor", Blob "blob",
    Object "object", File "file", StagedFile "staged file", StoredFile "stored file", Pack "pack",
    Directory "directory", Checkpoint "checkpoint", Policy "policy", Setting "setting", Remote "remote",
    Session "session", Shard "shard", Bucket "bucket", Path "path",
}

impl Missing {
    /// What has this name in messages: a server's answers name it so.
    pub fn from_name(name: &str) -> Option<Missing> {
        Missing::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Whether it is a file of the storage: a collection beside a reader may have deleted it.
    pub fn is_stored(self) -> bool {
        matches!(self, Missing::Pack | Missing::StoredFile)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Kind> for Missing {
    fn from(kind: Kind) -> Missing {
        match kind {
            Kind::Blob => Missing::Blob,
            Kind::Tensor => Missing::Tensor,
            Kind::Manifest => Missing::Manifest,
            Kind::Tree => Missing::Tree,
            Kind::Commit => Missing::Commit,
            Kind::Tag => Missing::Tag,
        }
    }
}
