//! Output formatting: sizes, times, tables, graphs, colours, JSON.

pub mod entry;
pub mod graph;
mod number;
mod paint;
mod size;
mod table;
mod time;

pub use mdl_server::{
    amounts::{number as short_number, ratio, size},
    api::entry::json_number,
};
pub use number::cosine;
pub use paint::Paint;
pub use size::parse_size;
pub use table::{Align, Table};
pub use time::{date, rfc3339, rfc3339_ms};

/// Singular or plural: `1 file`, `2 files`.
pub fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// A shape as `[768, 3072]`.
pub fn shape(dims: &[u64]) -> String {
    let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// The first line of a message.
pub fn subject(message: &str) -> String {
    visible(message.trim_start().lines().next().unwrap_or_default())
}

/// Text from a repository as a terminal may have it: control characters, which could move the cursor or change colours,
/// are written out (`\u{1b}`). Line feeds and tabs stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
