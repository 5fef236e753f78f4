//! Refs and HEAD: names that move by compare-and-swap, every move recorded in the reflog (`log`).

mod log;
mod name;
mod work_tree_base;

pub use log::LogEntry;
pub use name::{RefName, check_ref_name};
pub use work_tree_base::WorkTreeBase;

use crate::{
    RepoError, Result,
    storage::{Key, Prefix, Storage},
};
use mdl_objects::Id;
use std::sync::Arc;

/// Prefix of branches.
pub const HEADS: &str = "refs/heads/";
/// Prefix of tags.
pub const TAGS: &str = "refs/tags/";
/// Prefix of remote-tracking branches: `refs/remotes/NAME/BRANCH`.
pub const REMOTES: &str = "refs/remotes/";
/// Prefix of the detached HEADs of work trees that share a storage: nothing else there would keep their commits.
pub const WORKTREES: &str = "refs/worktrees/";
/// Refs to policies: blobs.
pub const POLICIES: &str = "refs/policies/";
/// The ref of the notes on versions: a commit without parents, whose tree has them.
pub const NOTES: &str = "refs/notes/versions";
/// Prefix of all refs.
pub const REFS: Prefix = Prefix::fixed("refs/");
pub(crate) const HEAD: RefName = RefName::HEAD;
/// How the reflog's message for a move to a new commit begins.
pub const COMMITTED: &str = "commit";
/// Bytes of a ref or HEAD at most.
pub(crate) const MAX_REF: u64 = 4096;

/// Where a command works: on a branch (that may have no commit yet), or on a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A branch, by its short name.
    Branch(String),
    /// A commit, on no branch.
    Detached(Id),
}

impl Head {
    /// The branch, if it is on one.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Head::Branch(name) => Some(name),
            Head::Detached(_) => None,
        }
    }

    /// The commit, if it is on no branch.
    pub fn detached(&self) -> Option<Id> {
        match self {
            Head::Detached(id) => Some(*id),
            Head::Branch(_) => None,
        }
    }
}

/// The refs of a repository. They are read here, and moved by a
/// [`WriteTransaction`](crate::transaction::WriteTransaction).
#[derive(Clone, Debug)]
pub struct Refs {
    pub(crate) storage: Arc<dyn Storage>,
    /// Where the moves that this work tree's user makes are noted.
    seen: Option<Arc<WorkTreeBase>>,
    /// Full name of the ref that holds a detached HEAD, where HEAD itself is not in the storage.
    pub(crate) worktree: Option<RefName>,
    /// Where the HEAD of the main work tree is, for a linked one.
    main: Option<Arc<dyn Storage>>,
}

pub(crate) fn parse_id(name: &str, bytes: &[u8]) -> Result<Id> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end().parse().map_err(|_| RepoError::corrupt(format!("ref {name}"), "it holds no object id"))
}

pub(crate) fn head_bytes(head: &Head) -> Vec<u8> {
    match head {
        Head::Branch(branch) => format!("ref: {HEADS}{branch}\n").into_bytes(),
        Head::Detached(id) => ref_bytes(id),
    }
}

pub(crate) fn ref_bytes(id: &Id) -> Vec<u8> {
    format!("{id}\n").into_bytes()
}

impl Refs {
    /// The refs in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Refs {
        Refs { storage, seen: None, worktree: None, main: None }
    }

    /// Notes the moves of HEAD's commit there, or (none) nowhere.
    pub fn note_moves(&mut self, seen: Option<WorkTreeBase>) {
        self.seen = seen.map(Arc::new);
    }

    /// Has a detached HEAD held by `refs/worktrees/NAME` too.
    pub fn hold_head_by(&mut self, name: &str) -> Result<()> {
        self.worktree = Some(RefName::parse(&format!("{WORKTREES}{name}"))?);
        Ok(())
    }

    /// Has collections look at the HEAD in this storage, too: that of the main work tree, which `storage` hides behind
    /// the linked one's.
    pub fn hold_main_head(&mut self, main: Arc<dyn Storage>) {
        self.main = Some(main);
    }

    /// The refs as the main work tree has them, for a linked one.
    pub(crate) fn of_main(&self) -> Option<Refs> {
        self.main.clone().map(Refs::new)
    }

    /// The detached HEAD of the main work tree, for a linked one.
    pub fn main_head(&self) -> Result<Option<Id>> {
        self.of_main().map_or(Ok(None), |main| Ok(main.head()?.detached()))
    }

    /// Whether HEAD is not in the storage, and is held there by a ref.
    pub(crate) fn head_is_held(&self) -> bool {
        self.worktree.is_some()
    }

    /// The note of what this work tree's user saw HEAD's commit to be.
    pub fn work_tree_base(&self) -> Option<&WorkTreeBase> {
        self.seen.as_deref()
    }

    /// Where HEAD points.
    pub fn head(&self) -> Result<Head> {
        let bytes = self.storage.get_within(HEAD.key(), MAX_REF)?.ok_or_else(|| RepoError::corrupt(HEAD, "missing"))?;
        let text = String::from_utf8(bytes).map_err(|_| RepoError::corrupt(HEAD, "not text"))?;
        match text.trim_end().strip_prefix("ref: ") {
            Some(full) => match RefName::parse(full).ok().as_deref().and_then(|f| f.strip_prefix(HEADS)) {
                Some(branch) => Ok(Head::Branch(branch.to_owned())),
                None => Err(RepoError::corrupt(HEAD, "it points at no branch")),
            },
            None => parse_id(HEAD.as_str(), text.as_bytes()).map(Head::Detached),
        }
    }

    /// The commit HEAD stands on; none on a branch without commits.
    pub fn head_commit(&self) -> Result<Option<Id>> {
        self.tip(&self.head()?)
    }

    /// The commit a HEAD that points there stands on.
    pub fn tip(&self, head: &Head) -> Result<Option<Id>> {
        match head {
            Head::Branch(branch) => self.get(&RefName::branch(branch)?),
            Head::Detached(id) => Ok(Some(*id)),
        }
    }

    /// Another name for the same commit says nothing of what the files are of: where a clone wrote none, they are of
    /// none still.
    pub(crate) fn note_begin(&self, made: &LogEntry) {
        if made.old != made.new {
            self.work_tree_base().inspect(|seen| seen.begin(made.new));
        }
    }

    /// Writes HEAD of a repository being made.
    pub fn init_head(&self, branch: &str) -> Result<()> {
        check_ref_name(branch)?;
        self.storage.put(HEAD.key(), &head_bytes(&Head::Branch(branch.to_owned())))
    }

    /// Value of a ref.
    pub fn get(&self, name: &RefName) -> Result<Option<Id>> {
        self.value(name.key())
    }

    /// Value of what is stored in a ref's place, whatever it is called.
    fn value(&self, key: &Key) -> Result<Option<Id>> {
        let bytes = self.storage.get_within(key, MAX_REF)?;
        bytes.map(|bytes| parse_id(key, &bytes)).transpose()
    }

    /// The value of every ref, by its full name, or why it has none. One whose name is invalid keeps its commit all the
    /// same.
    pub(crate) fn all(&self) -> Result<Vec<(Key, Result<Option<Id>>)>> {
        let listed = self.storage.list(&REFS)?;
        Ok(listed.into_iter().map(|s| (s.key.clone(), self.value(&s.key))).collect())
    }

    /// All refs below a prefix (`refs/`, or one such as [`HEADS`]), with the names that follow it.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Id)>> {
        let below = Prefix::parse(prefix)?;
        if !below.starts_with(REFS.as_str()) {
            return Err(RepoError::usage(format!("{prefix:?} is no prefix of refs"), ""));
        }
        let mut out = Vec::new();
        for stored in self.storage.list(&below)? {
            let value = match self.value(&stored.key) {
                // A file of another program in the directory or the bucket: neither its name nor what it holds is a
                // ref's.
                Err(RepoError::Corrupt { .. }) if RefName::parse(stored.key.as_str()).is_err() => None,
                value => value?,
            };
            if let (Some(short), Some(id)) = (stored.key.strip_prefix(prefix), value) {
                out.push((short.to_owned(), id));
            }
        }
        Ok(out)
    }

    /// Refuses `a` where `a/b` exists, and `a/b` where `a` does.
    pub(crate) fn check_free(&self, name: &RefName) -> Result<()> {
        let taken = |other: &str| {
            RepoError::user(format!("cannot make {name}: {other} exists"), "choose a name that is no part of it")
        };
        if let Some(below) = self.storage.list(&name.key().below())?.first() {
            return Err(taken(&below.key));
        }
        for (i, _) in name.match_indices('/').skip(2) {
            let above = RefName::parse(&name[..i])?;
            if self.storage.size(above.key())?.is_some() {
                return Err(taken(&above));
            }
        }
        Ok(())
    }
}
