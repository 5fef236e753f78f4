//! Roots of reachability: refs, HEAD, the reflog.

use crate::{
    RepoError, Result,
    refs::{HEAD, LogEntry, POLICIES, Refs, TAGS},
};
use mdl_objects::Id;

/// A root: an id that a ref, HEAD, a reflog or the like keeps alive.
#[derive(Clone, Debug)]
pub struct Root {
    /// Name of its holder, for messages: a ref's full name, `HEAD`, or `reflog of X`.
    pub name: String,
    /// What it keeps alive.
    pub id: Id,
    /// Held by a ref or HEAD, not only remembered in a reflog.
    pub firm: bool,
}

/// All roots, and the refs that make no sense.
#[derive(Debug, Default)]
pub struct Roots {
    /// The roots.
    pub all: Vec<Root>,
    /// Refs and logs that cannot be read, by name.
    pub damaged: Vec<(String, RepoError)>,
}

impl Roots {
    /// The roots, if every ref makes sense: what one that does not kept alive is unknown.
    pub fn complete(self) -> Result<Vec<Root>> {
        match self.damaged.into_iter().next() {
            Some((_, e)) => Err(e),
            None => Ok(self.all),
        }
    }

    fn note(&mut self, name: &str, id: Result<Option<Id>>) {
        match id {
            Ok(Some(id)) => self.all.push(Root { name: name.to_owned(), id, firm: true }),
            Ok(None) => {}
            Err(e) => self.damaged.push((name.to_owned(), e)),
        }
    }
}

impl Root {
    /// A root that no ref holds: a reflog remembers it, or something relies on it for a time.
    pub fn noted(name: String, id: Id) -> Root {
        Root { name, id, firm: false }
    }

    /// Whether a tag holds it, and nothing that moves.
    pub fn is_tag(&self) -> bool {
        self.name.starts_with(TAGS)
    }

    /// Whether it is a policy's text.
    pub fn is_policy(&self) -> bool {
        self.name.starts_with(POLICIES)
    }
}

/// The ids a move names.
pub(crate) fn ids_of(entry: &LogEntry) -> impl Iterator<Item = Id> + use<> {
    entry.old.into_iter().chain(entry.new)
}

/// Every root. Moves older than `since` (milliseconds since 1970) keep nothing alive; with `None` no moves do. Refs
/// that make no sense or cannot be read are in `damaged`.
pub fn roots(refs: &Refs, since: Option<i64>) -> Result<Roots> {
    let mut out = Roots::default();
    for (key, id) in refs.all()? {
        out.note(&key, id);
    }
    out.note("HEAD", refs.head().map(|head| head.detached()));
    let main = refs.of_main();
    if let Some(main) = &main {
        out.note("HEAD of the main work tree", main.head().map(|head| head.detached()));
    }
    let Some(since) = since else { return Ok(out) };
    let mut logged = refs.logged()?;
    // A collection run by another work tree cannot shorten a log that is not in the storage; what that log keeps
    // alive a ref's log there keeps too.
    logged.retain(|name| *name != HEAD || !refs.head_is_held());
    let own = logged.iter().map(|name| (format!("reflog of {name}"), refs.reflog(name)));
    let of_main = main.map(|main| ("reflog of HEAD of the main work tree".to_owned(), main.reflog(&HEAD)));
    for (name, log) in own.chain(of_main) {
        match log {
            Ok(log) => {
                for e in log.iter().filter(|e| e.who.time_ms >= since) {
                    out.all.extend(ids_of(e).map(|id| Root::noted(name.clone(), id)));
                }
            }
            Err(e) => out.damaged.push((name, e)),
        }
    }
    Ok(out)
}
