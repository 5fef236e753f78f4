//! Seeds of packs, objects, records: taken out of a small repository and the golden one.

use crate::{chosen, seed};
use mdl_fuzz::{KEYS, mend};
use mdl_objects::Kind;
use mdl_repo::{
    pack::{Pack, PackId},
    storage::Storage,
};
use std::{collections::BTreeMap, fs, path::Path};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/repo-v1/store");
/// Longest pack and object that become seeds.
const LONGEST: usize = 6 << 10;

const PRUNED: &str = r#"mdl pruned 1
{"commit":"ONE","time_ms":1,"rules":"last 2"}
x
"#;
const SHARD: &str = r#"mdl shard 1
{"rank":0,"time_ms":1,"parent":"ONE","pack":null,"logical_bytes":1,"stored_bytes":1,"files":{}}
x
"#;
const SESSION: &str = r#"mdl session 1
{"token":"t","decided":{"commit":"ONE","branch":"main","from":null,"settled":true,"shards":["a"]}}
x
"#;

/// Writes them.
pub fn write() {
    let mut packs: Vec<Vec<u8>> = mdl_fuzz::small_packs();
    let dir = fs::read_dir(Path::new(GOLDEN).join("packs")).unwrap().flatten();
    packs.extend(dir.map(|f| fs::read(f.path()).unwrap()));
    packs.sort_by_key(Vec::len);
    for (i, pack) in packs.iter().enumerate().filter(|(_, p)| p.len() <= LONGEST) {
        seed("pack", &format!("pack-{i}"), pack);
        if i < 3 {
            seed("receive", &format!("pack-{i}"), pack);
            chosen("http_sync", &format!("push-{i}"), 7, pack);
        }
        let tail = pack.len() - 64;
        let at = u64::from_le_bytes(*pack[tail..].first_chunk().unwrap()) as usize;
        if i < 4 {
            chosen("index", &format!("footer-{i}"), 0, &mend::pack::footer(&pack[at..tail]));
        }
        objects(pack, i);
    }
    chosen("index", "plan", 1, &mdl_fuzz::small_plan());
    records();
}

fn objects(bytes: &[u8], i: usize) {
    let storage = mdl_repo::storage::MemoryStorage::new();
    let id = PackId::from_bytes(mend::pack::name(bytes).unwrap());
    storage.put(&id.key(), bytes).unwrap();
    let pack = Pack::open(&storage, id).unwrap();
    for (n, record) in pack.records().iter().enumerate() {
        let payload = pack.payload(&storage, record).unwrap();
        let name = format!("{}-{i}-{n}", record.kind);
        if record.kind == Kind::Tensor {
            if payload.len() <= 1024 {
                seed("tensor", &name, &payload);
            }
            continue;
        }
        let content = match payload.split_first().unwrap() {
            (0, rest) => rest.to_vec(),
            (_, rest) => zstd::bulk::decompress(rest, 1 << 20).unwrap(),
        };
        match record.kind {
            _ if i > 4 || content.len() > 2048 => {}
            Kind::Tree => seed("tree", &name, &content),
            Kind::Manifest => seed("manifest", &name, &content),
            Kind::Commit => chosen("commit", &name, 0, &content),
            Kind::Tag => chosen("commit", &name, 1, &content),
            _ => {}
        }
    }
}

fn records() {
    let golden = |name: &str| fs::read(Path::new(GOLDEN).join(name)).unwrap_or_default();
    let zero = "0".repeat(64);
    let one = mdl_fuzz::small_tip();
    // Checksums are mended below.
    let filled = |text: &str| text.replace("ONE", &one.to_hex()).replace("ZERO", &zero).into_bytes();
    let values: BTreeMap<&str, Vec<u8>> = BTreeMap::from([
        ("HEAD", filled("ref: refs/heads/x/y\n")),
        ("config", filled("[user]\nname = \"a\"\n[remote.origin]\nurl = \"https://h/o/n\"\nonly = [\"*.pt\"]\n")),
        ("refs/heads/x/y", filled("ONE\n")),
        ("refs/tags/t", filled("ZERO\n")),
        ("logs/HEAD", golden("logs/HEAD")),
        ("logs/refs%2Fheads%2Fmain", golden("logs/refs%2Fheads%2Fmain")),
        ("pruned", filled(PRUNED)),
        ("condemned", filled("mdl condemned 2\n3 1\nZERO waits 2 5 7\nx\n")),
        ("unreadable", filled("ZERO ONE\n")),
        ("identity", filled("0123456789abcdef0123456789abcdef\n")),
        ("shards/s/0", filled(SHARD)),
        ("shards/s/state", filled(SESSION)),
        (KEYS[16], filled("mdl staged 1\n[\"ONE\"]\nx\n")),
    ]);
    let mut all = Vec::new();
    for (key, value) in &values {
        let number = KEYS.iter().position(|k| k == key).unwrap() as u8;
        let mut bytes = [&[number], &(value.len() as u16).to_le_bytes()[..], value].concat();
        mend::records(&mut bytes);
        seed("records", &key.replace(['/', '%'], "-"), &bytes);
        all.extend(bytes);
    }
    seed("records", "all", &all);
}
