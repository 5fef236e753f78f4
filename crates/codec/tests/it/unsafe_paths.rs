//! The paths with `unsafe` (AVX2, AVX-512 except under Miri, output that threads share) over the small golden vectors,
//! as they are and damaged: little enough for Miri, which looks at every access (docs/fuzzing.md says how it is run).

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use mdl_codec::{Bases, CpuEngine, Dtype, Engine, Scheme, quant::lattice::Hint, scheme_of};
use std::{fs, path::Path};

/// Bytes of a decoded vector at most; of one that is encoded: plans are tried out, which takes Miri long.
const LONGEST: usize = 24 << 10;
const LONGEST_ENCODED: usize = if cfg!(miri) { 1 << 10 } else { LONGEST };

struct Vector {
    name: String,
    dtype: Dtype,
    encoded: Vec<u8>,
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
    grandparent: Option<Vec<u8>>,
}

impl Vector {
    fn bases(&self) -> Bases<'_> {
        Bases { base: self.base.as_deref(), grandparent: self.grandparent.as_deref() }
    }
}

fn vectors() -> Vec<Vector> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let names = fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter_map(|n| n.strip_suffix(".seg").map(str::to_owned)).collect();
    names.sort();
    let vector = |name: String| {
        let read = |extension: &str| fs::read(dir.join(format!("{name}.{extension}"))).ok();
        let code = name.split('-').next()?.parse().ok()?;
        Some(Vector {
            dtype: Dtype::from_code(code)?,
            encoded: read("seg")?,
            raw: read("raw").filter(|raw| raw.len() <= LONGEST)?,
            base: read("base"),
            grandparent: read("grand"),
            name,
        })
    };
    // zstd is C, which Miri does not run.
    let all = names.into_iter().filter_map(vector);
    let mut all: Vec<Vector> = all.filter(|v| scheme_of(&v.encoded) != Ok(Scheme::Zstd)).collect();
    if cfg!(miri) {
        // Minutes instead of hours: the shortest of each scheme.
        all.sort_by_key(|v| (v.encoded.first().copied(), v.raw.len()));
        all.dedup_by_key(|v| v.encoded.first().copied());
    }
    all
}

#[test]
fn golden_vectors_decode_whole_and_in_part() {
    let all = vectors();
    assert!(all.len() >= 10, "{}", all.len());
    for v in &all {
        let mut out = vec![0; v.raw.len()];
        CpuEngine::new().decode(v.dtype, &v.encoded, v.bases(), &mut out).unwrap();
        assert!(out == v.raw, "{}", v.name);
        let n = v.raw.len() / v.dtype.size();
        let range = n / 3..n - n / 5;
        let bytes = range.start * v.dtype.size()..range.end * v.dtype.size();
        let mut part = vec![0; bytes.len()];
        let decoded = CpuEngine::new().decode_range(v.dtype, &v.encoded, v.raw.len(), v.bases(), range, &mut part);
        decoded.unwrap();
        assert!(part == v.raw[bytes], "{}", v.name);
    }
}

#[test]
fn what_is_damaged_decodes_to_the_same_with_and_without_vectors() {
    for v in vectors() {
        for at in [1, v.encoded.len() / 3, v.encoded.len() / 2, v.encoded.len() - 1] {
            let mut damaged = v.encoded.clone();
            damaged[at] ^= 0x41;
            let mut decoded = CpuEngine::every().into_iter().map(|engine| {
                let mut out = vec![0; v.raw.len()];
                engine.decode(v.dtype, &damaged, v.bases(), &mut out).map(|()| out).ok()
            });
            let plain = decoded.next().unwrap();
            assert!(decoded.all(|fast| fast == plain), "{} at {at}", v.name);
        }
    }
}

#[test]
fn golden_vectors_are_encoded_again() {
    for v in vectors().into_iter().filter(|v| v.raw.len() <= LONGEST_ENCODED) {
        let scheme = scheme_of(&v.encoded).unwrap();
        let hint = Hint::from_encoded(v.dtype, &v.encoded, v.raw.len()).unwrap();
        let encoded = CpuEngine::new().encode_as(scheme, v.dtype, &v.raw, v.bases(), hint.as_ref());
        let encoded = encoded.unwrap();
        let mut out = vec![0; v.raw.len()];
        CpuEngine::portable().decode(v.dtype, &encoded.bytes, v.bases(), &mut out).unwrap();
        assert!(out == v.raw, "{}", v.name);
    }
}
