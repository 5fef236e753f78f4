//! Parses `Range`, `If-Match` and `If-None-Match` headers (RFC 9110, sections 13 and 14).

use http::{HeaderMap, header};
use std::ops::Range;

/// The part that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it, with status 200.
    Whole,
    /// These bytes, with status 206.
    Range(Range<u64>),
    /// No byte of what is asked for exists: 416.
    Nothing,
}

/// The part of `len` bytes that a Range header asks for. What is no range of bytes, or several ranges, is all of it: a
/// server may answer so.
pub fn part(headers: &HeaderMap, len: u64) -> Part {
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Part::Whole;
    };
    let spec = value.to_str().ok().and_then(|v| v.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.filter(|s| !s.contains(',')).and_then(|s| s.trim().split_once('-')) else {
        return Part::Whole;
    };
    let digits =
        |s: &str| (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().unwrap_or(u64::MAX));
    match (digits(first), digits(last)) {
        (Some(first), _) if first >= len && (last.is_empty() || digits(last).is_some()) => Part::Nothing,
        (Some(first), Some(last)) if first <= last => Part::Range(first..last.saturating_add(1).min(len)),
        (Some(start), None) if last.is_empty() => Part::Range(start..len),
        (None, Some(0)) if first.is_empty() => Part::Nothing,
        (None, Some(_)) if first.is_empty() && len == 0 => Part::Nothing,
        (None, Some(n)) if first.is_empty() => Part::Range(len.saturating_sub(n)..len),
        _ => Part::Whole,
    }
}

/// Whether a list of entity tags names this one. Weak tags (`W/`) count for If-None-Match, not for If-Match.
pub fn names(list: &str, etag: &str, weak: bool) -> bool {
    let prefix = if weak { "W/" } else { "" };
    list.split(',').map(str::trim).any(|t| t == "*" || t.strip_prefix(prefix).unwrap_or(t) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn asked(text: &str, len: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(text).expect("a header"));
        part(&headers, len)
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        let range = |start, end| Part::Range(start..end);
        assert_eq!(part(&HeaderMap::new(), 10), Part::Whole);
        for (text, want) in [
            ("bytes=0-4", range(0, 5)),
            ("bytes=3-", range(3, 10)),
            ("bytes=-4", range(6, 10)),
            ("bytes=-40", range(0, 10)),
            ("bytes=0-99999999999999999999999", range(0, 10)),
            ("bytes=10-", Part::Nothing),
            ("bytes=99999999999999999999999-", Part::Nothing),
            ("bytes=-0", Part::Nothing),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-4", Part::Whole),
        ] {
            assert_eq!(asked(text, 10), want, "{text}");
        }
        assert_eq!(asked("bytes=0-", 0), Part::Nothing);
        assert_eq!(asked("bytes=-5", 0), Part::Nothing);
    }

    #[test]
    fn lists_of_tags_are_looked_through() {
        assert!(names("\"a\", W/\"b\"", "\"b\"", true) && names("*", "\"x\"", true));
        assert!(!names("\"a\", \"ab\"", "\"b\"", true));
        assert!(!names("\"a\", W/\"b\"", "\"b\"", false) && names("\"a\", \"b\"", "\"b\"", false));
    }

    proptest! {
        #[test]
        fn a_range_never_leaves_the_file(text in "bytes=[0-9]{0,20}-?[0-9]{0,20}", len in 0u64..1000) {
            if let Part::Range(Range { start, end }) = asked(&text, len) {
                prop_assert!(start < end && end <= len);
            }
        }
    }
}
