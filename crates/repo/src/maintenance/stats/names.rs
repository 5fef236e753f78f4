//! Statistics by file path and by tensor name, over all versions.

use crate::maintenance::stats::{NameStats, Stats, TOP, TensorStats, gather::Gather};
use mdl_objects::{Commit, Entry, Id, Kind, Manifest, Mode};
use mdl_store::{reachability::Root, refs::NOTES};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

/// Sums by file and by tensor, each object counted once under a name.
#[derive(Default)]
struct Names {
    files: BTreeMap<String, NameStats>,
    tensors: BTreeMap<(String, String), NameStats>,
    seen: HashSet<(u32, String)>,
}

impl Gather<'_> {
    pub fn names(&mut self, roots: &[Root], out: &mut Stats) {
        // Notes are no versions.
        let versions = roots.iter().filter(|r| r.name != NOTES);
        let (commits, logical) = self.walk(versions.map(|r| r.id).collect());
        (out.commits, out.logical_bytes) = (commits.len() as u64, logical);
        let mut names = Names::default();
        for id in commits {
            let commit = self.content(&id, Kind::Commit).and_then(|b| Commit::decode(&b).ok());
            for tree in commit.iter().flat_map(|c| [Some(self.standing_tree(&id, c)), c.approximation]).flatten() {
                self.directory(&tree, "", 0, &mut names);
            }
        }
        out.files = names.files.into_iter().map(|(name, sum)| sum.named(name)).collect();
        out.files.sort_by_key(|f| Reverse(f.stored));
        let tensor = |((path, name), sum): ((String, String), NameStats)| TensorStats {
            path,
            name,
            versions: sum.versions,
            logical: sum.logical,
            stored: sum.stored,
        };
        out.tensors = names.tensors.into_iter().map(tensor).collect();
        out.tensors.sort_by_key(|t| Reverse(t.stored));
        out.tensors.truncate(TOP);
    }

    fn directory(&self, id: &Id, prefix: &str, depth: usize, names: &mut Names) {
        let Some(n) = self.catalog.find(id).filter(|_| depth <= 256) else {
            return;
        };
        if !names.seen.insert((n, prefix.to_owned())) {
            return;
        }
        let Some(tree) = self.tree(id) else { return };
        for e in &tree.entries {
            let path = format!("{prefix}{}", e.name);
            match e.mode {
                Mode::Tree => self.directory(&e.id, &format!("{path}/"), depth + 1, names),
                _ => self.file(e, path, names),
            }
        }
    }

    fn file(&self, e: &Entry, path: String, names: &mut Names) {
        let Some(n) = self.catalog.find(&e.id) else { return };
        if !names.seen.insert((n, path.clone())) {
            return;
        }
        let mut stored = self.stored(&e.id);
        let manifest = (e.mode == Mode::Manifest).then(|| self.manifest(&e.id)).flatten();
        for t in manifest.iter().flat_map(|m| &m.tensors) {
            let Some(n) = self.catalog.find(&t.id) else { continue };
            let len = self.catalog.best_record(n).len;
            if names.seen.insert((n, path.clone())) {
                stored += len;
            }
            if names.seen.insert((n, format!("{path}\0{}", t.name))) {
                let sum = names.tensors.entry((path.clone(), t.name.clone())).or_default();
                sum.add(t.byte_len().unwrap_or(0), len);
            }
        }
        for c in manifest.iter().flat_map(|m| &m.skeleton) {
            let new = self.catalog.find(&c.id).is_some_and(|n| names.seen.insert((n, path.clone())));
            stored += if new { self.stored(&c.id) } else { 0 };
        }
        names.files.entry(path).or_default().add(e.size, stored);
    }

    fn manifest(&self, id: &Id) -> Option<Manifest> {
        Manifest::decode(&self.content(id, Kind::Manifest)?).ok()
    }
}
