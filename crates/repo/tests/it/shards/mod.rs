//! Sharded commits: many ranks at once, ranks that die, are late or start again, finishers that die or come twice.

mod crashes;
mod ranks;

use crate::support::{Noise, memory, safetensors};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, Committed, GcOptions, JoinRequest, RefName, Repo, Result, Shard, ShardRequest, Silent};

const NOW: GcOptions = GcOptions { dry_run: false, prune_now: true, grace: None };

/// The bytes of a rank's file at a step: weights that drift.
fn content(rank: u32, step: u32) -> Vec<u8> {
    let mut w = Noise(u64::from(rank) + 1).weights(600);
    let mut drift = Noise(u64::from(rank) + 100);
    (0..step).for_each(|_| w.iter_mut().for_each(|x| *x += drift.weight() * 1e-4));
    safetensors(&[("w", &w), ("frozen", &Noise(7).weights(200))])
}

fn name(rank: u32) -> String {
    format!("model-{rank:05}.safetensors")
}

fn shard_of(session: &str, rank: u32, step: u32) -> ShardRequest {
    ShardRequest {
        session: session.to_owned(),
        rank,
        files: vec![memory(&name(rank), content(rank, step)), memory("config.json", b"{}")],
        ..ShardRequest::default()
    }
}

fn put(repo: &Repo, session: &str, rank: u32, step: u32) -> Result<Shard> {
    mdl_repo::put_shard(repo, &shard_of(session, rank, step), &Silent)
}

/// What ranks 0 to `ranks` had at a step, in the session "s".
fn put_all(repo: &Repo, ranks: u32, step: u32) {
    (0..ranks).for_each(|rank| drop(put(repo, "s", rank, step).expect("put")));
}

fn joining(session: &str, ranks: u32) -> JoinRequest {
    JoinRequest {
        session: session.to_owned(),
        ranks,
        commit: CommitRequest { message: "joined".to_owned(), step: Some(5), ..CommitRequest::default() },
    }
}

fn join(repo: &Repo, session: &str, ranks: u32) -> Result<Committed> {
    mdl_repo::join_shards(repo, &joining(session, ranks), &Silent)
}

fn commit(repo: &Repo, text: &str) -> Id {
    let request =
        CommitRequest { files: Some(vec![memory("x", text)]), message: text.to_owned(), ..CommitRequest::default() };
    mdl_repo::commit(repo, &request, &Silent).expect("commit").id
}

fn tip(repo: &Repo) -> Option<Id> {
    repo.refs().get(&RefName::branch("main").expect("a name")).expect("ref")
}

fn assert_sound(repo: &Repo, label: &str) {
    assert_eq!(mdl_repo::fsck(repo, false, &Silent).expect("fsck").problems, [], "{label}");
}

/// Checks that a commit holds what these ranks had at a step, byte for byte.
fn assert_holds(repo: &Repo, id: &Id, ranks: u32, step: u32) {
    let files = repo.odb().files(&repo.odb().commit(id).expect("commit").tree).expect("files");
    assert_eq!(files.len(), ranks as usize + 1);
    for rank in 0..ranks {
        let read = repo.odb().read_range(&files[&name(rank)], 0, u64::MAX).expect("read");
        assert!(read == content(rank, step), "rank {rank}");
    }
}

fn sessions(repo: &Repo) -> usize {
    mdl_repo::sessions(repo).expect("sessions").len()
}
