//! Numbers as people and as programs read them. Neighbours: everything that shows metrics or statistics. It must not know
//! what a number means.

use serde_json::Value;

/// JSON has no NaN and no infinities: those become the strings `NaN`, `Infinity` and `-Infinity`, which Python's `float`
/// and JavaScript's `Number` read.
pub fn json_number(v: f64) -> Value {
    match serde_json::Number::from_f64(v) {
        Some(n) => Value::Number(n),
        None if v.is_nan() => "NaN".into(),
        None if v > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// A whole number of at most 64 bits, exactly.
pub fn whole_number(n: i128) -> Value {
    i64::try_from(n)
        .map(Value::from)
        .or_else(|_| u64::try_from(n).map(Value::from))
        .unwrap_or(Value::Null)
}

/// At most six significant digits, in scientific notation where that is shorter.
pub fn short_number(v: f64) -> String {
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

/// A cosine: what is only nearly 1 shows how nearly (`1-3e-9`).
pub fn cosine(v: f64) -> String {
    let gap = 1.0 - v;
    if gap > 0.0 && gap < 1e-3 {
        format!("1-{}", short_number(gap))
    } else {
        short_number(v)
    }
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_true() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.41, "0.41"),
            (12000.0, "12000"),
            (1_234_567.0, "1234567"),
            (-0.001_234_567, "-0.00123457"),
            (1e-4, "1e-4"),
            (1.5e-9, "1.5e-9"),
            (3e12, "3e12"),
            (99.999_999, "100"),
        ];
        for (v, text) in cases {
            assert_eq!(short_number(v), text);
        }
        assert_eq!(short_number(f64::NAN), "NaN");
        assert_eq!(json_number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(
            [cosine(1.0), cosine(1.0 - 2.0_f64.powi(-20)), cosine(-0.5)],
            ["1", "1-9.53674e-7", "-0.5"]
        );
        assert_eq!(json_number(0.5).to_string(), "0.5");
    }
}
