//! Formats sizes, ratios and numbers for people, the same on HTML pages and in the CLI.

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// `512 B`, `3.1 MiB`: one decimal, binary units.
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

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ratios() {
        let sizes = [0, 1023, 1024, 1536, (1 << 20) - 1, 90_868_344, 6 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "86.7 MiB", "6.0 GiB"]);
        assert_eq!([ratio(8, 3), ratio(1000, 3), ratio(5, 0)], ["2.67x", "333x", "-"]);
    }

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
            assert_eq!(number(v), text);
        }
        assert_eq!(number(f64::NAN), "NaN");
    }
}
