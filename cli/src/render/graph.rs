//! Draws the commit graph in lanes of two characters.

/// The lanes that are open below the last commit: each waits for the commit it names, and no two for the same.
#[derive(Debug, Default)]
pub struct Graph<K> {
    lanes: Vec<K>,
}

/// One line from a commit or lane above to a lane below.
struct Edge {
    at: usize,
    to: usize,
}

impl<K: Clone + PartialEq> Graph<K> {
    pub fn new() -> Graph<K> {
        Graph { lanes: Vec::new() }
    }

    /// The rows of a commit: the first holds its `*`, the others lead on to the commits below. All have the same width.
    pub fn commit(&mut self, id: &K, parents: &[K]) -> Vec<String> {
        let col = self.lanes.iter().position(|l| l == id).unwrap_or_else(|| {
            self.lanes.push(id.clone());
            self.lanes.len() - 1
        });
        let mut rows = vec![star(col, self.lanes.len())];
        let after = self.after(col, parents);
        let place = |k: &K| after.iter().position(|l| l == k);
        let others = self.lanes.iter().enumerate().filter(|(i, _)| *i != col);
        let mut edges: Vec<Edge> = others.filter_map(|(at, k)| Some(Edge { at, to: place(k)? })).collect();
        edges.extend(parents.iter().filter_map(|p| Some(Edge { at: col, to: place(p)? })));
        while edges.iter().any(|e| e.at != e.to) {
            rows.push(step(&mut edges));
        }
        self.lanes = after;
        let width = rows.iter().map(String::len).max().unwrap_or(0).max(self.rest().len());
        rows.iter_mut().for_each(|r| *r = format!("{r:width$}"));
        rows
    }

    /// A row beside further text of the last commit.
    pub fn rest(&self) -> String {
        vec!["|"; self.lanes.len()].join(" ")
    }

    /// The lanes below a commit in lane `col`: its first parent takes its place, further parents open lanes beside it,
    /// and lanes that would wait for the same commit become the leftmost of them.
    fn after(&self, col: usize, parents: &[K]) -> Vec<K> {
        let mut next: Vec<K> = Vec::new();
        let push = |next: &mut Vec<K>, k: &K| {
            if !next.contains(k) {
                next.push(k.clone());
            }
        };
        let waiting = |k: &K| self.lanes.iter().enumerate().any(|(i, l)| i != col && l == k);
        for (i, lane) in self.lanes.iter().enumerate() {
            if i != col {
                push(&mut next, lane);
                continue;
            }
            for (n, parent) in parents.iter().enumerate() {
                if n == 0 || !waiting(parent) {
                    push(&mut next, parent);
                }
            }
        }
        next
    }
}

fn star(col: usize, lanes: usize) -> String {
    let marks: Vec<&str> = (0..lanes).map(|i| if i == col { "*" } else { "|" }).collect();
    marks.join(" ")
}

/// Moves every edge at most one lane towards its place and draws that.
fn step(edges: &mut [Edge]) -> String {
    let width = edges.iter().map(|e| 2 * e.at.max(e.to) + 1).max().unwrap_or(0);
    let mut row = vec![' '; width];
    let mut draw = |at: usize, c: char| {
        if let Some(cell) = row.get_mut(at) {
            let crossed = matches!((*cell, c), ('/', '\\') | ('\\', '/'));
            *cell = if crossed { 'X' } else { c };
        }
    };
    for e in edges {
        if e.at == e.to {
            draw(2 * e.at, '|');
        } else if e.at > e.to {
            draw(2 * e.at - 1, '/');
            e.at -= 1;
        } else {
            draw(2 * e.at + 1, '\\');
            e.at += 1;
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
