//! Text and numbers as pages show them. Neighbours: every page. It must not know markup.
//!
//! What comes from a repository is anybody's: control characters and marks that turn the direction of writing are spelled out, and
//! nothing is longer than a page has room for.

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
/// What stays as it is in a segment of a path: the unreserved characters.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Characters of a name that are shown.
const NAME: usize = 160;

/// `512 B`, `3.1 MiB`.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 KiB would be shown as 1024.0 KiB.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).copied().unwrap_or("PiB"))
}

/// How many times smaller, as a number.
pub fn ratio_of(logical: u64, stored: u64) -> Option<f64> {
    (stored > 0 && logical > 0).then(|| logical as f64 / stored as f64)
}

/// How many times smaller: `2.67x`; from ten on with fewer decimals.
pub fn ratio(logical: u64, stored: u64) -> String {
    match ratio_of(logical, stored) {
        None => "-".to_owned(),
        Some(r) if r < 10.0 => format!("{r:.2}x"),
        Some(r) if r < 100.0 => format!("{r:.1}x"),
        Some(r) => format!("{r:.0}x"),
    }
}

/// At most six significant digits, in scientific notation where that is shorter.
pub fn number(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return format!("{v}");
    }
    let magnitude = v.abs().log10().floor();
    if !(-3.0..7.0).contains(&magnitude) {
        let text = format!("{v:.5e}");
        return match text.split_once('e') {
            Some((digits, power)) => format!("{}e{power}", trim_zeros(digits)),
            None => text,
        };
    }
    let decimals = (5.0 - magnitude).clamp(0.0, 9.0) as usize;
    trim_zeros(&format!("{v:.decimals$}")).to_owned()
}

/// Three significant digits: for tables that compare.
pub fn rough(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return format!("{v}");
    }
    let short = format!("{v:.2e}").parse().unwrap_or(v);
    number(short)
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
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

/// Whether a character can hide, or move what is around it.
fn is_sly(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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

/// A segment of a path in a link.
pub fn segment(text: &str) -> String {
    percent_encode(text.as_bytes(), &SEGMENT).to_string()
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
    fn numbers_are_short_and_true() {
        assert_eq!(
            [0, 1023, 1536, 90_868_344].map(size),
            ["0 B", "1023 B", "1.5 KiB", "86.7 MiB"]
        );
        assert_eq!([ratio(8, 3), ratio(1000, 3), ratio(5, 0)], ["2.67x", "333x", "-"]);
        assert_eq!(
            [0.41, -0.001_234_567, 1.5e-9].map(number),
            ["0.41", "-0.00123457", "1.5e-9"]
        );
        assert_eq!([number(f64::NAN), rough(0.012_345)], ["NaN", "0.0123"]);
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
