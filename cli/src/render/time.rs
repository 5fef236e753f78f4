//! Formats times in the author's own time zone.

use mdl_objects::Signature;
use mdl_server::api::entry;

/// `2026-11-21 12:30:05 +0100`
pub fn date(who: &Signature) -> String {
    entry::time_in_zone(who.time_ms, who.utc_offset_min, "%Y-%m-%d %H:%M:%S %z")
}

/// `2026-11-21T12:30:05.250+01:00`
pub fn rfc3339(who: &Signature) -> String {
    entry::rfc3339(who.time_ms, who.utc_offset_min)
}

/// Milliseconds since 1970 as an RFC 3339 time in UTC.
pub fn rfc3339_ms(time_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(time_ms).map_or_else(|_| format!("{time_ms} ms"), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_the_authors_zone() {
        let who =
            |time_ms, utc_offset_min| Signature { name: String::new(), email: String::new(), time_ms, utc_offset_min };
        assert_eq!(date(&who(0, 90)), "1970-01-01 01:30:00 +0130");
        assert_eq!(rfc3339(&who(1_500, -60)), "1969-12-31T23:00:01.500-01:00");
        assert_eq!(date(&who(i64::MAX, 0)), "9223372036854775807 ms");
    }
}
