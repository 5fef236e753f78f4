//! Targets: canonical objects. Whatever is read is written again to the same bytes.

use mdl_objects::{Commit, Id, Kind, Manifest, Tag, Tree, check_name, check_new_name};

/// Directories.
pub fn tree(data: &[u8]) {
    let Ok(tree) = Tree::decode(data) else { return };
    assert!(tree.encode() == data, "a tree has two spellings");
    for entry in &tree.entries {
        assert!(check_name(&entry.name).is_ok());
        let _ = check_new_name(&entry.name);
        assert!(tree.get(&entry.name) == Some(entry), "an entry is not found by its name");
    }
}

/// Files as skeleton and tensors.
pub fn manifest(data: &[u8]) {
    let Ok(manifest) = Manifest::decode(data) else { return };
    assert!(manifest.encode() == data, "a manifest has two spellings");
    let mut end = 0;
    for t in &manifest.tensors {
        assert!(t.offset >= end, "tensors overlap");
        end = t.offset + t.byte_len().expect("checked when it was read");
    }
    let tensors: u64 = manifest.tensors.iter().filter_map(|t| t.byte_len()).sum();
    let skeleton: u64 = manifest.skeleton.iter().map(|c| c.len).sum();
    assert!(end <= manifest.size && tensors + skeleton == manifest.size, "the file is not filled");
}

/// Commits; a first byte that is odd: tags.
pub fn commit(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    if kind & 1 == 1 {
        if let Ok(tag) = Tag::decode(data) {
            assert!(tag.encode() == data, "a tag has two spellings");
        }
        return;
    }
    let Ok(commit) = Commit::decode(data) else { return };
    assert!(commit.encode() == data, "a commit has two spellings");
    assert!(Id::from_content(Kind::Commit, data) != Id::from_content(Kind::Tag, data));
}
