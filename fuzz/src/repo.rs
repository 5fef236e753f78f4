//! Repositories in memory that targets start from.

use mdl_codec::CpuEngine;
use mdl_objects::{Id, Signature};
use mdl_remote::sync::Want;
use mdl_repo::{
    CommitRequest, Content, NewFile, Repo, Silent,
    storage::{Key, MemoryStorage, Prefix, Storage},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// A new, empty one.
pub(crate) fn fresh() -> (MemoryStorage, Repo) {
    let storage = MemoryStorage::new();
    let repo = Repo::init_storage(Arc::new(storage.clone()), "main", engine()).expect("an empty repository");
    (storage, repo)
}

/// Opens what is there.
pub(crate) fn open(storage: &MemoryStorage) -> mdl_repo::Result<Repo> {
    Repo::with_storage(Arc::new(storage.clone()), engine(), None, None, None)
}

fn engine() -> Arc<CpuEngine> {
    Arc::new(CpuEngine::new())
}

/// The values of a small repository, and the ids of its two versions.
pub(crate) struct Small {
    pub values: BTreeMap<String, Vec<u8>>,
    pub versions: [Id; 2],
}

/// Always the same: two versions of a checkpoint and a note, an annotated tag.
pub(crate) fn small() -> &'static Small {
    static SMALL: OnceLock<Small> = OnceLock::new();
    SMALL.get_or_init(|| {
        let (storage, repo) = fresh();
        let versions = [0u8, 1].map(|version| commit(&repo, version));
        mdl_repo::create_tag(&repo, "t", &versions[0], Some("a tag"), false).expect("a tag");
        let all = Prefix::parse("packs/").expect("a prefix");
        let mut keys: Vec<Key> = storage.list(&all).expect("keys").into_iter().map(|s| s.key).collect();
        for name in ["format", "HEAD", "config", "refs/heads/main", "refs/tags/t", "logs/HEAD", "identity"] {
            keys.push(Key::parse(name).expect("a key"));
        }
        let value = |k: Key| Some((k.to_string(), storage.get(&k).expect("a value")?));
        Small { values: keys.into_iter().filter_map(value).collect(), versions }
    })
}

/// Its packs, for seeds.
pub fn small_packs() -> Vec<Vec<u8>> {
    let packs = small().values.iter().filter(|(key, _)| key.starts_with("packs/"));
    packs.map(|(_, bytes)| bytes.clone()).collect()
}

/// What it offers of all its history, for seeds.
pub fn small_plan() -> Vec<u8> {
    let repo = open(&storage(&small().values)).expect("the small repository");
    let want = Want { tips: small().versions.to_vec(), ..Want::default() };
    let plan = mdl_remote::sync::plan_transfer(&repo, &want, &Silent).expect("a plan");
    plan.encode().expect("bytes")
}

/// The id of its newest version.
pub fn small_tip() -> Id {
    small().versions[1]
}

/// A storage with these values.
pub(crate) fn storage(values: &BTreeMap<String, Vec<u8>>) -> MemoryStorage {
    let storage = MemoryStorage::new();
    for (key, value) in values {
        let key = Key::parse(key.as_str()).expect("a key of ours");
        storage.put(&key, value).expect("memory");
    }
    storage
}

fn commit(repo: &Repo, version: u8) -> Id {
    let header = br#"{"w":{"dtype":"F32","shape":[8,8],"data_offsets":[0,256]}}      "#;
    let data = (0..64u16).flat_map(|i| (f32::from(i) * 0.01 + f32::from(version) * 1e-6).to_le_bytes());
    let model: Vec<u8> = (header.len() as u64).to_le_bytes().into_iter().chain(*header).chain(data).collect();
    let file = |rel: &str, bytes: Vec<u8>| NewFile {
        rel: rel.to_owned(),
        executable: false,
        content: Content::Memory(Arc::new(bytes)),
    };
    let request = CommitRequest {
        files: Some(vec![file("a/model.safetensors", model), file("note.txt", vec![b'x', version])]),
        message: format!("version {version}"),
        author: Some(Signature {
            name: "ada".to_owned(),
            email: "ada@example.org".to_owned(),
            time_ms: 1_700_000_000_000 + i64::from(version),
            utc_offset_min: 60,
        }),
        step: Some(version.into()),
        metrics: BTreeMap::from([("loss".to_owned(), 0.5)]),
        ..CommitRequest::default()
    };
    mdl_repo::commit(repo, &request, &Silent).expect("a commit").id
}
