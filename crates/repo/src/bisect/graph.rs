//! The versions among which the first bad one is, as a graph, and sums over their ancestors.

use crate::repo::Repo;
use mdl_objects::{Commit, Id};
use mdl_store::{RepoError, Result};
use std::collections::{HashMap, HashSet};

/// A version that may be the first bad one.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub id: Id,
    /// Places of its parents among the candidates.
    pub parents: Vec<u32>,
    /// What the metric of it was, where one was asked for.
    pub value: Option<f64>,
}

/// The candidates, parents before children: what all bad versions have in their history, and no good one has.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    pub nodes: Vec<Node>,
}

/// A version that was walked over, its parents, and its value.
type Walked = (Id, Vec<Id>, Option<f64>);

/// The versions that lead to `start`, itself included, without those in `but`: parents first.
fn history(
    repo: &Repo,
    start: Id,
    but: &HashSet<Id>,
    value: &dyn Fn(&Id, &Commit) -> Option<f64>,
) -> Result<Vec<Walked>> {
    let (mut out, mut seen) = (Vec::new(), HashSet::new());
    // A version is written down once all its parents are.
    let mut stack = vec![(start, None)];
    while let Some((id, read)) = stack.pop() {
        if let Some((parents, value)) = read {
            out.push((id, parents, value));
            continue;
        }
        if but.contains(&id) || !seen.insert(id) {
            continue;
        }
        let commit = repo.odb().commit(&id)?;
        let value = value(&id, &commit);
        stack.push((id, Some((commit.parents.clone(), value))));
        stack.extend(commit.parents.into_iter().rev().map(|parent| (parent, None)));
    }
    Ok(out)
}

impl Candidates {
    /// The candidates between these versions; `value` is asked once for each.
    ///
    /// # Errors
    /// A bad version is in the history of a good one; absent or damaged commits.
    pub fn between(
        repo: &Repo,
        bad: &[Id],
        good: &[Id],
        value: &dyn Fn(&Id, &Commit) -> Option<f64>,
    ) -> Result<Candidates> {
        let none = |_: &Id, _: &Commit| None;
        let mut excluded = HashSet::new();
        for id in good {
            excluded.extend(history(repo, *id, &excluded, &none)?.into_iter().map(|(id, ..)| id));
        }
        if let Some(id) = bad.iter().find(|id| excluded.contains(*id)) {
            return Err(RepoError::user(
                format!("version {} is bad, and in the history of one that is good", id.short()),
                "the search is for what made versions bad: a version that repaired something is found with the two words \
                 exchanged",
            ));
        }
        let Some((first, others)) = bad.split_first() else { return Ok(Candidates::default()) };
        let mut found = history(repo, *first, &excluded, value)?;
        for other in others {
            let also: HashSet<Id> = history(repo, *other, &excluded, &none)?.into_iter().map(|(id, ..)| id).collect();
            found.retain(|(id, ..)| also.contains(id));
        }
        if found.is_empty() {
            return Err(RepoError::user(
                "the bad versions have no version in common that could have made them bad",
                "the search is for one first bad version: begin with one of them",
            ));
        }
        let places: HashMap<Id, u32> = found.iter().map(|(id, ..)| *id).zip(0..).collect();
        let node = |(id, parents, value): (Id, Vec<Id>, Option<f64>)| {
            let mut parents: Vec<u32> = parents.iter().filter_map(|p| places.get(p).copied()).collect();
            parents.sort_unstable();
            parents.dedup();
            Node { id, parents, value }
        };
        Ok(Candidates { nodes: found.into_iter().map(node).collect() })
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Which candidates are in the history of one, itself included.
    pub fn ancestors(&self, of: usize) -> Vec<bool> {
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = vec![of];
        while let Some(at) = stack.pop() {
            if seen.get(at) == Some(&false) {
                seen[at] = true;
                stack.extend(self.nodes[at].parents.iter().map(|p| *p as usize));
            }
        }
        seen
    }

    /// For each candidate the sum of `weight` over its history, itself included. A version with one parent costs one
    /// addition, a merge a walk.
    pub fn sums(&self, weight: &[f64]) -> Vec<f64> {
        let mut sums: Vec<f64> = Vec::with_capacity(weight.len());
        for (at, (node, own)) in self.nodes.iter().zip(weight).enumerate() {
            sums.push(match node.parents.as_slice() {
                [] => *own,
                [parent] => own + sums[*parent as usize],
                _ => self.ancestors(at).iter().zip(weight).filter(|(is_in, _)| **is_in).map(|(_, w)| w).sum(),
            });
        }
        sums
    }

    /// For each candidate the sum of `weight` over what has it in its history, itself included.
    pub fn sums_over_descendants(&self, weight: &[f64]) -> Vec<f64> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            node.parents.iter().for_each(|p| children[*p as usize].push(at));
        }
        let mut sums = weight.to_vec();
        for at in (0..self.nodes.len()).rev() {
            match children[at].as_slice() {
                [] => {}
                [child] => sums[at] = weight[at] + sums[*child],
                _ => {
                    let (mut seen, mut stack, mut sum) = (HashSet::new(), vec![at], 0.0);
                    while let Some(next) = stack.pop() {
                        if seen.insert(next) {
                            sum += weight[next];
                            stack.extend(&children[next]);
                        }
                    }
                    sums[at] = sum;
                }
            }
        }
        sums
    }

    /// The place of a version.
    pub fn place(&self, id: &Id) -> Option<usize> {
        self.nodes.iter().position(|n| n.id == *id)
    }
}
