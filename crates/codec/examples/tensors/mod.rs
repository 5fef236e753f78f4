//! What the measurements share: reading safetensors files of f32.

use std::collections::BTreeMap;

/// Shape and values by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Enough of JSON for the headers that writers really make.
pub fn load(path: &str) -> Tensors {
    let file = std::fs::read(path).expect("a readable file");
    let n = u64::from_le_bytes(file[..8].try_into().expect("a header length")) as usize;
    let text = std::str::from_utf8(&file[8..8 + n]).expect("a header in UTF-8");
    let mut found = Tensors::new();
    for entry in text.split("\"dtype\"").collect::<Vec<_>>().windows(2) {
        let name = entry[0].trim_end_matches(['{', ':', ' ']).rsplit('"').nth(1);
        let list = |key: &str| -> Vec<usize> {
            let v = &entry[1][entry[1].find(key).expect("a key")..];
            let v = &v[v.find('[').expect("a list") + 1..];
            let v = &v[..v.find(']').expect("its end")];
            v.split(',').filter_map(|v| v.trim().parse().ok()).collect()
        };
        let (shape, span) = (list("\"shape\""), list("\"data_offsets\""));
        let raw = &file[8 + n + span[0]..8 + n + span[1]];
        let values = raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        found.insert(name.unwrap_or("?").into(), (shape, values));
    }
    found
}
