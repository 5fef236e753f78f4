//! Commits of files that are not on disk: held in memory, or staged before.

use crate::support::{Place, engine, memory, place};
use mdl_repo::{
    CommitRequest, Content, ErrorKind, FreeOptions, GcOptions, Level, NewFile, RefName, Repo, Silent, StoredFile,
    Wanted,
    storage::{LocalStorage, Prefix},
};
use tempfile::TempDir;

/// A safetensors file of one f32 tensor.
fn tensor_file(name: &str, values: &[f32]) -> Vec<u8> {
    let header = format!(
        "{{\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[0,{}]}}}}",
        values.len(),
        values.len() * 4
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    values.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
    bytes
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(0x3f80_0000 | x >> 9) - 1.5
    };
    (0..n).map(|_| next()).collect()
}

fn request(files: Vec<NewFile>) -> CommitRequest {
    CommitRequest { files: Some(files), message: "given".to_owned(), ..CommitRequest::default() }
}

#[test]
fn files_in_memory_are_the_same_version_as_files_on_disk() {
    let place = place();
    let (a, b) = (tensor_file("w", &noise(4000, 1)), b"{\"x\": 1}".to_vec());
    place.write("sub/a.safetensors", &a);
    place.write("b.json", &b);
    let on_disk = place.commit("disk");
    let given = request(vec![memory("b.json", &b), memory("sub/a.safetensors", &a)]);
    let refused = mdl_repo::commit(&place.repo, &given, &Silent).expect_err("nothing new");
    assert_eq!(refused.kind(), ErrorKind::User);
    let again = CommitRequest { allow_empty: true, ..given };
    let given = mdl_repo::commit(&place.repo, &again, &Silent).expect("commit");
    let tree = |id| place.repo.odb().commit(id).expect("commit").tree;
    assert_eq!(tree(&on_disk.id), tree(&given.id));
    assert_eq!(given.summary.new_tensors, 0);
}

#[test]
fn staged_files_are_joined_into_one_version() {
    let place = place();
    let first = [tensor_file("w", &noise(4000, 1)), tensor_file("w", &noise(4000, 2))];
    let stage = |rel: &str, bytes: &[u8]| {
        // Another process: its words travel as text.
        let other = Repo::open(place.path(), engine()).expect("open");
        let staged = mdl_repo::stage(&other, &[memory(rel, bytes)], None, &Silent).expect("stage");
        serde_json::to_string(&staged[0]).expect("text")
    };
    let stored = |rel: &str, text: &str| NewFile {
        rel: rel.to_owned(),
        executable: false,
        content: Content::Stored(serde_json::from_str::<StoredFile>(text).expect("stored")),
    };
    let texts = [stage("0.safetensors", &first[0]), stage("1.safetensors", &first[1])];
    assert!(place.repo.refs().get(&RefName::branch("main").expect("a name")).expect("refs").is_none());
    let files = vec![stored("0.safetensors", &texts[0]), stored("1.safetensors", &texts[1])];
    let done = mdl_repo::commit(&place.repo, &request(files), &Silent).expect("join");
    assert_eq!((done.summary.tensors, done.summary.new_tensors), (2, 2));
    assert!(done.summary.stored_bytes > 20_000, "{:?}", done.summary);
    let found = place.repo.odb().files(&place.repo.odb().commit(&done.id).expect("commit").tree).expect("files");
    for (rel, bytes) in [("0.safetensors", &first[0]), ("1.safetensors", &first[1])] {
        let entry = &found[rel];
        assert_eq!(&place.repo.odb().read_range(entry, 0, u64::MAX).expect("read"), bytes);
    }
    // The next one is a delta on what the branch holds.
    let next: Vec<f32> = noise(4000, 1).iter().map(|v| v + 1e-4).collect();
    let text = stage("0.safetensors", &tensor_file("w", &next));
    let done = mdl_repo::commit(&place.repo, &request(vec![stored("0.safetensors", &text)]), &Silent).expect("join");
    assert_eq!(done.report.tensors[0].depth, 1);
}

/// A file that is stored for a commit to come, beside a version.
fn staged(place: &Place) -> NewFile {
    place.write("x", b"x");
    place.commit("one");
    let files = [memory("w.safetensors", tensor_file("w", &noise(400, 1)))];
    let stored = mdl_repo::stage(&place.repo, &files, None, &Silent).expect("stage");
    NewFile { rel: "w.safetensors".to_owned(), executable: false, content: Content::Stored(stored[0].clone()) }
}

#[test]
fn what_was_collected_cannot_be_joined() {
    let place = place();
    let file = staged(&place);
    let prune = GcOptions { prune_now: true, ..GcOptions::default() };
    mdl_repo::gc(&place.repo, &prune, &Silent).expect("gc");
    let error = mdl_repo::commit(&place.repo, &request(vec![file]), &Silent).expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn freeing_leaves_what_was_staged() {
    let place = place();
    let file = staged(&place);
    let all = FreeOptions { dry_run: false, wanted: Wanted::Percent(100.0), rules: None, to: Level::Gone, among: None };
    mdl_repo::free(&place.repo, &all, &Silent).expect("free");
    mdl_repo::commit(&place.repo, &request(vec![file]), &Silent).expect("it is still there");
}

#[test]
fn ranges_of_files_are_those_of_their_bytes() {
    let place = place();
    let mut big = tensor_file("w", &noise(3_000_000, 3));
    big.truncate(big.len());
    let text: Vec<u8> = (0..3_000_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect();
    let files = vec![memory("w.safetensors", &big), memory("t.bin.txt", &text), memory("s", b"small")];
    let done = mdl_repo::commit(&place.repo, &request(files), &Silent).expect("commit");
    let found = place.repo.odb().files(&place.repo.odb().commit(&done.id).expect("commit").tree).expect("files");
    for (rel, bytes) in [("w.safetensors", &big), ("t.bin.txt", &text), ("s", &b"small".to_vec())] {
        let n = bytes.len() as u64;
        for (start, len) in
            [(0, n), (0, 3), (3, 100), (n / 2, 9_000_001), (n - 1, 5), (n, 1), (7, 0), (n + 9, 1), (0, u64::MAX)]
        {
            let want = &bytes[(start.min(n)) as usize..start.saturating_add(len).min(n).max(start.min(n)) as usize];
            assert_eq!(
                place.repo.odb().read_range(&found[rel], start, len).expect("read"),
                want,
                "{rel} {start} {len}"
            );
        }
    }
}

#[test]
fn a_copy_holds_every_version() {
    let place = place();
    let bytes = tensor_file("w", &noise(4000, 1));
    let first =
        mdl_repo::commit(&place.repo, &request(vec![memory("w.safetensors", &bytes)]), &Silent).expect("commit");
    mdl_repo::create_tag(&place.repo, "v1", &first.id, None, false).expect("tag");
    let dir = TempDir::new().expect("dir");
    let inner = dir.path().join(".mdl");
    std::fs::create_dir(&inner).expect("dir");
    mdl_repo::copy_to(&place.repo, &LocalStorage::new(&inner), &Silent).expect("copy");
    let copy = Repo::open(dir.path(), engine()).expect("open");
    assert_eq!(mdl_repo::resolve(&copy, "v1").expect("tag"), first.id);
    let entry =
        copy.odb().files(&copy.odb().commit(&first.id).expect("commit").tree).expect("files")["w.safetensors"].clone();
    assert_eq!(copy.odb().read_range(&entry, 0, u64::MAX).expect("read"), bytes);
    assert!(mdl_repo::copy_to(&place.repo, &LocalStorage::new(&inner), &Silent).is_err());
}

#[test]
fn staged_files_stay_for_the_time_of_grace_though_all_of_them_was_stored_before() {
    let place = place();
    let bytes = tensor_file("w", &noise(4000, 5));
    let stage = || mdl_repo::stage(&place.repo, &[memory("w.safetensors", &bytes)], None, &Silent).expect("stage");
    stage();
    let packs = place.repo.dir().expect("a directory").join("packs");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(48 * 3600);
    for entry in std::fs::read_dir(packs).expect("packs") {
        let path = entry.expect("entry").path();
        let file = std::fs::File::options().write(true).open(path).expect("open");
        file.set_modified(old).expect("age");
    }
    let staged = stage();
    mdl_repo::gc(&place.repo, &GcOptions::default(), &Silent).expect("gc");
    let file =
        NewFile { rel: "w.safetensors".to_owned(), executable: false, content: Content::Stored(staged[0].clone()) };
    mdl_repo::commit(&place.repo, &request(vec![file]), &Silent).expect("join");
    let kept = place.repo.storage().list(&Prefix::ALL).expect("list");
    assert!(kept.iter().any(|s| s.key.starts_with("staged/")));
    let now = GcOptions { prune_now: true, ..GcOptions::default() };
    mdl_repo::gc(&place.repo, &now, &Silent).expect("gc");
    let kept = place.repo.storage().list(&Prefix::ALL).expect("list");
    assert!(!kept.iter().any(|s| s.key.starts_with("staged/")));
    assert!(mdl_repo::fsck(&place.repo, false, &Silent).expect("fsck").problems.is_empty());
}
