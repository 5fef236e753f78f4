//! Draws the commit graph in lanes of two characters.

use mdl_repo::{LaneEdge, Lanes};
use std::hash::Hash;

/// The graph as far as it is drawn.
#[derive(Debug)]
pub struct Graph<K> {
    lanes: Lanes<K>,
}

impl<K: Copy + Eq + Hash> Graph<K> {
    pub fn new() -> Graph<K> {
        Graph { lanes: Lanes::new(&[], usize::MAX) }
    }

    /// The rows of a commit: the first holds its `*`, the others lead on to the commits below. All have the same width.
    pub fn commit(&mut self, id: &K, parents: &[K]) -> Vec<String> {
        let mut row = self.lanes.commit(id, parents);
        let mut rows = vec![star(row.column, row.lanes)];
        while row.edges.iter().any(|e| e.from != e.to) {
            rows.push(step(&mut row.edges));
        }
        let width = rows.iter().map(String::len).max().unwrap_or(0).max(self.rest().len());
        rows.iter_mut().for_each(|r| *r = format!("{r:width$}"));
        rows
    }

    /// A row beside further text of the last commit.
    pub fn rest(&self) -> String {
        vec!["|"; self.lanes.waiting().count()].join(" ")
    }
}

fn star(col: usize, lanes: usize) -> String {
    let marks: Vec<&str> = (0..lanes).map(|i| if i == col { "*" } else { "|" }).collect();
    marks.join(" ")
}

/// Moves every edge at most one lane towards its place and draws that.
fn step(edges: &mut [LaneEdge]) -> String {
    let width = edges.iter().map(|e| 2 * e.from.max(e.to) + 1).max().unwrap_or(0);
    let mut row = vec![' '; width];
    let mut draw = |at: usize, c: char| {
        if let Some(cell) = row.get_mut(at) {
            let crossed = matches!((*cell, c), ('/', '\\') | ('\\', '/'));
            *cell = if crossed { 'X' } else { c };
        }
    };
    for e in edges {
        if e.from == e.to {
            draw(2 * e.from, '|');
        } else if e.from > e.to {
            draw(2 * e.from - 1, '/');
            e.from -= 1;
        } else {
            draw(2 * e.from + 1, '\\');
            e.from += 1;
        }
    }
    row.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(commits: &[(&'static str, &[&'static str])]) -> String {
        let mut graph = Graph::new();
        let mut out = String::new();
        for (id, parents) in commits {
            for (i, row) in graph.commit(id, parents).into_iter().enumerate() {
                let text = if i == 0 { *id } else { "" };
                out.push_str(format!("{row} {text}").trim_end());
                out.push('\n');
            }
        }
        out
    }

    #[test]
    fn a_line_is_a_line() {
        assert_eq!(draw(&[("c", &["b"]), ("b", &["a"]), ("a", &[])]), "* c\n* b\n* a\n");
    }

    #[test]
    fn branches_part_and_join() {
        let drawn = draw(&[("m", &["c", "e"]), ("e", &["d"]), ("c", &["b"]), ("d", &["b"]), ("b", &["a"]), ("a", &[])]);
        assert_eq!(
            drawn,
            "\
*   m
|\\
| * e
* | c
| * d
|/
* b
* a
"
        );
    }

    #[test]
    fn heads_that_part_far_apart_cross_what_is_between() {
        let drawn = draw(&[("x", &["a"]), ("y", &["b"]), ("z", &["a"]), ("b", &["a"]), ("a", &[])]);
        assert_eq!(
            drawn,
            "\
* x
| * y
| | * z
| |/
|/|
| * b
|/
* a
"
        );
    }

    #[test]
    fn an_octopus_and_an_unrelated_root() {
        let drawn = draw(&[("o", &["a", "b", "c"]), ("c", &["a"]), ("r", &[]), ("b", &["a"]), ("a", &[])]);
        assert_eq!(
            drawn,
            "\
*     o
|\\
| |\\
| | * c
| |/
|/|
| | * r
| * b
|/
* a
"
        );
    }
}
