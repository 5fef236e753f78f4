//! Lanes of a drawn commit graph: each waits for a commit, and no two for the same.

use std::{collections::HashSet, hash::Hash};

#[derive(Clone, Copy, Debug)]
struct Lane<K> {
    commit: K,
    number: usize,
}

/// The lanes that are open below the last commit.
#[derive(Clone, Debug)]
pub struct Lanes<K> {
    open: Vec<Lane<K>>,
    /// Commits that were drawn: where clocks were wrong a parent comes before its child.
    done: HashSet<K>,
    max: usize,
    opened: usize,
}

/// A line from a lane above a row, or from its commit, to a lane below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEdge {
    /// Place of the lane above, or of the commit.
    pub from: usize,
    /// Place of the lane below.
    pub to: usize,
    /// Number of the lane: lanes are counted as they open.
    pub number: usize,
    /// Whether it begins at the commit.
    pub from_commit: bool,
}

/// The lanes beside one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRow {
    /// Place of the commit's lane.
    pub column: usize,
    /// Number of the commit's lane.
    pub number: usize,
    /// Lanes of the row, the commit's among them.
    pub lanes: usize,
    /// Whether a child above leads to the commit.
    pub has_child: bool,
    /// Lines on to what is below.
    pub edges: Vec<LaneEdge>,
}

impl<K: Copy + Eq + Hash> Lanes<K> {
    /// Lanes that wait for these commits; parents open no more than about `max` lanes.
    pub fn new(waiting: &[K], max: usize) -> Lanes<K> {
        let mut lanes = Lanes { open: Vec::new(), done: HashSet::new(), max, opened: 0 };
        lanes.open = waiting.iter().map(|&commit| lanes.lane(commit)).collect();
        lanes
    }

    /// The commits that lanes wait for.
    pub fn waiting(&self) -> impl Iterator<Item = &K> {
        self.open.iter().map(|lane| &lane.commit)
    }

    fn lane(&mut self, commit: K) -> Lane<K> {
        self.opened += 1;
        Lane { commit, number: self.opened - 1 }
    }

    /// The row of a commit.
    pub fn commit(&mut self, id: &K, parents: &[K]) -> LaneRow {
        let found = self.waiting().position(|commit| commit == id);
        let column = found.unwrap_or(self.open.len());
        if found.is_none() {
            let lane = self.lane(*id);
            self.open.push(lane);
        }
        self.done.insert(*id);
        let number = self.open.get(column).map_or(0, |lane| lane.number);
        let above = std::mem::take(&mut self.open);
        self.open = self.below(&above, column, number, parents);
        let place = |commit: &K| self.waiting().position(|c| c == commit);
        let passing = above.iter().enumerate().filter(|(from, _)| *from != column);
        let passing = passing.filter_map(|(from, lane)| {
            Some(LaneEdge { from, to: place(&lane.commit)?, number: lane.number, from_commit: false })
        });
        let on = parents.iter().filter_map(|parent| {
            let to = place(parent)?;
            Some(LaneEdge { from: column, to, number: self.open.get(to)?.number, from_commit: true })
        });
        let edges = passing.chain(on).collect();
        LaneRow { column, number, lanes: above.len(), has_child: found.is_some(), edges }
    }

    /// The lanes below a commit: its first parent takes its place, further parents open lanes beside it, unless some
    /// other lane waits for them already. Lanes that would wait for the same commit become the leftmost of them.
    fn below(&mut self, above: &[Lane<K>], column: usize, number: usize, parents: &[K]) -> Vec<Lane<K>> {
        let mut next: Vec<Lane<K>> = Vec::with_capacity(above.len() + parents.len());
        let push = |next: &mut Vec<Lane<K>>, lane: Lane<K>| {
            if next.iter().all(|l| l.commit != lane.commit) {
                next.push(lane);
            }
        };
        for (i, lane) in above.iter().enumerate() {
            if i != column {
                push(&mut next, *lane);
                continue;
            }
            for (n, &commit) in parents.iter().enumerate() {
                let elsewhere = above.iter().enumerate().any(|(j, l)| j != column && l.commit == commit);
                if self.done.contains(&commit) || (n > 0 && elsewhere) || next.len() >= self.max {
                    continue;
                }
                let lane = if n == 0 { Lane { commit, number } } else { self.lane(commit) };
                push(&mut next, lane);
            }
        }
        next
    }
}
