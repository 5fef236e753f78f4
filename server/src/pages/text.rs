//! Escapes and shortens text and formats numbers for pages.
//!
//! Text from a repository is untrusted: control characters and marks that turn the direction of writing are spelled
//! out, and nothing is longer than a page has room for.

use maud::{Markup, html};

pub use crate::amounts::{number, ratio, ratio_of, size};
pub(super) use crate::request::extract::encoded as segment;

/// Characters of a name that are shown.
const NAME: usize = 160;

/// Three significant digits: for tables that compare.
pub fn rough(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return format!("{v}");
    }
    let short = format!("{v:.2e}").parse().unwrap_or(v);
    number(short)
}

/// `1 file`, `3 files`, `12,000 tensors`.
pub fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// `12,000`
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `768 x 3072`; a scalar has none.
pub fn shape(dims: &[u64]) -> String {
    if dims.is_empty() {
        return "scalar".to_owned();
    }
    let shown: Vec<String> = dims.iter().take(16).map(u64::to_string).collect();
    shown.join(" \u{d7} ")
}

/// Returns whether a character can hide, or reorder the text around it.
fn is_sly(c: char) -> bool {
    let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{61c}');
    let marks = matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    hides || marks || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Text with what hides or misleads spelled out, at most `max` characters of it.
pub fn clipped(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(max) {
        if is_sly(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    if chars.next().is_some() {
        out.push('\u{2026}');
    }
    out
}

/// A name on one line.
pub fn name(text: &str) -> String {
    clipped(text, NAME).replace(['\n', '\t'], " ")
}

/// The first line of a message.
pub fn subject(message: &str) -> String {
    let line = message.trim_start().lines().next().unwrap_or_default();
    match line {
        "" => "(no message)".to_owned(),
        line => name(line),
    }
}

/// A path in a link, its segments one by one.
pub fn path(text: &str) -> String {
    let parts: Vec<String> = text.split('/').map(segment).collect();
    parts.join("/")
}

/// A time, for people and for programs.
pub fn time(time_ms: i64) -> Markup {
    match jiff::Timestamp::from_millisecond(time_ms) {
        Ok(t) => html! {
            time datetime=(t.strftime("%Y-%m-%dT%H:%M:%SZ")) { (t.strftime("%Y-%m-%d %H:%M UTC")) }
        },
        // A commit may hold any number.
        Err(_) => html! { span { (time_ms) " ms" } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(rough(0.012_345), "0.0123");
        assert_eq!([999, 1000, 1_234_567].map(grouped), ["999", "1,000", "1,234,567"]);
        assert_eq!([count(1, "file"), count(2, "file")], ["1 file", "2 files"]);
    }

    #[test]
    fn what_hides_is_spelled_out_and_what_is_long_is_cut() {
        assert_eq!(name("a\u{202e}b\u{7}"), "a\\u{202e}b\\u{7}");
        assert_eq!(clipped("abc", 2), "ab\u{2026}");
        assert_eq!(name(&"x".repeat(10_000)).chars().count(), NAME + 1);
        assert_eq!(subject(" \n\n "), "(no message)");
        assert_eq!(path("a b/c?#/\u{e9}"), "a%20b/c%3F%23/%C3%A9");
        assert_eq!(segment("feature/x"), "feature%2Fx");
    }
}
