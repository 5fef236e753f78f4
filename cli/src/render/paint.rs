//! Terminal colours, or none.

use mdl_repo::Change;

/// Paints text if colours are on.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    pub const fn new(on: bool) -> Paint {
        Paint { on }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    /// The colour of a kind of change.
    pub fn change(self, change: Change, text: &str) -> String {
        match change {
            Change::Added => self.green(text),
            Change::Modified => self.yellow(text),
            Change::Deleted => self.red(text),
        }
    }

    pub fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }

    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}
