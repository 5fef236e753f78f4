//! Task-local record of a request: the right that it used, and its entry for the audit log.
//!
//! It belongs to the task that answers, so that code that grants rights records them wherever it is called.

use crate::{
    audit::{Event, Who},
    auth::{Access, Scope},
    registry::{RepoName, State},
};
use parking_lot::Mutex;
use std::sync::Arc;

tokio::task_local! {
    static CURRENT: Record;
}

/// A right that a request used, and the repository as it was then.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) access: Access,
    pub(super) scope: Scope,
    pub(super) state: State,
}

#[derive(Debug, Default)]
struct RecordFields {
    used: Option<Used>,
    /// The strongest right that was used, and on which repository.
    right: Option<(Scope, RepoName)>,
    event: Option<Event>,
    who: Option<Who>,
}

/// What is known about one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<RecordFields>>);

impl Record {
    /// Runs a request's handler with this record as the current one.
    pub(super) async fn answer_of<T>(&self, answering: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), answering).await
    }

    pub(super) fn used(&self) -> Option<Used> {
        self.0.lock().used.clone()
    }

    pub(crate) fn right(&self) -> Option<(Scope, RepoName)> {
        self.0.lock().right.clone()
    }

    pub(crate) fn event(&self) -> Option<Event> {
        self.0.lock().event
    }

    pub(crate) fn who(&self) -> Option<Who> {
        self.0.lock().who.clone()
    }

    pub(super) fn note_event(&self, event: Event) {
        self.0.lock().event = Some(event);
    }
}

fn note(f: impl FnOnce(&mut RecordFields)) {
    // Outside of a request there is nothing to record.
    let _ = CURRENT.try_with(|record| f(&mut record.0.lock()));
}

/// Records a right that is used from now on.
pub(super) fn note_used(access: &Access, scope: Scope, state: State) {
    note_right(scope, &access.name);
    note(|record| record.used = Some(Used { access: access.clone(), scope, state }));
}

/// Records a right to a repository that may not exist.
pub(super) fn note_right(scope: Scope, name: &RepoName) {
    note(|record| {
        if record.right.as_ref().is_none_or(|(before, _)| *before <= scope) {
            record.right = Some((scope, name.clone()));
        }
    });
}

/// Records an audit event that is neither a change nor a refusal.
pub(crate) fn note_event(event: Event, who: Who) {
    note(|record| (record.event, record.who) = (Some(event), Some(who)));
}

/// Records that a signed link, made for a token, allows to write.
pub(crate) fn note_link(token: &str, name: &RepoName) {
    note(|record| record.who = Some(Who::by_link(token)));
    note_right(Scope::Write, name);
}
