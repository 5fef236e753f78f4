//! Pages of a history.

use crate::{
    history::{Step, history},
    repo::Repo,
};
use mdl_objects::Id;
use mdl_store::{Missing, RepoError, Result};

/// A commit on a page.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The commit.
    pub step: Step,
    /// Whether it says more than is here.
    pub cut: bool,
}

/// How much a page is, and costs, at most.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    /// Commits on it.
    pub commits: usize,
    /// Bytes that they say together, once there is one.
    pub bytes: usize,
    /// Commits looked at for it, those included that do not pass.
    pub looked_at: usize,
}

/// Some commits of a history, newest first.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The commits.
    pub listed: Vec<Listed>,
    /// The `after` of the next page; none if there is nothing more.
    pub next: Option<Id>,
}

/// A page of the history of these commits, of those that pass, beginning behind the commit `after`, the `next` of the
/// page before (none: the newest). Of a commit that says more than any new version the beginning counts
/// ([`mdl_objects::Commit::shorten`]). As long as the starts are the same, pages hold every commit once: of equal
/// times too, the ids decide.
///
/// A page costs what it takes to walk from the newest commit to its end.
///
/// # Errors
/// `after` is not in this history; absent or damaged commits; an I/O error; what `passes` fails with.
pub fn log_page(
    repo: &Repo,
    starts: &[Id],
    after: Option<&Id>,
    bounds: PageBounds,
    passes: &mut dyn FnMut(&Step) -> Result<bool>,
) -> Result<LogPage> {
    let mut history = history(repo, starts)?;
    if let Some(after) = after {
        loop {
            match history.next().transpose()? {
                Some(step) if step.id == *after => break,
                Some(_) => {}
                None => return Err(RepoError::not_found(Missing::Commit, after)),
            }
        }
    }
    let mut page = LogPage { listed: Vec::new(), next: after.copied() };
    let (mut left, mut looks) = (bounds.bytes, bounds.looked_at);
    while page.listed.len() < bounds.commits && (page.listed.is_empty() || left > 0) && looks > 0 {
        let Some(mut step) = history.next().transpose()? else {
            break;
        };
        looks -= 1;
        if passes(&step)? {
            let cut = step.commit.shorten();
            let Some(rest) = left.checked_sub(step.commit.said()).or(page.listed.is_empty().then_some(0)) else {
                // It begins the next page.
                return Ok(page);
            };
            left = rest;
            page.next = Some(step.id);
            page.listed.push(Listed { step, cut });
        } else {
            page.next = Some(step.id);
        }
    }
    page.next = page.next.filter(|_| !history.heap.is_empty());
    Ok(page)
}
