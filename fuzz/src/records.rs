//! Targets: the small values of a repository (refs, logs, settings, records with checksums). Whatever they hold,
//! reading ends in a value or an error, and an fsck and a dry collection end.

use crate::repo;
use mdl_repo::{GcOptions, HEADS, RefName, Repo, Silent, TAGS};

/// Keys that an input may set, by the number before the value.
pub const KEYS: [&str; 18] = [
    "HEAD",
    "config",
    "refs/heads/main",
    "refs/heads/x/y",
    "refs/tags/t",
    "refs/worktrees/w",
    "refs/remotes/origin/main",
    "refs/policies/p",
    "logs/HEAD",
    "logs/refs%2Fheads%2Fmain",
    "pruned",
    "condemned",
    "unreadable",
    "identity",
    "shards/s/0",
    "shards/s/state",
    "staged/0000000000000000000000000000000000000000000000000000000000000000",
    "format",
];

/// The values of an input: number of the key, two bytes of length, that many bytes.
pub fn values(mut data: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some(([key, a, b], rest)) = data.split_first_chunk::<3>() {
        let (value, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*a, *b]))));
        out.push((KEYS[usize::from(*key) % KEYS.len()], value.to_vec()));
        data = rest;
    }
    out
}

/// Puts the values in the place of a small repository's.
pub fn records(data: &[u8]) {
    let mut all = repo::small().values.clone();
    for (key, value) in values(data) {
        all.insert(key.to_owned(), value);
    }
    let storage = repo::storage(&all);
    let Ok(mut repo) = repo::open(&storage) else { return };
    read(&repo);
    for deep in [false, true] {
        let _ = mdl_repo::fsck(&repo, deep, &Silent);
    }
    let dry = GcOptions { dry_run: true, prune_now: true, grace: None };
    let _ = mdl_repo::gc(&repo, &dry, &Silent);
    again(&mut repo);
    let after = repo::open(&storage).map(|repo| read(&repo));
    assert!(after.is_ok(), "what a program wrote it does not read: {:?}", after.err());
}

/// Everything that is only looked at.
fn read(repo: &Repo) {
    let refs = repo.refs();
    let _ = refs.head();
    let _ = refs.head_commit();
    for prefix in [HEADS, TAGS, "refs/"] {
        let _ = refs.list(prefix);
    }
    let mut names = refs.logged().unwrap_or_default();
    names.extend(["refs/heads/main", "refs/heads/x/y", "refs/tags/t"].iter().filter_map(|n| RefName::parse(n).ok()));
    for name in names {
        let _ = refs.get(&name);
        if let Ok(log) = refs.reflog(&name) {
            assert!(name.as_str() == "HEAD" || log.windows(2).all(|w| w[0].old == w[1].new), "a chain that is none");
        }
    }
    for text in ["HEAD", "main", "t", "main@{1}", "main~1", "main@step=1", "main@best(loss)", "@{0}"] {
        let _ = mdl_repo::resolve(repo, text);
    }
    if let Ok(pruned) = mdl_repo::pruned(repo) {
        assert!(pruned.iter().all(|(id, mark)| pruned.get(id) == Some(mark)));
    }
    let _ = mdl_repo::sessions(repo);
    let _ = repo.identity();
    let config = repo.config();
    let _ = (config.get("user.name"), config.max_depth(), config.is_partial());
    let _ = config.remotes();
}

/// A setting that is written and read again is the same; other values are not lost.
fn again(repo: &mut Repo) {
    let others: Vec<_> = ["delta.max_depth", "gc.grace_hours"].map(|k| repo.config().get(k)).into();
    if repo.set_config("user.name", Some("b \"c\" \\ \u{1}")).is_ok() {
        assert!(repo.config().get("user.name").as_deref() == Some("b \"c\" \\ \u{1}"), "a setting was changed");
        let now: Vec<_> = ["delta.max_depth", "gc.grace_hours"].map(|k| repo.config().get(k)).into();
        assert!(now == others, "another setting was changed");
    }
}
