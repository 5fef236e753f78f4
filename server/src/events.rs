//! What happened to repositories, told to whoever listens. Neighbours: routes that move refs tell, `webhooks` listens. It must not
//! know who listens, nor wait for them.

use crate::{app::App, auth::Access, registry::RepoKey};
use mdl_objects::Id;
use tokio::sync::broadcast::{Receiver, Sender};

/// Events that a listener may be behind; past that it misses some and is told so.
const BEHIND: usize = 1024;

/// A ref that was made, moved or deleted over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefMoved {
    /// Where.
    pub repo: RepoKey,
    /// The ref's full name: `refs/heads/main`.
    pub name: String,
    /// Where it stood; none: it is new.
    pub old: Option<Id>,
    /// Where it stands now; none: it is gone.
    pub new: Option<Id>,
    /// Name of the caller who did it.
    pub by: String,
}

/// Those who are told.
#[derive(Clone, Debug)]
pub struct Events(Sender<RefMoved>);

impl Events {
    /// Nobody listens yet.
    pub fn new() -> Events {
        Events(Sender::new(BEHIND))
    }

    /// What happens from now on.
    pub fn subscribe(&self) -> Receiver<RefMoved> {
        self.0.subscribe()
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}

impl App {
    /// Tells that a ref moved, once it has; a move that moves nothing is none.
    pub fn ref_moved(&self, event: RefMoved) {
        if event.old == event.new {
            return;
        }
        tracing::info!(repo = %event.repo, name = ?event.name, old = ?event.old, new = ?event.new, by = ?event.by, "ref moved");
        // That nobody listens is no failure.
        let _ = self.events().0.send(event);
    }
}

impl Access {
    /// Tells that the caller moved a ref (full name) of this repository.
    pub fn moved(&self, app: &App, name: &str, old: Option<Id>, new: Option<Id>) {
        let repo = match self.key() {
            Ok(repo) => repo,
            Err(problem) => {
                tracing::error!(repo = %self.name, ?name, why = problem.message, "a ref moved, and none was told");
                return;
            }
        };
        app.ref_moved(RefMoved {
            repo,
            name: name.to_owned(),
            old,
            new,
            by: self.caller.name().to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use std::sync::Arc;

    fn event(old: Option<u8>, new: Option<u8>) -> RefMoved {
        let id = |byte: u8| Id::from_bytes([byte; 32]);
        RefMoved {
            repo: RepoKey {
                name: "ada/gpt".parse().expect("a name"),
                identity: mdl_repo::Identity::derived_from(b"ada"),
            },
            name: "refs/heads/main".to_owned(),
            old: old.map(id),
            new: new.map(id),
            by: "ada".to_owned(),
        }
    }

    #[tokio::test]
    async fn listeners_hear_of_moves_and_of_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let app = App::new(Options::new(dir.path()), Arc::new(mdl_codec::CpuEngine::default())).expect("an app");
        app.ref_moved(event(None, Some(1)));
        let mut heard = app.events().subscribe();
        app.ref_moved(event(Some(1), Some(1)));
        app.ref_moved(event(Some(1), Some(2)));
        assert_eq!(heard.recv().await.expect("an event"), event(Some(1), Some(2)));
        assert!(heard.try_recv().is_err());
    }
}
