//! Tables with aligned columns.

/// Side on which a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of text.
#[derive(Debug)]
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(align: &[Align]) -> Table {
        Table { align: align.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, indented, without blanks at their ends.
    pub fn lines(&self, indent: usize) -> Vec<String> {
        let widths: Vec<usize> = (0..self.align.len())
            .map(|i| self.rows.iter().filter_map(|r| r.get(i)).map(|c| width(c)).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.align);
            let cells: Vec<String> = cells.map(|((c, &w), &a)| pad(c, w, a)).collect();
            format!("{:indent$}{}", "", cells.join("  ")).trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

fn pad(text: &str, to: usize, align: Align) -> String {
    let fill = " ".repeat(to.saturating_sub(width(text)));
    match align {
        Align::Left => format!("{text}{fill}"),
        Align::Right => format!("{fill}{text}"),
    }
}

/// Characters that take room: colour codes do not.
pub fn width(text: &str) -> usize {
    let (mut n, mut in_code) = (0, false);
    for c in text.chars() {
        match c {
            '\x1b' => in_code = true,
            'm' if in_code => in_code = false,
            _ if !in_code => n += 1,
            _ => {}
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut t = Table::new(&[Align::Left, Align::Right, Align::Left]);
        t.row(["a", "10", "x"].map(str::to_owned));
        t.row(["\x1b[31mlong\x1b[0m", "1", ""].map(str::to_owned));
        assert_eq!(t.lines(1), [" a     10  x", " \x1b[31mlong\x1b[0m   1"]);
    }
}
