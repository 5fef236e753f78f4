//! Events about moved refs, sent to listeners such as webhooks.
//!
//! A slow listener has a bounded queue for each repository and gets the repositories in turn: many events of one do not
//! delay or drop another's.

use crate::{app::App, auth::Access, registry::RepoKey};
use mdl_objects::Id;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};
use tokio::sync::Notify;

/// Queue limits of a listener: events per repository, and repositories; more are dropped.
const BEHIND: usize = 1024;
const REPOS: usize = 4096;

/// A ref that was made, moved or deleted over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefMoved {
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

#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<Weak<Queue>>>>);

/// Events that a listener has not received yet.
#[derive(Debug, Default)]
struct Queue {
    behind: Mutex<Behind>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Behind {
    events: HashMap<RepoKey, VecDeque<RefMoved>>,
    /// Repositories that have events; the first comes next.
    order: VecDeque<RepoKey>,
}

impl Behind {
    /// Queues an event; false: the queue is full.
    fn push(&mut self, event: RefMoved) -> bool {
        match self.events.get_mut(&event.repo) {
            Some(own) if own.len() >= BEHIND => return false,
            Some(own) => own.push_back(event),
            None if self.order.len() >= REPOS => return false,
            None => {
                self.order.push_back(event.repo.clone());
                self.events.insert(event.repo.clone(), VecDeque::from([event]));
            }
        }
        true
    }

    fn pop(&mut self) -> Option<RefMoved> {
        let repo = self.order.pop_front()?;
        let own = self.events.get_mut(&repo)?;
        let event = own.pop_front();
        if own.is_empty() {
            self.events.remove(&repo);
        } else {
            self.order.push_back(repo);
        }
        event
    }
}

/// Receiving end of the events.
#[derive(Debug)]
pub struct Listener(Arc<Queue>);

impl Listener {
    pub fn try_recv(&mut self) -> Option<RefMoved> {
        self.0.behind.lock().pop()
    }

    pub async fn recv(&mut self) -> RefMoved {
        loop {
            if let Some(event) = self.try_recv() {
                return event;
            }
            self.0.bell.notified().await;
        }
    }
}

impl Events {
    /// Subscribes to events from now on.
    pub fn subscribe(&self) -> Listener {
        let queue = Arc::new(Queue::default());
        self.0.lock().push(Arc::downgrade(&queue));
        Listener(queue)
    }

    fn tell(&self, event: &RefMoved) {
        self.0.lock().retain(|listener| {
            let Some(queue) = listener.upgrade() else { return false };
            let heard = queue.behind.lock().push(event.clone());
            if !heard {
                tracing::warn!(repo = %event.repo, "a listener is too far behind: it is not told of a move");
            }
            queue.bell.notify_one();
            true
        });
    }
}

impl App {
    /// Sends the event of a moved ref, after the move; a move without effect sends none.
    pub fn ref_moved(&self, event: RefMoved) {
        if event.old == event.new {
            return;
        }
        tracing::info!(repo = %event.repo, name = ?event.name, old = ?event.old, new = ?event.new, by = ?event.by, "ref moved");
        self.events().tell(&event);
    }
}

impl Access {
    /// Sends the event that the caller moved a ref (full name) of this repository.
    pub fn moved(&self, name: &str, old: Option<Id>, new: Option<Id>) {
        let repo = match self.key() {
            Ok(repo) => repo,
            Err(problem) => {
                tracing::error!(repo = %self.name, ?name, why = problem.message, "a ref moved, and none was told");
                return;
            }
        };
        self.app.ref_moved(RefMoved { repo, name: name.to_owned(), old, new, by: self.caller.name().to_owned() });
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
        assert_eq!(heard.recv().await, event(Some(1), Some(2)));
        assert_eq!(heard.try_recv(), None);
    }

    #[tokio::test]
    async fn many_moves_in_one_repository_lose_none_of_anothers_nor_make_it_wait() {
        let events = Events::default();
        let mut heard = events.subscribe();
        let of = |repo: &str, n: usize| RefMoved {
            repo: RepoKey {
                name: repo.parse().expect("a name"),
                identity: mdl_repo::Identity::derived_from(repo.as_bytes()),
            },
            name: format!("refs/heads/{n}"),
            ..event(Some(1), Some(2))
        };
        (0..2 * BEHIND).for_each(|n| events.tell(&of("eve/flood", n)));
        events.tell(&of("ada/gpt", 0));
        assert_eq!(heard.recv().await, of("eve/flood", 0));
        assert_eq!(heard.recv().await, of("ada/gpt", 0));
        let mut others = 0;
        while let Some(event) = heard.try_recv() {
            assert_eq!(event.repo, of("eve/flood", 0).repo);
            others += 1;
        }
        assert_eq!(others, BEHIND - 1);
    }
}
