//! Files of a work tree: small checkpoints.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

/// A file as a version or a work tree holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    pub bytes: Arc<Vec<u8>>,
    pub exec: bool,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hash = blake3::hash(&self.bytes).to_hex();
        write!(f, "{} bytes {}{}", self.bytes.len(), &hash[..8], if self.exec { " +x" } else { "" })
    }
}

/// Files by their paths.
pub type Files = BTreeMap<String, File>;

/// Paths that are written to. The last two cannot be together: one is a directory of the other's.
pub const NAMES: [&str; 9] = [
    "model.safetensors",
    "optim.safetensors",
    "sub/ema.safetensors",
    "sub/deep/tokens.npy",
    "tokens.npy",
    "raw.bin",
    "config.json",
    "clash/x.bin",
    "clash",
];

/// Deterministic noise (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn weights(rng: &mut Rng, n: u64) -> Vec<u8> {
    let value = |rng: &mut Rng| ((rng.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).to_le_bytes();
    (0..n).flat_map(|_| value(rng)).collect()
}

fn safetensors(rng: &mut Rng) -> Vec<u8> {
    let (mut head, mut data) = (Vec::new(), Vec::new());
    for i in 0..1 + rng.below(3) {
        // Of all sizes, and now and then the same tensor in several files.
        let n = [8, 60, 500, 2000, 12_000][rng.below(100).checked_sub(60).map_or(2, |x| x as usize / 9).min(4)];
        let mut own = Rng(rng.below(6));
        let bytes = if rng.chance(40) { weights(&mut own, n) } else { weights(rng, n) };
        let (dtype, each) = if rng.chance(30) { ("BF16", 2) } else { ("F32", 4) };
        let (from, shape) = (data.len(), bytes.len() / each);
        data.extend(bytes);
        head.push(format!(r#""t{i}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{from},{}]}}"#, data.len()));
    }
    let mut json = format!("{{{}}}", head.join(","));
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(json.as_bytes());
    out.extend(data);
    out
}

fn npy(rng: &mut Rng) -> Vec<u8> {
    let data = weights(rng, 1 + rng.clone().below(900));
    let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", data.len() / 4);
    while (10 + head.len() + 1) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(head.len() as u16).to_le_bytes());
    out.extend_from_slice(head.as_bytes());
    out.extend(data);
    out
}

/// What a program would save under this name.
pub fn content(name: &str, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    match name.rsplit('.').next() {
        Some("safetensors") => safetensors(&mut rng),
        Some("npy") => npy(&mut rng),
        Some("json") => format!("{{\"lr\": {}, \"step\": {}}}", rng.below(40), rng.below(30)).into_bytes(),
        // Some of them empty, some of them equal.
        _ => {
            let (seed, n) = (rng.below(50), rng.below(4));
            weights(&mut Rng(seed), n * n * 70)
        }
    }
}

/// The file at a path; none where there is none.
pub fn read(path: &Path) -> Option<File> {
    let bytes = fs::read(path).ok()?;
    let exec = fs::metadata(path).ok()?.permissions().mode() & 0o100 != 0;
    Some(File { bytes: Arc::new(bytes), exec })
}

/// All files below a directory, but those of a repository; and what lies there that no verb should have left.
pub fn read_all(root: &Path) -> (Files, Vec<String>) {
    fn walk(root: &Path, dir: &Path, files: &mut Files, odd: &mut Vec<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let rel = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            match name.as_str() {
                ".mdl" => {}
                name if name.starts_with(".mdl-") => odd.push(rel),
                _ if path.is_dir() => walk(root, &path, files, odd),
                _ => files.extend(read(&path).map(|file| (rel, file))),
            }
        }
    }
    let (mut files, mut odd) = (Files::new(), Vec::new());
    walk(root, root, &mut files, &mut odd);
    (files, odd)
}
