//! Clone, fetch and push over a socket: what is sent, resuming after a cut, rights, refusals.

mod histories;
mod requests;

use crate::support::{Root, commit, live::Live, safetensors};
use mdl_objects::Id;
use mdl_remote::{push::Push, sync::Want};
use mdl_repo::{Repo, Silent, storage::Prefix};

const MAIN: &str = "refs/heads/main";

fn version(n: u64) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("model.safetensors", safetensors(&[("w", 120, 200), ("v", 50, 50)], n)),
        ("step.txt", n.to_string().into_bytes()),
    ]
}

fn train(repo: &Repo, steps: std::ops::Range<u64>) -> Vec<Id> {
    steps.map(|n| commit(repo, &version(n), &format!("step {n}"), n)).collect()
}

fn served() -> (Root, Live) {
    let root = Root::new();
    drop(root.repo("ada/gpt"));
    let live = Live::new(&root, root.options());
    (root, live)
}

fn wish(name: &str, new: Id) -> Push {
    Push { name: name.to_owned(), new: Some(new), force: false, lease: None }
}

fn want(tip: Id) -> Want {
    Want { tips: vec![tip], ..Want::default() }
}

fn clean(repo: &Repo) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, []);
}

fn pack_bytes(repo: &Repo) -> u64 {
    let listed = repo.storage().list(&Prefix::fixed("packs/")).expect("list");
    listed.iter().map(|s| s.size).sum()
}

fn served_repo(live: &Live) -> std::sync::Arc<Repo> {
    live.app.registry().open(&crate::support::name("ada/gpt")).expect("open")
}

fn tensors(repo: &Repo, commit: &Id) -> Vec<Id> {
    let file = crate::support::entry(repo, commit, "model.safetensors");
    let manifest = repo.odb().manifest(&file.id).expect("a manifest");
    manifest.tensors.iter().map(|t| t.id).collect()
}
