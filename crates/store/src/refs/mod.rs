//! Refs and HEAD: names that move by compare-and-swap, every move recorded in the reflog (`log`).

mod log;
mod name;
mod work_tree_base;

pub use log::LogEntry;
pub use name::{RefName, check_ref_name};
pub use work_tree_base::WorkTreeBase;

use crate::{
    RepoError, Result,
    lock::WriteGuard,
    storage::{Key, Prefix, Storage, Swap},
};
use mdl_objects::{Id, Signature};
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
/// Prefix of all refs.
pub const REFS: Prefix = Prefix::fixed("refs/");
pub(crate) const HEAD: RefName = RefName::HEAD;
/// How the reflog's message for a move to a new commit begins.
pub const COMMITTED: &str = "commit";
/// Bytes of a ref or HEAD at most.
const MOST: u64 = 4096;

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
    storage: Arc<dyn Storage>,
    /// Where the moves that this work tree's user makes are noted.
    seen: Option<Arc<WorkTreeBase>>,
    /// Full name of the ref that holds a detached HEAD, where HEAD itself is not in the storage.
    worktree: Option<RefName>,
}

fn parse_id(name: &str, bytes: &[u8]) -> Result<Id> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end().parse().map_err(|_| RepoError::corrupt(format!("ref {name}"), "it holds no object id"))
}

fn head_bytes(head: &Head) -> Vec<u8> {
    match head {
        Head::Branch(branch) => format!("ref: {HEADS}{branch}\n").into_bytes(),
        Head::Detached(id) => ref_bytes(id),
    }
}

fn ref_bytes(id: &Id) -> Vec<u8> {
    format!("{id}\n").into_bytes()
}

impl Refs {
    /// The refs in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Refs {
        Refs { storage, seen: None, worktree: None }
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
        let bytes = self.storage.get_within(HEAD.key(), MOST)?.ok_or_else(|| RepoError::corrupt(HEAD, "missing"))?;
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

    /// Points HEAD elsewhere, wherever it points now, and logs it. A commit is pinned under `held`.
    pub(crate) fn set_head(&self, held: &WriteGuard, head: &Head, who: &Signature, message: &str) -> Result<()> {
        let old = self.head_commit().ok().flatten();
        let new = self.tip(head)?;
        let value = head_bytes(head);
        let mut found = self.storage.get_within(HEAD.key(), MOST)?;
        self.hold_head(held, head, who, message)?;
        self.note_begin(old, new);
        held.revalidate()?;
        // By swaps, so that it cannot fall between another's look and move.
        while let Swap::Lost(other) = self.storage.swap(HEAD.key(), found.as_deref(), Some(&value))? {
            found = other;
        }
        self.head_moved(held, head, &LogEntry::new(old, new, who, message));
        Ok(())
    }

    /// Points HEAD from `expected` to `new` and logs it.
    pub(crate) fn move_head(
        &self,
        held: &WriteGuard,
        expected: &Head,
        new: &Head,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        let (from, to) = (self.tip(expected)?, self.tip(new)?);
        self.hold_head(held, new, who, message)?;
        self.note_begin(from, to);
        if matches!(new, Head::Detached(_)) {
            held.revalidate()?;
        }
        let lost = self.storage.swap(HEAD.key(), Some(&head_bytes(expected)), Some(&head_bytes(new)))?;
        if matches!(lost, Swap::Lost(_)) {
            let now = self.head()?;
            self.hold_head(held, &now, who, message)?;
            let name = match now {
                Head::Branch(branch) => format!("HEAD (now on branch {branch})"),
                Head::Detached(_) => HEAD.to_string(),
            };
            return Err(RepoError::Conflict { name, expected: from, found: self.head_commit()? });
        }
        self.head_moved(held, new, &LogEntry::new(from, to, who, message));
        Ok(())
    }

    /// Before HEAD is detached: a commit that perhaps nothing else keeps gets a ref where collectors look.
    fn hold_head(&self, held: &WriteGuard, head: &Head, who: &Signature, message: &str) -> Result<()> {
        let (Some(name), Head::Detached(id)) = (&self.worktree, head) else {
            return Ok(());
        };
        loop {
            let found = self.get(name)?;
            if found == Some(*id) {
                return Ok(());
            }
            match self.update(held, name, found, Some(*id), who, message) {
                Err(RepoError::Conflict { .. }) => {}
                done => return done,
            }
        }
    }

    /// Another name for the same commit says nothing of what the files are of: where a clone wrote none, they are of
    /// none still.
    fn note_begin(&self, old: Option<Id>, new: Option<Id>) {
        if old != new {
            self.work_tree_base().inspect(|seen| seen.begin(new));
        }
    }

    /// After it: the move is logged, and the ref that kept a detached HEAD before is deleted (its log is kept).
    fn head_moved(&self, held: &WriteGuard, head: &Head, made: &LogEntry) {
        self.log_head(made);
        if made.old != made.new {
            self.work_tree_base().inspect(|seen| seen.end(made.new));
        }
        if let (Some(name), Head::Branch(_)) = (&self.worktree, head)
            && let Ok(Some(id)) = self.get(name)
        {
            // A ref that stays keeps more than needed, which is harmless.
            let _ = self.update(held, name, Some(id), None, &made.who, &made.message);
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
        let bytes = self.storage.get_within(key, MOST)?;
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

    /// As `WriteTransaction::update_ref`, to a target that was looked up or stored under `held`.
    pub(crate) fn update(
        &self,
        held: &WriteGuard,
        name: &RefName,
        expected: Option<Id>,
        new: Option<Id>,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        if expected.is_none() {
            self.check_free(name)?;
        }
        let made = LogEntry::new(expected, new, who, message);
        self.log(name, &made)?;
        let on_it = || matches!(self.head(), Ok(Head::Branch(b)) if name.strip_prefix(HEADS) == Some(b.as_str()));
        if let Some(seen) = self.work_tree_base().filter(|_| on_it()) {
            seen.begin(new);
        }
        let as_bytes = |id: Option<Id>| id.as_ref().map(ref_bytes);
        let (old, value) = (as_bytes(expected), as_bytes(new));
        // Last of all: from here to the swap nothing may take long.
        if new.is_some() {
            held.revalidate()?;
        }
        match self.storage.swap(name.key(), old.as_deref(), value.as_deref())? {
            Swap::Done => {}
            Swap::Lost(found) => {
                let found = found.map(|bytes| parse_id(name, &bytes)).transpose()?;
                return Err(RepoError::Conflict { name: name.to_string(), expected, found });
            }
        }
        if on_it() {
            self.log_head(&made);
            self.work_tree_base().inspect(|seen| seen.end(new));
        }
        Ok(())
    }

    /// Refuses `a` where `a/b` exists, and `a/b` where `a` does.
    fn check_free(&self, name: &RefName) -> Result<()> {
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
