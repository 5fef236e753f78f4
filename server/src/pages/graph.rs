//! Draws the commit graph in lanes, a piece of SVG for each row of a table.

use maud::{Markup, html};
use mdl_objects::Id;
use std::collections::HashSet;

/// Height of a row, as the stylesheet has it.
const HEIGHT: usize = 52;
const MIDDLE: usize = HEIGHT / 2;
/// Distance of lanes.
const WIDTH: usize = 14;
/// Lanes that are drawn; more are there but not to be seen.
const DRAWN: usize = 16;
/// Lanes that are kept.
pub const MAX_LANES: usize = 96;
const COLOURS: usize = 6;

/// A lane waits for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    id: Id,
    colour: usize,
}

/// The lanes that are open below the last commit; no two wait for the same.
#[derive(Debug, Default)]
pub struct Lanes {
    open: Vec<Lane>,
    /// Commits that were drawn: where clocks were wrong a parent comes before its child.
    done: HashSet<Id>,
    colours: usize,
}

/// A line in a row, from a lane at its top or from the commit to a lane at its bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    from: usize,
    to: usize,
    colour: usize,
    from_commit: bool,
}

/// The graph in one commit's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    column: usize,
    colour: usize,
    /// Whether a child above leads to it.
    has_child: bool,
    edges: Vec<Edge>,
    merge: bool,
}

impl Lanes {
    /// Lanes that wait for these, from the page before.
    pub fn waiting_for(ids: &[Id]) -> Lanes {
        let mut lanes = Lanes::default();
        for &id in ids {
            let colour = lanes.colour();
            lanes.open.push(Lane { id, colour });
        }
        lanes
    }

    /// The commits that lanes wait for.
    pub fn waiting(&self) -> impl Iterator<Item = &Id> {
        self.open.iter().map(|l| &l.id)
    }

    fn colour(&mut self) -> usize {
        self.colours += 1;
        (self.colours - 1) % COLOURS
    }

    /// The row of a commit.
    pub fn commit(&mut self, id: &Id, parents: &[Id]) -> Row {
        let found = self.open.iter().position(|l| l.id == *id);
        let column = found.unwrap_or(self.open.len());
        if found.is_none() {
            let colour = self.colour();
            self.open.push(Lane { id: *id, colour });
        }
        self.done.insert(*id);
        let colour = self.open.get(column).map_or(0, |l| l.colour);
        let after = self.after(column, colour, parents);
        let place = |id: &Id| after.iter().position(|l| l.id == *id);
        let passing = self.open.iter().enumerate().filter(|(i, _)| *i != column);
        let mut edges: Vec<Edge> = passing
            .filter_map(|(from, lane)| {
                Some(Edge { from, to: place(&lane.id)?, colour: lane.colour, from_commit: false })
            })
            .collect();
        edges.extend(parents.iter().filter_map(|p| {
            let to = place(p)?;
            Some(Edge { from: column, to, colour: after.get(to)?.colour, from_commit: true })
        }));
        self.open = after;
        Row { column, colour, has_child: found.is_some(), edges, merge: parents.len() > 1 }
    }

    /// The lanes below a commit: its first parent takes its place, further parents open lanes beside it, unless some
    /// other lane waits for them already.
    fn after(&mut self, column: usize, colour: usize, parents: &[Id]) -> Vec<Lane> {
        let before = std::mem::take(&mut self.open);
        let mut next: Vec<Lane> = Vec::with_capacity(before.len() + parents.len());
        for (i, lane) in before.iter().enumerate() {
            if i != column {
                push(&mut next, *lane);
                continue;
            }
            for (n, &id) in parents.iter().enumerate() {
                let elsewhere = before.iter().enumerate().any(|(j, l)| j != column && l.id == id);
                if self.done.contains(&id) || (n > 0 && elsewhere) || next.len() >= MAX_LANES {
                    continue;
                }
                let colour = if n == 0 { colour } else { self.colour() };
                push(&mut next, Lane { id, colour });
            }
        }
        self.open = before;
        next
    }
}

fn push(lanes: &mut Vec<Lane>, lane: Lane) {
    if !lanes.iter().any(|l| l.id == lane.id) {
        lanes.push(lane);
    }
}

fn x(lane: usize) -> usize {
    WIDTH / 2 + 2 + lane * WIDTH
}

impl Edge {
    fn path(&self) -> String {
        let (from, to) = (x(self.from), x(self.to));
        let start = if self.from_commit { MIDDLE } else { 0 };
        let bend = (MIDDLE + HEIGHT) / 2;
        if from == to {
            return format!("M{from} {start}V{HEIGHT}");
        }
        format!("M{from} {start}V{MIDDLE}C{from} {bend} {to} {bend} {to} {HEIGHT}")
    }

    fn is_seen(&self) -> bool {
        self.from < DRAWN && self.to < DRAWN
    }
}

impl Row {
    /// Lanes that the row is wide.
    pub fn lanes(&self) -> usize {
        let ends = self.edges.iter().flat_map(|e| [e.from, e.to]);
        ends.chain([self.column]).max().unwrap_or(0).min(DRAWN - 1) + 1
    }

    /// Renders the row's piece, so many lanes wide. Hidden from screen readers: the row says the same in words.
    pub fn show(&self, lanes: usize) -> Markup {
        let width = x(lanes.saturating_sub(1)) + WIDTH / 2 + 2;
        let column = self.column.min(DRAWN - 1);
        let radius = if self.merge { 3 } else { 4 };
        html! {
            svg.lanes aria-hidden="true" width=(width) height=(HEIGHT) viewBox={ "0 0 " (width) " " (HEIGHT) } {
                @if self.has_child { path.{ "l" (self.colour) } d={ "M" (x(column)) " 0V" (MIDDLE) } {} }
                @for edge in self.edges.iter().filter(|e| e.is_seen()) { path.{ "l" (edge.colour) } d=(edge.path()) {} }
                circle.{ "l" (self.colour) }.merge[self.merge] cx=(x(column)) cy=(MIDDLE) r=(radius) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;

    fn id(name: &str) -> Id {
        Id::of(Kind::Blob, name.as_bytes())
    }

    /// Columns of the commits, and the lanes of each row's bottom.
    fn draw(lanes: &mut Lanes, commits: &[(&str, &[&str])]) -> Vec<(usize, usize)> {
        let mut rows = Vec::new();
        for (name, parents) in commits {
            let parents: Vec<Id> = parents.iter().map(|p| id(p)).collect();
            let row = lanes.commit(&id(name), &parents);
            rows.push((row.column, lanes.open.len()));
        }
        rows
    }

    #[test]
    fn branches_part_and_join() {
        let history: [(&str, &[&str]); 6] =
            [("m", &["c", "e"]), ("e", &["d"]), ("c", &["b"]), ("d", &["b"]), ("b", &["a"]), ("a", &[])];
        let whole = draw(&mut Lanes::default(), &history);
        assert_eq!(whole, [(0, 2), (1, 2), (0, 2), (1, 1), (0, 1), (0, 0)]);
        // A page that begins in the middle continues the graph.
        let mut first = Lanes::default();
        draw(&mut first, &history[..2]);
        let ids: Vec<Id> = first.waiting().copied().collect();
        let mut second = Lanes::waiting_for(&ids);
        assert_eq!(draw(&mut second, &history[2..]), whole[2..]);
    }

    #[test]
    fn a_parent_before_its_child_leaves_no_lane_open() {
        let mut lanes = Lanes::default();
        draw(&mut lanes, &[("parent", &[]), ("child", &["parent"])]);
        assert_eq!(lanes.waiting().count(), 0);
    }

    #[test]
    fn many_parents_do_not_open_lanes_without_end() {
        let names: Vec<String> = (0..1000).map(|i| format!("p{i}")).collect();
        let parents: Vec<Id> = names.iter().map(|n| id(n)).collect();
        let mut lanes = Lanes::default();
        let row = lanes.commit(&id("octopus"), &parents);
        assert!(lanes.waiting().count() <= MAX_LANES && row.lanes() <= DRAWN);
        let drawn = row.show(row.lanes()).into_string();
        assert!(drawn.matches("<path").count() <= DRAWN + 1);
    }
}
