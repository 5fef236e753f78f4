//! Refs and HEAD: names that move by compare-and-swap, every move written down in the `log`. Neighbours: `Storage` below,
//! transactions above. It must not know what a commit holds.

mod log;
mod seen;

pub use log::LogEntry;
pub(crate) use seen::Seen;

use crate::{
    RepoError, Result,
    guard::WriteGuard,
    storage::{Storage, Swap},
};
use mdl_objects::{Id, Signature};
use std::sync::Arc;

/// Prefix of branches.
pub const HEADS: &str = "refs/heads/";
/// Prefix of tags.
pub const TAGS: &str = "refs/tags/";
/// Prefix of what was last seen of other places' branches: `refs/remotes/NAME/BRANCH`.
pub const REMOTES: &str = "refs/remotes/";
/// Prefix of the detached HEADs of work trees that share a storage: nothing else there would hold on to them.
pub const WORKTREES: &str = "refs/worktrees/";
/// Refs to policies: blobs.
pub(crate) const POLICIES: &str = "refs/policies/";
pub(crate) const HEAD: &str = "HEAD";
/// How the reflog's words on a move to a new commit begin.
pub(crate) const COMMITTED: &str = "commit";

/// Where a command works: on a branch (that may have no commit yet), or on a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A branch, by its short name.
    Branch(String),
    /// A commit, on no branch.
    Detached(Id),
}

/// The refs of a repository.
#[derive(Clone, Debug)]
pub struct Refs {
    storage: Arc<dyn Storage>,
    /// Where the moves that this work tree's user makes are noted.
    seen: Option<Arc<Seen>>,
    /// Full name of the ref that holds a detached HEAD, where HEAD itself is not in the storage.
    worktree: Option<Arc<str>>,
}

/// Refuses names that git would refuse, and names that this program's revision syntax could not tell apart.
///
/// # Errors
/// Says what is wrong.
pub fn check_ref_name(short: &str) -> Result<()> {
    if short.len() > 200 || short == HEAD || !is_well_formed(short) {
        return Err(RepoError::user(
            format!("{short:?} is not a valid name for a branch or tag"),
            "use letters, digits, '-', '_', '.', '=' and '/', without '..', '@{', spaces or a leading '-' or '.'; HEAD and \
             names that end in .lock are not for branches and tags",
        ));
    }
    Ok(())
}

fn is_well_formed(short: &str) -> bool {
    let bad_part =
        |p: &str| p.is_empty() || p.starts_with(['.', '-']) || p.ends_with('.') || p.ends_with(".lock") || p == "@";
    let bad_char = |c: char| c.is_control() || " ~^:?*[\\%".contains(c);
    let wrong =
        short.contains("..") || short.contains("@{") || short.chars().any(bad_char) || short.split('/').any(bad_part);
    !wrong
}

fn parse_id(name: &str, bytes: &[u8]) -> Result<Id> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end()
        .parse()
        .map_err(|_| RepoError::corrupt(format!("ref {name}"), "it holds no object id"))
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
        Refs {
            storage,
            seen: None,
            worktree: None,
        }
    }

    /// Notes the moves of HEAD's commit there, or (none) nowhere.
    pub(crate) fn note_moves(&mut self, seen: Option<Seen>) {
        self.seen = seen.map(Arc::new);
    }

    /// Has a detached HEAD held by `refs/worktrees/NAME` too.
    pub(crate) fn hold_head_by(&mut self, name: &str) {
        self.worktree = Some(format!("{WORKTREES}{name}").into());
    }

    /// Whether HEAD is not in the storage, and is held there by a ref.
    pub(crate) fn head_is_held(&self) -> bool {
        self.worktree.is_some()
    }

    /// The note of what this work tree's user saw HEAD's commit to be.
    pub(crate) fn seen(&self) -> Option<&Seen> {
        self.seen.as_deref()
    }

    /// Where HEAD points.
    ///
    /// # Errors
    /// There is none or it is damaged; the medium failed.
    pub fn head(&self) -> Result<Head> {
        let bytes = self
            .storage
            .get(HEAD)?
            .ok_or_else(|| RepoError::corrupt(HEAD, "missing"))?;
        let text = String::from_utf8(bytes).map_err(|_| RepoError::corrupt(HEAD, "not text"))?;
        match text.trim_end().strip_prefix("ref: ") {
            Some(full) => match full.strip_prefix(HEADS) {
                Some(branch) => Ok(Head::Branch(branch.to_owned())),
                None => Err(RepoError::corrupt(HEAD, "it points at no branch")),
            },
            None => parse_id(HEAD, text.as_bytes()).map(Head::Detached),
        }
    }

    /// The commit HEAD stands on; none on a branch without commits.
    ///
    /// # Errors
    /// Damaged refs; the medium failed.
    pub fn head_commit(&self) -> Result<Option<Id>> {
        self.tip(&self.head()?)
    }

    /// The commit a HEAD that points there stands on.
    ///
    /// # Errors
    /// Damaged refs; the medium failed.
    pub(crate) fn tip(&self, head: &Head) -> Result<Option<Id>> {
        match head {
            Head::Branch(branch) => self.get(&format!("{HEADS}{branch}")),
            Head::Detached(id) => Ok(Some(*id)),
        }
    }

    /// Points HEAD elsewhere, wherever it points now, and logs it. `held` is that of [`Repo::hold`](crate::Repo::hold) for a commit.
    ///
    /// # Errors
    /// `Overtaken`; the medium failed.
    pub fn set_head(&self, held: &WriteGuard, head: &Head, who: &Signature, message: &str) -> Result<()> {
        let old = self.head_commit().ok().flatten();
        let new = self.tip(head)?;
        let value = head_bytes(head);
        let mut found = self.storage.get(HEAD)?;
        self.hold_head(held, head, who, message)?;
        self.seen().inspect(|seen| seen.begin(new));
        held.confirm()?;
        // By swaps, so that it cannot fall between another's look and move.
        while let Swap::Lost(other) = self.storage.swap(HEAD, found.as_deref(), Some(&value))? {
            found = other;
        }
        self.head_moved(held, head, (old, new), who, message);
        Ok(())
    }

    /// Points HEAD from `expected` to `new` and logs it.
    ///
    /// # Errors
    /// `Conflict` where it points elsewhere; the medium failed.
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
        self.seen().inspect(|seen| seen.begin(to));
        if matches!(new, Head::Detached(_)) {
            held.confirm()?;
        }
        let lost = self
            .storage
            .swap(HEAD, Some(&head_bytes(expected)), Some(&head_bytes(new)))?;
        if matches!(lost, Swap::Lost(_)) {
            let now = self.head()?;
            self.hold_head(held, &now, who, message)?;
            let name = match now {
                Head::Branch(branch) => format!("HEAD (now on branch {branch})"),
                Head::Detached(_) => HEAD.to_owned(),
            };
            return Err(RepoError::Conflict {
                name,
                expected: from,
                found: self.head_commit()?,
            });
        }
        self.head_moved(held, new, (from, to), who, message);
        Ok(())
    }

    /// Before HEAD is detached: a commit that nothing else may hold is held where collectors look.
    fn hold_head(&self, held: &WriteGuard, head: &Head, who: &Signature, message: &str) -> Result<()> {
        let (Some(name), Head::Detached(id)) = (self.worktree.as_deref(), head) else {
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

    /// After it: the move is written down, and what held a detached HEAD before is let go (its log is kept).
    fn head_moved(
        &self,
        held: &WriteGuard,
        head: &Head,
        (old, new): (Option<Id>, Option<Id>),
        who: &Signature,
        message: &str,
    ) {
        self.log_head(old, new, who, message);
        self.seen().inspect(|seen| seen.end(new));
        if let (Some(name), Head::Branch(_)) = (self.worktree.as_deref(), head)
            && let Ok(Some(id)) = self.get(name)
        {
            // What stays holds more than it need.
            let _ = self.update(held, name, Some(id), None, who, message);
        }
    }

    /// Writes HEAD of a repository being made.
    ///
    /// # Errors
    /// The medium failed.
    pub fn init_head(&self, branch: &str) -> Result<()> {
        self.storage.put(HEAD, &head_bytes(&Head::Branch(branch.to_owned())))
    }

    /// Value of a full ref name.
    ///
    /// # Errors
    /// Damaged; the medium failed.
    pub fn get(&self, name: &str) -> Result<Option<Id>> {
        self.storage.get(name)?.map(|bytes| parse_id(name, &bytes)).transpose()
    }

    /// All refs below a prefix, with the names that follow it.
    ///
    /// # Errors
    /// Damaged; the medium failed.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Id)>> {
        let mut out = Vec::new();
        for stored in self.storage.list(prefix)? {
            if let (Some(short), Some(id)) = (stored.key.strip_prefix(prefix), self.get(&stored.key)?) {
                out.push((short.to_owned(), id));
            }
        }
        Ok(out)
    }

    /// Moves (or with `new` none deletes) a ref that stands at `expected` (none: does not exist). What it is to hold was looked up
    /// or stored under `held`.
    ///
    /// # Errors
    /// `Overtaken` where a collector may be about to delete that: the ref stands where it stood.
    /// `Conflict` where it stands elsewhere; a name that collides with a directory of names; the medium failed.
    pub fn update(
        &self,
        held: &WriteGuard,
        name: &str,
        expected: Option<Id>,
        new: Option<Id>,
        who: &Signature,
        message: &str,
    ) -> Result<()> {
        if expected.is_none() {
            self.check_free(name)?;
        }
        self.log(name, expected, new, who, message)?;
        let on_it = || matches!(self.head(), Ok(Head::Branch(b)) if name.strip_prefix(HEADS) == Some(&b));
        if let Some(seen) = self.seen().filter(|_| on_it()) {
            seen.begin(new);
        }
        let as_bytes = |id: Option<Id>| id.as_ref().map(ref_bytes);
        let (old, value) = (as_bytes(expected), as_bytes(new));
        // Last of all: from here to the swap nothing may take long.
        if new.is_some() {
            held.confirm()?;
        }
        match self.storage.swap(name, old.as_deref(), value.as_deref())? {
            Swap::Done => {}
            Swap::Lost(found) => {
                let found = found.map(|bytes| parse_id(name, &bytes)).transpose()?;
                return Err(RepoError::Conflict {
                    name: name.to_owned(),
                    expected,
                    found,
                });
            }
        }
        if on_it() {
            self.log_head(expected, new, who, message);
            self.seen().inspect(|seen| seen.end(new));
        }
        Ok(())
    }

    /// Refuses `a` where `a/b` exists and the other way round.
    fn check_free(&self, name: &str) -> Result<()> {
        let taken = |other: &str| {
            RepoError::user(
                format!("cannot make {name}: {other} exists"),
                "choose a name that is no part of it",
            )
        };
        if let Some(below) = self.storage.list(&format!("{name}/"))?.first() {
            return Err(taken(&below.key));
        }
        for (i, _) in name.match_indices('/').skip(2) {
            if self.storage.get(&name[..i])?.is_some() {
                return Err(taken(&name[..i]));
            }
        }
        Ok(())
    }
}
