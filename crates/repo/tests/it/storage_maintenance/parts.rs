//! Slices of tensors in damaged packs: no byte that was not written is ever given out.

use super::setup::*;
use mdl_objects::{Kind, Mode};
use mdl_repo::{ErrorKind, Repo, storage::Storage};

/// Two versions, the second a difference to the first, and the file's entry in that.
fn scene() -> (mdl_repo::storage::MemoryStorage, mdl_objects::Entry, Vec<u8>) {
    let (storage, repo) = fresh();
    let versions = run(2, 7, 4000);
    commit(&repo, "main", &versions[0]);
    let id = commit(&repo, "main", &versions[1]);
    let entry = mdl_repo::files(&repo, &id).expect("files")["model.safetensors"].clone();
    assert_eq!(entry.mode, Mode::Manifest);
    (storage, entry, versions[1]["model.safetensors"].clone())
}

/// A few bytes of the middle of every tensor.
fn parts(repo: &Repo, entry: &mdl_objects::Entry) -> Vec<mdl_repo::Result<(u64, Vec<u8>)>> {
    let manifest = repo.odb().manifest(&entry.id).expect("manifest");
    let part = |t: &mdl_objects::TensorRef| {
        let at = t.offset + t.byte_len().expect("length") / 2;
        repo.odb().read_range(entry, at, 16).map(|bytes| (at, bytes))
    };
    manifest.tensors.iter().map(part).collect()
}

#[test]
fn a_flipped_byte_in_any_payload_is_an_error_or_does_not_matter() {
    let (storage, entry, file) = scene();
    let repo = open(storage.clone());
    let right = |(at, bytes): &(u64, Vec<u8>)| file[*at as usize..*at as usize + 16] == **bytes;
    assert!(parts(&repo, &entry).iter().all(|p| right(p.as_ref().expect("sound"))));
    // What was found sound is not looked at again; another process looks for itself.
    let mut refused = 0;
    for key in packs(&storage) {
        let bytes = storage.get(&key).expect("get").expect("a pack");
        let id = mdl_repo::pack::PackId::from_key(&key).expect("a name");
        let pack = mdl_repo::pack::Pack::open(&storage, id).expect("open");
        for r in pack.records().iter().filter(|r| r.kind == Kind::Tensor) {
            for at in [0, r.len / 3, r.len / 2, r.len - 1] {
                let damaged = duplicate(&storage);
                let mut bad = bytes.clone();
                bad[(r.offset + at) as usize] ^= 1;
                damaged.put(&key, &bad).expect("put");
                for part in parts(&open(damaged), &entry) {
                    match part {
                        Ok(part) => assert!(right(&part), "wrong bytes"),
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(refused >= 12, "{refused}");
}

#[test]
#[ignore = "a measurement, not a promise"]
fn what_the_first_part_of_a_large_tensor_costs() {
    let dir = tempfile::TempDir::new().expect("temp dir");
    let engine = engine();
    drop(Repo::init(dir.path(), false, "main", engine.clone()).expect("init"));
    let values = Noise(5).even(64 << 20);
    let version = Version::from([("w.safetensors".to_owned(), safetensors(&[("w", &values)]))]);
    let repo = Repo::open(dir.path(), engine.clone()).expect("open");
    let id = commit(&repo, "main", &version);
    let entry = mdl_repo::files(&repo, &id).expect("files")["w.safetensors"].clone();
    let repo = Repo::open(dir.path(), engine).expect("open");
    for what in ["first", "second"] {
        let start = std::time::Instant::now();
        repo.odb().read_range(&entry, 100 << 20, 16).expect("part");
        println!("{what} part of {} MiB: {:?}", entry.size >> 20, start.elapsed());
    }
}
