//! Target: what other systems write and an import reads: pointers, tracked files, listings, manifests, a Hub's answers.

use mdl_remote::foreign::{
    dvc,
    hub::{HubCommit, HubFile, HubRefs, next_page},
    lfs::{LONGEST, Pointer},
    wandb,
};

/// Kinds of input.
const KINDS: u8 = 9;

/// The first byte says what the rest is read as.
pub fn foreign(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % KINDS {
        0 => pointer(data),
        kind @ (1 | 2) => tracked(data, kind == 2),
        3 => listing(data),
        4 => manifest(data),
        5 => {
            let commits: Vec<HubCommit> = serde_json::from_slice(data).unwrap_or_default();
            let is_id =
                |c: &HubCommit| (1..=64).contains(&c.id.len()) && c.id.bytes().all(|b| b.is_ascii_alphanumeric());
            assert!(commits.iter().all(is_id), "an id that is none: {commits:?}");
        }
        6 => drop(serde_json::from_slice::<HubRefs>(data)),
        7 => drop(serde_json::from_slice::<Vec<HubFile>>(data)),
        _ => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            assert!(next_page(text).is_none_or(|page| !page.contains('>') && text.contains(&page)), "another address");
            assert!(dvc::cache_setting(text).is_none_or(|dir| text.contains(&dir) && !dir.contains('\n')));
        }
    }
}

/// A pointer is short, and its id is one.
fn pointer(data: &[u8]) {
    if let Some(Pointer { oid, .. }) = Pointer::parse(data) {
        assert!(data.len() as u64 <= LONGEST && oid.len() == 64 && oid.bytes().all(|b| b.is_ascii_hexdigit()), "{oid}");
    }
}

/// What is tracked has a place below the repository, or none; and so has an id in the cache.
fn tracked(data: &[u8], is_lock: bool) {
    for (dir, out) in dvc::tracked(data, is_lock).unwrap_or_default() {
        if let Some(path) = dvc::join(&["models", &dir, &out.path]) {
            assert!(stays_inside(&path), "{path}");
        }
        if let Some((first, rest)) = out.md5.as_deref().and_then(dvc::place_of) {
            assert!(first.len() == 2 && rest.len() >= 30 && !rest.contains('/'), "{first}/{rest}");
        }
    }
}

fn listing(data: &[u8]) {
    for (path, _) in dvc::listing(data, "data/train").unwrap_or_default() {
        assert!(stays_inside(&path) && path.starts_with("data/train/"), "{path}");
    }
}

/// Paths are inside, each once; ids are ids; what has none is only referred to.
fn manifest(data: &[u8]) {
    let listed = wandb::manifest(data);
    assert!(listed.is_err() || wandb::is_manifest(data));
    let listed = listed.unwrap_or_default();
    assert!(listed.is_sorted_by(|a, b| a.path < b.path), "a path twice");
    for file in listed {
        assert!(stays_inside(&file.path), "{}", file.path);
        let is_md5 = |id: &String| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(file.md5.as_ref().map_or(file.is_reference, is_md5), "{file:?}");
    }
}

fn stays_inside(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
