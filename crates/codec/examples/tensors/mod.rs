//! What the measurements share: reading safetensors files, the best of several times, entropies.

#![allow(dead_code, reason = "each measurement uses a part of it")]

use mdl_codec::{Dtype, quant::Values};
use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Instant,
};

/// A tensor of a file.
pub struct Tensor {
    /// Opaque for what no measurement looks at.
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub raw: Vec<u8>,
}

/// Shape and values by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The tensors of a safetensors file by name. Enough of JSON for the headers that writers really make.
pub fn read(path: &str) -> BTreeMap<String, Tensor> {
    let file = std::fs::read(path).expect("a readable file");
    let n = u64::from_le_bytes(file[..8].try_into().expect("a header length")) as usize;
    let text = std::str::from_utf8(&file[8..8 + n]).expect("a header in UTF-8");
    let mut found = BTreeMap::new();
    for entry in text.split("\"dtype\"").collect::<Vec<_>>().windows(2) {
        let name = entry[0].trim_end_matches(['{', ':', ' ']).rsplit('"').nth(1);
        let list = |key: &str| -> Vec<usize> {
            let v = &entry[1][entry[1].find(key).expect("a key")..];
            let v = &v[v.find('[').expect("a list") + 1..];
            let v = &v[..v.find(']').expect("its end")];
            v.split(',').filter_map(|v| v.trim().parse().ok()).collect()
        };
        let dtype = match entry[1].trim_start_matches([':', ' ', '"']).split('"').next() {
            Some("F64") => Dtype::F64,
            Some("F32") => Dtype::F32,
            Some("F16") => Dtype::F16,
            Some("BF16") => Dtype::BF16,
            Some("I64") => Dtype::I64,
            Some("I32") => Dtype::I32,
            _ => Dtype::Opaque,
        };
        let (shape, span) = (list("\"shape\""), list("\"data_offsets\""));
        let raw = file[8 + n + span[0]..8 + n + span[1]].to_vec();
        found.insert(name.unwrap_or("?").into(), Tensor { dtype, shape, raw });
    }
    found
}

/// As [`read`], all of it f32.
pub fn load(path: &str) -> Tensors {
    let numbers = |t: Tensor| (t.shape, Values::new(Dtype::F32, &t.raw).expect("f32").to_f32());
    read(path).into_iter().map(|(name, t)| (name, numbers(t))).collect()
}

/// Seconds of the fastest of several runs.
pub fn best(repeat: usize, mut work: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..repeat).map(|_| time()).fold(f64::MAX, f64::min)
}

/// Bits of symbols given what is known of each.
pub fn entropy<K: Hash + Eq + Copy, S: Hash + Eq>(pairs: impl Iterator<Item = (K, S)>) -> f64 {
    let (mut both, mut known) = (HashMap::new(), HashMap::new());
    for (k, s) in pairs {
        *both.entry((k, s)).or_insert(0u32) += 1;
        *known.entry(k).or_insert(0u32) += 1;
    }
    let sum = |v: f64| v * v.log2();
    known.values().map(|&n| sum(n.into())).sum::<f64>() - both.values().map(|&n| sum(n.into())).sum::<f64>()
}
