//! What a version gives today, on pages: a label, and a sentence about one that gave up contents.

use crate::pages::prelude::*;
use mdl_repo::{Fidelity, Pruned, PrunedMark};

/// Files that a sentence names.
const FILES: usize = 8;

/// How close a version is to what training had, and what it gave up.
#[derive(Debug)]
pub struct About {
    /// None: it cannot be told, or goes without saying.
    fidelity: Option<Fidelity>,
    /// Of one that aged and was not pruned, with whether its exact contents are still there.
    aged: Option<(PrunedMark, bool)>,
    /// Of one that lost its optimizer state and was not pruned, with whether this is still there.
    weights: Option<(PrunedMark, bool)>,
}

impl About {
    /// By the record as it is now.
    pub fn read(repo: &Repo, version: &Version) -> Result<About> {
        About::new(repo, &mdl_repo::pruned(repo)?, &version.id, &version.commit)
    }

    /// By the record of versions that gave up contents.
    pub fn new(repo: &Repo, record: &Pruned, id: &Id, commit: &Commit) -> Result<About> {
        // A record of quality that a newer program made must not hide the rest.
        let fidelity = record.fidelity(repo.odb(), id, commit).ok();
        let aged = match record.aged(id).filter(|_| record.get(id).is_none()) {
            Some(mark) => Some((mark.short(), repo.odb().has(&commit.tree)?)),
            None => None,
        };
        let weights = match record.weights(id).filter(|_| record.get(id).is_none()) {
            Some(mark) => Some((mark.short(), Some(record.standing_tree(repo.odb(), id, commit)?) != mark.stand_in)),
            None => None,
        };
        // Most versions were never to be anything else.
        let says_something = |f: &Fidelity| match f {
            Fidelity::Exact => commit.approximation.is_some(),
            Fidelity::Approximate | Fidelity::Weights => true,
            Fidelity::Gone => false,
        };
        Ok(About { fidelity: fidelity.filter(says_something), aged, weights })
    }

    /// `exact`, `approximate` or `weights`.
    pub fn label(&self) -> Markup {
        html! { @if let Some(fidelity) = self.fidelity { span.label.(fidelity.name()) { (fidelity.name()) } } }
    }

    /// What aging and pruning did or will do to it.
    pub fn sentence(&self) -> Markup {
        html! { (self.aging()) (self.losing()) }
    }

    fn aging(&self) -> Markup {
        // What lost its optimizer state, too, has neither any more.
        let has_less = matches!(self.weights, Some((_, false)));
        let Some((mark, is_exact)) = self.aged.as_ref().filter(|_| !has_less) else { return html! {} };
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

    fn losing(&self) -> Markup {
        let Some((mark, is_there)) = &self.weights else { return html! {} };
        let (when, rules) = (text::time(mark.time_ms), text::name(&mark.rules));
        let mut files: Vec<String> = mark.without.keys().take(FILES).map(|path| text::name(path)).collect();
        files.extend((mark.without.len() > FILES).then(|| format!("and {} more", mark.without.len() - FILES)));
        html! {
            p.muted {
                "Its optimizer state (" (files.join(", ")) ")"
                @if *is_there {
                    " is to go with a coming collection, since " (when) " (kept were: " (rules) "), unless a branch or \
                     tag is on it."
                } @else {
                    " was let go on " (when) " (kept were: " (rules) "). The rest of the version is there."
                }
            }
        }
    }
}
