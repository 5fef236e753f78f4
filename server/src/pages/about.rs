//! What a version gives today, on pages: a label, and a sentence about one that aged.

use crate::pages::prelude::*;
use mdl_repo::{Fidelity, Pruned, PrunedMark};

/// How close a version is to what training had, and whether it aged.
#[derive(Debug)]
pub struct About {
    /// None: it cannot be told, or goes without saying.
    fidelity: Option<Fidelity>,
    /// Of one that aged and was not pruned, with whether its exact contents are still there.
    aged: Option<(PrunedMark, bool)>,
}

impl About {
    /// By the record as it is now, which is read only for a version that may be in it.
    pub fn read(repo: &Repo, version: &Version) -> Result<About> {
        let may_age = version.commit.approximation.is_some() || version.is_stand_in();
        let record = if may_age { mdl_repo::pruned(repo)? } else { Pruned::default() };
        About::new(repo, &record, &version.id, &version.commit)
    }

    /// By the record of versions that gave up contents.
    pub fn new(repo: &Repo, record: &Pruned, id: &Id, commit: &Commit) -> Result<About> {
        // A record of quality that a newer program made must not hide the rest.
        let fidelity = record.fidelity(repo.odb(), id, commit).ok();
        let aged = match record.aged(id).filter(|_| record.get(id).is_none()) {
            Some(mark) => Some((mark.short(), repo.odb().has(&commit.tree)?)),
            None => None,
        };
        // Most versions were never to be anything else.
        let says_something = |f: &Fidelity| match f {
            Fidelity::Exact => commit.approximation.is_some(),
            Fidelity::Approximate => true,
            Fidelity::Gone => false,
        };
        Ok(About { fidelity: fidelity.filter(says_something), aged })
    }

    /// `exact` or `approximate`.
    pub fn label(&self) -> Markup {
        html! { @if let Some(fidelity) = self.fidelity { span.label.(fidelity.name()) { (fidelity.name()) } } }
    }

    /// What aging did or will do to it.
    pub fn sentence(&self) -> Markup {
        let Some((mark, is_exact)) = &self.aged else { return html! {} };
        let (when, rules) = (text::time(mark.time_ms), text::name(&mark.rules));
        html! {
            p.muted {
                @if *is_exact {
                    "Aged on " (when) " (" (rules) "): its exact contents will go with a coming collection, unless a \
                     branch or tag is on it. Then an approximation stands for them."
                } @else {
                    "Its exact contents were let go on " (when) " (" (rules) "): an approximation stands for them."
                }
            }
        }
    }
}
