//! Parses sizes as people write them.

/// A number of bytes as people write it: `512MiB`, `1.5GiB`, `10GB`, `4096`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&[&str], u64); 9] = [
        (&["", "b"], 1),
        (&["k", "kib"], 1 << 10),
        (&["m", "mib"], 1 << 20),
        (&["g", "gib"], 1 << 30),
        (&["t", "tib"], 1 << 40),
        (&["kb"], 1_000),
        (&["mb"], 1_000_000),
        (&["gb"], 1_000_000_000),
        (&["tb"], 1_000_000_000_000),
    ];
    let bad = || format!("{text:?} is no size: write 512MiB, 1.5GiB or a number of bytes");
    let text_only = text.trim().to_ascii_lowercase();
    let split = text_only.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text_only.len());
    let (number, unit) = text_only.split_at(split);
    let unit = UNITS.iter().find(|u| u.0.contains(&unit.trim())).ok_or_else(bad)?.1;
    let bytes = number.parse::<f64>().map_err(|_| bad())? * unit as f64;
    if bytes > u64::MAX as f64 / 2.0 {
        return Err(bad());
    }
    Ok(bytes as u64)
}
