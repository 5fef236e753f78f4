//! Writes the seeds that can be made: `cargo run -p mdl-fuzz --example seeds`. A seed that is there stays.

#![allow(clippy::unwrap_used, reason = "seeds are made by hand, not at run time")]

#[path = "../../crates/files/tests/it/support/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the writers of checkpoint files that tests have")]
mod support;

#[path = "seeds/bodies.rs"]
mod bodies;
#[path = "seeds/packs.rs"]
mod packs;

use mdl_codec::{
    Bases, CpuEngine, Dtype, Engine, Scheme,
    quant::{
        lattice::{Hint, Lattice, Outcome, Params},
        times,
    },
};
use mdl_fuzz::bases;
use std::{fs, path::Path, sync::Arc};
use support::{gguf, legacy, npy, pickle, safetensors, zip};

/// Writes a seed, unless one of that name is there.
pub fn seed(target: &str, name: &str, bytes: &[u8]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    if !path.exists() {
        fs::write(path, bytes).unwrap();
    }
}

/// A seed whose first byte chooses.
pub fn chosen(target: &str, name: &str, first: u8, bytes: &[u8]) {
    seed(target, name, &[&[first], bytes].concat());
}

fn main() {
    files();
    segments();
    lattices();
    foreign();
    packs::write();
    bodies::write();
}

fn files() {
    let items = [
        "\"__metadata__\":{\"format\":\"pt\"}".into(),
        safetensors::item("a", "F32", &[2], 0, 8),
        safetensors::item("b", "BF16", &[3, 2], 8, 20),
        safetensors::item("empty", "I64", &[0], 20, 20),
    ];
    let st = safetensors::file(&safetensors::header(&items), 20);
    let pt = pickle::checkpoint();
    let old = legacy::checkpoint().bytes();
    let array = npy::array("<f4", &[2, 3], 24);
    let arrays =
        [zip::entry("a.npy", &array), zip::entry("b.npy", &npy::file(2, &npy::header(">i8", true, &[2]), &[1; 16]))];
    let npz = zip::simple(&arrays);
    let wide = zip::Style { wide: true, comment: b"hello".to_vec(), ..zip::Style::default() };
    let tensors =
        [gguf::tensor("w", &[2, 32], 0, 256), gguf::tensor("q", &[2, 32], 8, 68), gguf::tensor("x", &[4], 99, 9)];
    let gg = gguf::file(&tensors, 32);
    seed("safetensors", "two", &st);
    seed("safetensors", "none", &safetensors::file("{}", 0));
    seed("torch", "checkpoint", &pt);
    seed("torch", "legacy", &old);
    let whole = pickle::Pickle::new().whole("0", &[2]).stop();
    seed("torch", "wide", &zip::archive(&pickle::pt_entries(&whole, &[("0", 8)]), &wide));
    seed("npz", "array", &array);
    let record = "{'descr': [('a', '<i4'), ('b', '|S5', (2,))], 'fortran_order': False, 'shape': (2,), }\n";
    seed("npz", "record", &npy::file(3, record, &[0; 28]));
    seed("npz", "two", &npz);
    seed("npz", "wide", &zip::archive(&arrays[..1], &wide));
    seed("gguf", "three", &gg);
    for (i, bytes) in [&st, &pt, &npz, &array, &gg, &old].into_iter().enumerate() {
        chosen("ingest", &format!("file-{i}"), i as u8, bytes);
        chosen("ingest", &format!("damaged-{i}"), 0x80 | i as u8, &bytes[..bytes.len() * 2 / 3]);
    }
    chosen("ingest", "text", 6, b"a note\n");
    pickles();
}

fn foreign() {
    let oid = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 6\n");
    let file =
        "outs:\n- md5: d8e8fca2dc0f896fd7cb4cb0031ba249.dir\n  size: 4\n  nfiles: 1\n  hash: md5\n  path: data\n";
    let lock = "schema: '2.0'\nstages:\n  train:\n    cmd: python train.py\n    wdir: ../run\n    outs:\n    \
                - path: model.pt\n      md5: d8e8fca2dc0f896fd7cb4cb0031ba249\n      isexec: true\n";
    let listing =
        r#"[{"md5": "d8e8fca2dc0f896fd7cb4cb0031ba249", "relpath": "a/b.bin"}, {"md5": "x", "relpath": "c"}]"#;
    let manifest = r#"{"version": 1, "storagePolicy": "wandb-storage-policy-v1", "contents": {
 "model.pt": {"digest": "sZRqySSS0jR8YjW00mERhA==", "size": 6, "birthArtifactID": "x"},
 "away/x": {"digest": "\"etag\"", "ref": "s3://bucket/x", "size": 9}}}"#;
    let commits = r#"[{"id": "4f3a09c1d2e84f3a09c1d2e84f3a09c1d2e84f3a", "title": "first", "message": "more",
 "authors": [{"user": "ada", "avatar": "x"}], "date": "2026-11-24T10:00:00.000Z"}]"#;
    let refs = r#"{"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": "4f3a"}],
 "tags": [{"name": "v1", "ref": "refs/tags/v1", "targetCommit": "4f3a"}], "converts": []}"#;
    let files = r#"[{"type": "file", "path": "a/b", "size": 6, "oid": "ce013625030ba8dba906f756967f9e9ca394464a",
 "lfs": {"oid": "5891", "size": 6, "pointerSize": 134}}, {"type": "directory", "path": "a", "size": 0, "oid": "x"}]"#;
    let link = "<https://h/api/models/a/b/commits/main?p=1>; rel=\"next\", <https://h/x>; rel=\"prev\"";
    let all = [pointer.as_str(), file, lock, listing, manifest, commits, refs, files, link];
    let names = ["pointer", "dvc", "lock", "listing", "manifest", "commits", "refs", "files", "link"];
    for (kind, (name, text)) in names.into_iter().zip(all).enumerate() {
        chosen("foreign", name, kind as u8, text.as_bytes());
    }
    chosen("foreign", "setting", 8, b"[core]\n    remote = x\n[cache]\n    dir = ../shared\n");
}

fn pickles() {
    let p = || pickle::Pickle::new().raw(b"}(");
    seed("pickle", "whole", &p().text("a").whole("0", &[3, 4]).raw(b"u").stop());
    let window =
        p().text("a").tensor("HalfStorage", "0", 24, (2, &[2, 3], &[6, 2])).text("b").whole("1", &[2]).raw(b"u");
    seed("pickle", "windows", &window.stop());
    let nested = p().text("state").raw(b"}(").int(0).raw(b"](").whole("2", &[4]).raw(b"eu").text("lr");
    seed("pickle", "nested", &nested.raw(b"G\0\0\0\0\0\0\0\0u").stop());
    let four = b"\x80\x04\x95\x20\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94\x8f(K\x02\x90\x8c\x01c\x94)\x81u.";
    seed("pickle", "protocol-4", four);
    let objects = p().text("m").global("collections", "OrderedDict").raw(b")R(").text("w").whole("0", &[12]);
    seed("pickle", "objects", &objects.raw(b"u}b").raw(b"q\0h\0u").stop());
}

fn head(dtype: Dtype, len: usize, seed: u8) -> Vec<u8> {
    let place = Dtype::ALL.iter().position(|d| *d == dtype).unwrap();
    let [a, b, c, _] = (len as u32).to_le_bytes();
    vec![place as u8, a, b, c, seed]
}

fn segments() {
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64, Dtype::F16, Dtype::I16, Dtype::U8, Dtype::C64] {
        for len in [48, 1536] {
            for (odd, schemes) in [
                (0, &[Scheme::Stored, Scheme::Zstd, Scheme::Planes, Scheme::Delta, Scheme::Sparse][..]),
                (1, &[Scheme::Palette, Scheme::PaletteDelta, Scheme::PaletteDelta2]),
            ] {
                let [base, grandparent] = bases(dtype, len, odd);
                let mut raw = base.clone();
                raw.iter_mut().step_by(61).for_each(|b| *b ^= 5);
                if odd == 1 {
                    raw.rotate_left(4 * dtype.size());
                }
                for &scheme in schemes {
                    let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
                    let Ok(e) = CpuEngine::new().encode_as(scheme, dtype, &raw, family, None) else {
                        continue;
                    };
                    let bytes = [head(dtype, len, odd), e.bytes].concat();
                    if e.scheme == scheme && (bytes.len() < 1200) {
                        seed("segments", &format!("{}-{dtype}-{len}", scheme.name()), &bytes);
                    }
                }
            }
        }
    }
}

fn lattices() {
    let shape = [12, 25];
    let len = shape[0] * shape[1];
    let sensitivity: Vec<f32> = (0..len).map(|i| ((i * 7919 + 1) % 997) as f32 / 900.0).collect();
    for dtype in [Dtype::F32, Dtype::BF16] {
        for columns in [None, Some(9)] {
            let params = Params::from_sensitivity(-20, columns, &shape, &sensitivity);
            let lattice = Arc::new(Lattice::new(&params, dtype, &shape).unwrap());
            let bytes = len * dtype.size();
            let [base, grandparent] = bases(dtype, bytes, 0);
            let mut rec = vec![0; bytes];
            assert_eq!(lattice.quantise(0, &base, &mut rec), Ok(Outcome::Quantised));
            let hint = Hint::new(lattice.clone(), 0);
            for scheme in [Scheme::Lattice, Scheme::LatticeDelta, Scheme::LatticeDelta2] {
                let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
                let e = CpuEngine::new().encode_as(scheme, dtype, &rec, family, Some(&hint)).unwrap();
                let mut out = vec![0; bytes];
                CpuEngine::new().decode(dtype, &e.bytes, family, &mut out).unwrap();
                let name = format!("{}-{dtype}-{}", scheme.name(), columns.is_some());
                seed("segments", &name, &[head(dtype, bytes, 0), e.bytes].concat());
            }
            // Numbers that are not the base's, so that some move, a few of them far.
            let mut other = base.clone();
            other.rotate_left(4 * dtype.size());
            other.chunks_exact_mut(dtype.size()).step_by(37).for_each(|e| e[dtype.size() - 1] = 0x40);
            let mut moved = vec![0; bytes];
            assert_eq!(lattice.quantise(0, &other, &mut moved), Ok(Outcome::Quantised));
            let family = Bases { base: Some(&base), grandparent: None };
            let e = CpuEngine::new().encode_as(Scheme::LatticeMoves, dtype, &moved, family, Some(&hint)).unwrap();
            let name = format!("{}-{dtype}-{}", e.scheme.name(), columns.is_some());
            seed("segments", &name, &[head(dtype, bytes, 0), e.bytes].concat());
            // A row that is as it was, and one of the base.
            let row = shape[1] * dtype.size();
            base[2 * row..3 * row].iter().zip(&mut rec[2 * row..3 * row]).for_each(|(b, r)| *r = *b ^ 1);
            rec[5 * row..6 * row].copy_from_slice(&base[5 * row..6 * row]);
            for scheme in [Scheme::Overlay, Scheme::OverlayDelta, Scheme::OverlayDelta2] {
                let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
                let e = CpuEngine::new().encode_as(scheme, dtype, &rec, family, Some(&hint)).unwrap();
                let name = format!("{}-{dtype}-{}", scheme.name(), columns.is_some());
                seed("segments", &name, &[head(dtype, bytes, 0), e.bytes].concat());
            }
            // And one that is the base's times a factor.
            times(dtype, &base[7 * row..8 * row], 0.999_9, &mut rec[7 * row..8 * row]);
            if dtype == Dtype::F32 {
                for scheme in [Scheme::OverlayScaled, Scheme::OverlayScaled2] {
                    let family = Bases { base: Some(&base), grandparent: Some(&grandparent) };
                    let e = CpuEngine::new().encode_as(scheme, dtype, &rec, family, Some(&hint)).unwrap();
                    let name = format!("{}-{dtype}-{}", scheme.name(), columns.is_some());
                    seed("segments", &name, &[head(dtype, bytes, 0), e.bytes].concat());
                }
            }
        }
    }
}
