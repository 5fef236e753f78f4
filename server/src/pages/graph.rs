//! Draws the commit graph in lanes, a piece of SVG for each row of a table.

use maud::{Markup, html};
use mdl_repo::{LaneEdge, LaneRow};

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

fn x(lane: usize) -> usize {
    WIDTH / 2 + 2 + lane * WIDTH
}

/// The class of the stylesheet.
fn class(number: usize) -> String {
    format!("l{}", number % COLOURS)
}

fn path(edge: &LaneEdge) -> String {
    let (from, to) = (x(edge.from), x(edge.to));
    let start = if edge.from_commit { MIDDLE } else { 0 };
    let bend = (MIDDLE + HEIGHT) / 2;
    if from == to {
        return format!("M{from} {start}V{HEIGHT}");
    }
    format!("M{from} {start}V{MIDDLE}C{from} {bend} {to} {bend} {to} {HEIGHT}")
}

/// Lanes that a row is wide.
pub fn width(row: &LaneRow) -> usize {
    let ends = row.edges.iter().flat_map(|e| [e.from, e.to]);
    ends.chain([row.column]).max().unwrap_or(0).min(DRAWN - 1) + 1
}

/// Renders a row's piece, so many lanes wide. Hidden from screen readers: the row says the same in words.
pub fn show(row: &LaneRow, is_merge: bool, lanes: usize) -> Markup {
    let width = x(lanes.saturating_sub(1)) + WIDTH / 2 + 2;
    let column = row.column.min(DRAWN - 1);
    let seen = row.edges.iter().filter(|e| e.from < DRAWN && e.to < DRAWN);
    html! {
        svg.lanes aria-hidden="true" width=(width) height=(HEIGHT) viewBox={ "0 0 " (width) " " (HEIGHT) } {
            @if row.has_child { path.(class(row.number)) d={ "M" (x(column)) " 0V" (MIDDLE) } {} }
            @for edge in seen { path.(class(edge.number)) d=(path(edge)) {} }
            circle.(class(row.number)).merge[is_merge] cx=(x(column)) cy=(MIDDLE) r=(if is_merge { 3 } else { 4 }) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::{Id, Kind};
    use mdl_repo::Lanes;

    fn id(name: &str) -> Id {
        Id::from_content(Kind::Blob, name.as_bytes())
    }

    /// Columns of the commits, and the lanes of each row's bottom.
    fn draw(lanes: &mut Lanes<Id>, commits: &[(&str, &[&str])]) -> Vec<(usize, usize)> {
        let mut rows = Vec::new();
        for (name, parents) in commits {
            let parents: Vec<Id> = parents.iter().map(|p| id(p)).collect();
            let row = lanes.commit(&id(name), &parents);
            rows.push((row.column, lanes.waiting().count()));
        }
        rows
    }

    #[test]
    fn branches_part_and_join() {
        let history: [(&str, &[&str]); 6] =
            [("m", &["c", "e"]), ("e", &["d"]), ("c", &["b"]), ("d", &["b"]), ("b", &["a"]), ("a", &[])];
        let whole = draw(&mut Lanes::new(&[], MAX_LANES), &history);
        assert_eq!(whole, [(0, 2), (1, 2), (0, 2), (1, 1), (0, 1), (0, 0)]);
        // A page that begins in the middle continues the graph.
        let mut first = Lanes::new(&[], MAX_LANES);
        draw(&mut first, &history[..2]);
        let ids: Vec<Id> = first.waiting().copied().collect();
        let mut second = Lanes::new(&ids, MAX_LANES);
        assert_eq!(draw(&mut second, &history[2..]), whole[2..]);
    }

    #[test]
    fn a_parent_before_its_child_leaves_no_lane_open() {
        let mut lanes = Lanes::new(&[], MAX_LANES);
        draw(&mut lanes, &[("parent", &[]), ("child", &["parent"])]);
        assert_eq!(lanes.waiting().count(), 0);
    }

    #[test]
    fn many_parents_do_not_open_lanes_without_end() {
        let names: Vec<String> = (0..1000).map(|i| format!("p{i}")).collect();
        let parents: Vec<Id> = names.iter().map(|n| id(n)).collect();
        let mut lanes = Lanes::new(&[], MAX_LANES);
        let row = lanes.commit(&id("octopus"), &parents);
        assert!(lanes.waiting().count() <= MAX_LANES && width(&row) <= DRAWN);
        let drawn = show(&row, true, width(&row)).into_string();
        assert!(drawn.matches("<path").count() <= DRAWN + 1);
    }
}
