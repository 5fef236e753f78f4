//! Statistics: the numbers add up.

use super::setup::*;
use mdl_repo::{
    Silent,
    storage::{Prefix, Storage},
};

#[test]
fn the_numbers_add_up() {
    let (storage, repo) = fresh();
    let versions = run(4, 1, 3000);
    commit_all(&repo, "main", &versions);
    commit_all(&repo, "side", &run(2, 2, 600));
    let id = mdl_repo::resolve(&repo, "main~1").expect("rev");
    move_ref(&repo, "refs/heads/older", Some(id));
    mdl_repo::create_tag(&repo, "t", &id, Some("a message"), false).expect("tag");
    let s = mdl_repo::stats(&repo, &Silent).expect("stats");
    let len = |v: &Version| v.values().map(|b| b.len() as u64).sum::<u64>();
    // The first commit to a new branch builds on HEAD's.
    assert_eq!((s.commits, s.packs, s.damaged_packs), (6, 7, 0));
    assert_eq!(s.logical_bytes, versions.iter().map(len).sum::<u64>() + run(2, 2, 600).iter().map(len).sum::<u64>());
    assert_eq!(
        s.stored_bytes,
        storage.list(&Prefix::fixed("packs/")).expect("list").iter().map(|p| p.size).sum::<u64>()
    );
    assert_eq!((s.unreachable_objects, s.unreachable_bytes), (0, 0));
    assert!(!s.index, "memory has no index");
    let names: Vec<&str> = s.branches.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["main", "older", "side"]);
    let commits: Vec<u64> = s.branches.iter().map(|b| b.commits).collect();
    assert_eq!(commits, [4, 3, 6]);
    assert_eq!(s.branches[1].exclusive, 0, "all of it is main's");
    assert!(s.branches[2].exclusive > 0 && s.branches[2].exclusive < s.branches[2].stored);
    let a = s.tensors.iter().find(|t| t.name == "a" && t.path == "model.safetensors").expect("a");
    assert_eq!((a.versions, a.logical), (6, 4 * 12000 + 2 * 2400));
    assert_eq!(s.files[0].name, "model.safetensors");
    assert_eq!(s.kinds.iter().map(|k| k.versions).sum::<u64>(), s.objects);
    let tensors = s.kinds.iter().find(|k| k.name == "tensor").expect("tensors");
    assert_eq!(s.schemes.iter().map(|k| k.stored).sum::<u64>(), tensors.stored);
    assert_eq!(s.depths.iter().sum::<u64>(), tensors.versions);
    assert_eq!(s.depths.len(), 4, "main's chain");
    assert!(serde_json::to_value(&s).expect("json")["branches"].is_array());
    // What is let go shows as unreachable, however it is damaged elsewhere.
    drop_branch(&repo, "side");
    let s = mdl_repo::stats(&repo, &Silent).expect("stats");
    assert!(s.unreachable_bytes > 0 && s.commits == 4);
    let key = packs(&storage).remove(0);
    let bytes = storage.get(&key).expect("get").expect("pack");
    storage.put(&key, &bytes[..bytes.len() - 9]).expect("damage");
    assert_eq!(mdl_repo::stats(&open(storage), &Silent).expect("stats").damaged_packs, 1);
}
