//! Formats times in the author's own time zone.

use jiff::{Timestamp, Zoned, tz::Offset};
use mdl_objects::Signature;

fn zoned(who: &Signature) -> Option<Zoned> {
    let offset = Offset::from_seconds(who.utc_offset_min.checked_mul(60)?).ok()?;
    Some(Timestamp::from_millisecond(who.time_ms).ok()?.to_zoned(offset.to_time_zone()))
}

fn format(who: &Signature, pattern: &str) -> String {
    // A commit may hold any number; what is no time is shown as the number it is.
    zoned(who).map_or_else(|| format!("{} ms", who.time_ms), |z| z.strftime(pattern).to_string())
}

/// `2026-11-21 12:30:05 +0100`
pub fn date(who: &Signature) -> String {
    format(who, "%Y-%m-%d %H:%M:%S %z")
}

/// `2026-11-21T12:30:05.250+01:00`
pub fn rfc3339(who: &Signature) -> String {
    format(who, "%Y-%m-%dT%H:%M:%S%.3f%:z")
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
