//! Branches and tags on pages: lists, and labels of commits.

use crate::pages::prelude::*;
use mdl_repo::Head;
use std::collections::HashMap;

/// Refs of a kind that are read for a page.
const MAX: usize = 2000;
/// Refs of a kind that a menu offers.
const OFFERED: usize = 100;

/// Branches and tags with the commits that they stand at.
#[derive(Debug)]
pub struct Names {
    /// The branch that HEAD is on.
    pub head: Option<String>,
    pub branches: Vec<(String, Id)>,
    pub tags: Vec<(String, Id)>,
}

impl Names {
    /// Reads them; what points at nothing is left out.
    pub fn read(repo: &Repo) -> Result<Names> {
        let head = match repo.refs().head()? {
            Head::Branch(branch) => Some(branch),
            Head::Detached(_) => None,
        };
        let peeled = |prefix| -> Result<Vec<(String, Id)>> {
            let listed = repo.refs().list(prefix)?.into_iter().take(MAX);
            Ok(listed.filter_map(|(name, id)| Some((name, mdl_repo::peel(repo, &id).ok()?))).collect())
        };
        let mut branches = peeled(HEADS)?;
        branches.sort_by_key(|(name, _)| (Some(name) != head.as_ref(), name.clone()));
        Ok(Names { head, branches, tags: peeled(TAGS)? })
    }

    /// What each commit is called.
    pub fn labels(&self) -> Labels {
        let mut out = Labels::default();
        for (kind, refs) in [("branch", &self.branches), ("tag", &self.tags)] {
            for (name, id) in refs {
                out.0.entry(*id).or_default().push((kind, name.clone()));
            }
        }
        out
    }
}

/// Names of commits, with `branch` or `tag`.
#[derive(Debug, Default)]
pub struct Labels(HashMap<Id, Vec<(&'static str, String)>>);

impl Labels {
    /// Those of a commit, as links to its branches' and tags' histories.
    pub fn markup_of(&self, name: &RepoName, id: &Id) -> Markup {
        const SHOWN: usize = 4;
        let all = self.0.get(id).map_or(&[][..], Vec::as_slice);
        html! {
            @for (kind, label) in all.iter().take(SHOWN) {
                a.label.(kind) href={ (base(name)) "/commits/" (text::segment(label)) } {
                    span.hidden { (kind) " " } (text::name(label))
                }
                " "
            }
            @if all.len() > SHOWN { span.muted { "+" (all.len() - SHOWN) } }
        }
    }
}

/// A menu of branches and tags; `url` makes a link of a name.
pub fn menu(names: &Names, rev: &str, url: impl Fn(&str) -> String) -> Markup {
    let group = |title: &str, refs: &[(String, Id)]| {
        html! {
            @if !refs.is_empty() {
                p.muted { (title) }
                ul {
                    @for (name, _) in refs.iter().take(OFFERED) {
                        li { a href=(url(name)) aria-current=[(name == rev).then_some("true")] { (text::name(name)) } }
                    }
                    @if refs.len() > OFFERED { li.muted { "\u{2026} " (refs.len() - OFFERED) " more" } }
                }
            }
        }
    };
    html! {
        details.menu {
            summary { span.hidden { "Revision: " } (text::name(&shortened(rev))) }
            div.items { (group("Branches", &names.branches)) (group("Tags", &names.tags)) }
        }
    }
}

/// A revision as it is shown: ids are cut.
pub fn shortened(rev: &str) -> String {
    match rev.len() == 64 && rev.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => rev.chars().take(12).collect(),
        false => rev.to_owned(),
    }
}
