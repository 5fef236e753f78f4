//! Bytes for people. Neighbours: all listings; JSON shows exact bytes instead. It must not round up to a lie: one decimal,
//! binary units.

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

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

/// How many times smaller: `2.67x`; from ten on without decimals.
pub fn ratio(logical: u64, stored: u64) -> String {
    if stored == 0 || logical == 0 {
        return "-".to_owned();
    }
    let r = logical as f64 / stored as f64;
    match r {
        r if r < 10.0 => format!("{r:.2}x"),
        r if r < 100.0 => format!("{r:.1}x"),
        r => format!("{r:.0}x"),
    }
}

/// A number of bytes as people write it: `512MiB`, `1.5GiB`, `10GB`, `4096`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 14] = [
        ("", 1),
        ("b", 1),
        ("k", 1 << 10),
        ("kib", 1 << 10),
        ("m", 1 << 20),
        ("mib", 1 << 20),
        ("g", 1 << 30),
        ("gib", 1 << 30),
        ("t", 1 << 40),
        ("tib", 1 << 40),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
    ];
    let bad = || format!("{text:?} is no size: write 512MiB, 1.5GiB or a number of bytes");
    let text_only = text.trim().to_ascii_lowercase();
    let split = text_only
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text_only.len());
    let (number, unit) = text_only.split_at(split);
    let unit = UNITS.iter().find(|u| u.0 == unit.trim()).ok_or_else(bad)?.1;
    let bytes = number.parse::<f64>().map_err(|_| bad())? * unit as f64;
    if bytes > u64::MAX as f64 / 2.0 {
        return Err(bad());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ratios() {
        let sizes = [0, 1023, 1024, 1536, (1 << 20) - 1, 90_868_344, 6 << 30].map(size);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "86.7 MiB", "6.0 GiB"]
        );
        assert_eq!(ratio(8, 3), "2.67x");
        assert_eq!(ratio(1000, 3), "333x");
        assert_eq!(ratio(5, 0), "-");
    }
}
