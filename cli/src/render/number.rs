//! Formats numbers for people and for programs.

use mdl_server::amounts::number;
use serde_json::Value;

/// JSON has no NaN and no infinities: those become the strings `NaN`, `Infinity` and `-Infinity`, which Python's
/// `float` and JavaScript's `Number` read.
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
    i64::try_from(n).map(Value::from).or_else(|_| u64::try_from(n).map(Value::from)).unwrap_or(Value::Null)
}

/// A cosine: what is only nearly 1 shows how nearly (`1-3e-9`).
pub fn cosine(v: f64) -> String {
    let gap = 1.0 - v;
    if gap > 0.0 && gap < 1e-3 { format!("1-{}", number(gap)) } else { number(v) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_lacks_is_text_and_cosines_show_their_gap() {
        assert_eq!(json_number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(json_number(0.5).to_string(), "0.5");
        assert_eq!([cosine(1.0), cosine(1.0 - 2.0_f64.powi(-20)), cosine(-0.5)], ["1", "1-9.53674e-7", "-0.5"]);
    }
}
