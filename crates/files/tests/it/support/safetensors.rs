//! Writes safetensors files.

/// A file of this header text and so many data bytes.
pub fn file(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend((0..data).map(|i| i as u8));
    out
}

/// One header item.
pub fn item(name: &str, dtype: &str, shape: &[u64], begin: u64, end: u64) -> String {
    format!("{name:?}:{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{begin},{end}]}}")
}

/// A header of these items.
pub fn header(items: &[String]) -> String {
    format!("{{{}}}", items.join(","))
}
