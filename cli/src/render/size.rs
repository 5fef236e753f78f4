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
