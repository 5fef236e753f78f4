//! Quantised tensors in a repository: on a lattice where a hint says so, against parent and grandparent, through
//! compaction, collection and fsck. The schemes themselves are tested in the codec.

use super::setup::*;
use mdl_codec::{
    Dtype, SEGMENT_BYTES,
    quant::lattice::{Lattice, Outcome, Params},
};
use mdl_objects::{Id, Kind, tensor_id};
use mdl_repo::{
    CommitRequest, CompactOptions, Hints, PackApart, Repo, Silent, WriteTransaction,
    pack::NewObject,
    storage::{MemoryStorage, Storage},
};
use std::{collections::BTreeMap, sync::Arc};
use tempfile::TempDir;

const FILE: &str = "sub/model.safetensors";

/// A version of two tensors, one of several segments, as a lattice has them; and the hints.
fn versions(n: usize) -> (Vec<Version>, Hints) {
    let mut noise = Noise(5);
    let mut hints = Hints::default();
    let mut tensors: Vec<(&str, Vec<f32>)> =
        [("long", SEGMENT_BYTES / 4 + 300_000), ("short", 700)].map(|(name, len)| (name, noise.even(len))).to_vec();
    let params = Params { step: -160, seed: Some(11), ..Params::default() };
    for (name, values) in &tensors {
        let lattice = Lattice::new(&params, Dtype::F32, &[values.len()]).expect("lattice");
        hints.insert(FILE, *name, Arc::new(lattice));
    }
    let quantised = |values: &[f32]| -> Vec<f32> {
        let lattice = Lattice::new(&params, Dtype::F32, &[values.len()]).expect("lattice");
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = vec![0; raw.len()];
        assert_eq!(lattice.quantise(0, &raw, &mut out), Ok(Outcome::Quantised));
        out.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4"))).collect()
    };
    let all = (0..n)
        .map(|_| {
            let now: Vec<(&str, Vec<f32>)> = tensors.iter().map(|(n, v)| (*n, quantised(v))).collect();
            for (_, values) in &mut tensors {
                let moves = noise.even(values.len());
                values.iter_mut().zip(moves).for_each(|(v, m)| *v += m * 0.003);
            }
            let now: Vec<(&str, &[f32])> = now.iter().map(|(n, v)| (*n, v.as_slice())).collect();
            Version::from([(FILE.to_owned(), safetensors(&now))])
        })
        .collect();
    (all, hints)
}

fn commit_with(repo: &Repo, version: &Version, hints: &Hints) -> (Id, BTreeMap<String, (String, u64)>) {
    let dir = TempDir::new().expect("temp dir");
    write(version, dir.path());
    let request =
        CommitRequest { source: Some(dir.path().to_owned()), hints: hints.clone(), ..CommitRequest::default() };
    let done = mdl_repo::commit(repo, &request, &Silent).expect("commit");
    let seen = |t: mdl_repo::TensorReport| (t.name, (t.scheme, t.stored));
    (done.id, done.report.tensors.into_iter().map(seen).collect())
}

fn schemes(repo: &Repo, id: &Id) -> BTreeMap<String, Vec<String>> {
    let files = repo.odb().files(&repo.odb().commit(id).expect("commit").tree).expect("files");
    let manifest = repo.odb().manifest(&files[FILE].id).expect("manifest");
    let of = |t: mdl_objects::TensorRef| {
        let reader = repo.odb().tensor(&t.id).expect("tensor");
        let all = (0..reader.segments()).map(|i| reader.scheme(i).expect("scheme").name().to_owned());
        (t.name, all.collect())
    };
    manifest.tensors.into_iter().map(of).collect()
}

#[test]
fn a_hint_makes_a_lattice_and_compaction_needs_none() {
    let (_, repo) = fresh();
    let (all, hints) = versions(4);
    let mut ids = Vec::new();
    let mut stored = Vec::new();
    for version in &all {
        let (id, seen) = commit_with(&repo, version, &hints);
        ids.push(id);
        stored.push(seen);
    }
    let found = |i: usize, name: &str| stored[i][name].0.clone();
    let schemes_of = ["lattice", "lattice-moves", "lattice-moves", "lattice-moves"];
    assert_eq!([0, 1, 2, 3].map(|i| found(i, "long")), schemes_of);
    assert_eq!(found(1, "short"), "lattice-moves");
    assert!(stored[1]["long"].1 * 2 < stored[0]["long"].1);
    // Without the hint the same tensors take more.
    let (_, other) = fresh();
    let (_, plain) = commit_with(&other, &all[0], &Hints::default());
    assert!(plain["long"].1 > stored[0]["long"].1 * 2);

    let report = mdl_repo::compact(&repo, &CompactOptions { dry_run: false }, &Silent).expect("compact");
    assert_eq!((report.tensors_reencoded, report.deepest_after), (2, 2));
    assert!(schemes(&repo, &ids[3])["long"].iter().all(|s| s == "lattice-moves"));
    ids.iter().zip(&all).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    // The same again is nothing new.
    let (id, seen) = commit_with(&repo, &all[2], &Hints::default());
    assert!(seen.is_empty());
    assert_version(&repo, &id, &all[2]);
}

/// Versions of one tensor of few values, few of which change.
fn palettes(n: usize) -> Vec<Version> {
    let mut noise = Noise(3);
    let mut levels: Vec<u8> = (0..20_000).map(|_| (noise.next() >> 40) as u8 % 13).collect();
    (0..n)
        .map(|_| {
            for level in &mut levels {
                let r = noise.next() >> 32;
                if r.is_multiple_of(10) {
                    *level = (*level + (r >> 8) as u8 % 2 * 2 + 12) % 13;
                }
            }
            let values: Vec<f32> = levels.iter().map(|l| (f32::from(*l) - 6.0) / 64.0).collect();
            Version::from([(FILE.to_owned(), safetensors(&[("few", &values)]))])
        })
        .collect()
}

fn tensor(repo: &Repo, commit: &Id) -> Id {
    let files = repo.odb().files(&repo.odb().commit(commit).expect("commit").tree).expect("files");
    repo.odb().manifest(&files[FILE].id).expect("manifest").tensors[0].id
}

fn record(repo: &Repo, id: &Id) -> mdl_repo::pack::Record {
    repo.odb().locate(id).expect("locate").expect("tensor").record
}

fn committed(n: usize) -> (MemoryStorage, Repo, Vec<Version>, Vec<Id>) {
    let (storage, repo) = fresh();
    let all = palettes(n);
    let ids: Vec<Id> = all.iter().map(|v| commit_with(&repo, v, &Hints::default()).0).collect();
    (storage, repo, all, ids)
}

/// The same as one difference after the other.
fn committed_in_line(n: usize) -> (MemoryStorage, Repo, Vec<Version>, Vec<Id>) {
    let (storage, repo) = fresh();
    let all = palettes(n);
    let ids = all.iter().map(|v| commit_in_line(&repo, "main", v)).collect();
    (storage, repo, all, ids)
}

#[test]
fn a_delta_knows_its_grandparent() {
    let (storage, repo, all, ids) = committed(5);
    let tensors: Vec<Id> = ids.iter().map(|id| tensor(&repo, id)).collect();
    let records: Vec<_> = tensors.iter().map(|id| record(&repo, id)).collect();
    let bases = |i: usize| (records[i].depth, records[i].base, records[i].grandparent);
    assert_eq!(bases(0), (0, None, None));
    assert_eq!(bases(1), (1, Some(tensors[0]), None));
    // The one four places on stands on the first, which has no base.
    assert_eq!(bases(4), (4, Some(tensors[0]), None));
    for i in 2..4 {
        let (base, grandparent) = (Some(tensors[i - 1]), Some(tensors[i - 2]));
        assert_eq!(bases(i), (i as u8, base, grandparent));
        assert_eq!(schemes(&repo, &ids[i])["few"], ["palette-delta-2"]);
    }
    // A part of a tensor is read the same way.
    let part = repo.odb().tensor(&tensors[4]).expect("tensor").range(40, 400).expect("range");
    assert_eq!(part, all[4][FILE][all[4][FILE].len() - 80_000 + 40..][..400]);
    assert_clean(&open(storage));
}

#[test]
fn a_base_that_was_stored_anew_leaves_its_grandparent_behind() {
    let (storage, repo, all, ids) = committed_in_line(9);
    move_ref(&repo, "refs/heads/side", Some(ids[6]));
    let report = mdl_repo::compact(&repo, &CompactOptions { dry_run: false }, &Silent).expect("compact");
    // The tips go next to the first one; quantised contents are not laid out as skip deltas.
    assert_eq!((report.tensors_reencoded, report.deepest_before), (2, 8));
    // The base of version 7 is a delta to the first now, its grandparent the fifth delta as before.
    let tensors: Vec<Id> = ids.iter().map(|id| tensor(&repo, id)).collect();
    assert_eq!(record(&repo, &tensors[6]).base, Some(tensors[0]));
    assert_eq!(record(&repo, &tensors[7]).grandparent, Some(tensors[5]));
    assert_eq!(report.deepest_after, 6);
    ids.iter().zip(&all).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&open(storage.clone()));
    let again = mdl_repo::compact(&repo, &CompactOptions { dry_run: false }, &Silent).expect("compact");
    assert_eq!((again.tensors_reencoded, again.packs_after), (0, again.packs_before));
    // What comes next stands on the tip, whose own base is the first version.
    let next = palettes(10).remove(9);
    let (id, _) = commit_with(&repo, &next, &Hints::default());
    assert_eq!(record(&repo, &tensor(&repo, &id)).grandparent, Some(tensors[0]));
    assert_version(&repo, &id, &next);
    assert_clean(&open(storage));
}

#[test]
fn grandparents_that_no_version_names_stay() {
    let (_storage, repo, all, ids) = committed(6);
    let id = squash(&repo, ids[5]);
    assert!(mdl_repo::gc(&repo, &NOW, &Silent).expect("gc").bytes_freed > 0);
    assert_version(&repo, &id, &all[5]);
    assert_clean(&repo);
}

#[test]
fn a_damaged_grandparent_is_found() {
    let (storage, repo, all, ids) = committed(4);
    let at = repo.odb().locate(&tensor(&repo, &ids[1])).expect("locate").expect("tensor");
    let key = at.pack.id.key();
    let mut bytes = storage.get(&key).expect("get").expect("pack");
    bytes[at.record.offset as usize + 300] ^= 4;
    storage.put(&key, &bytes).expect("put");
    let repo = open(storage);
    assert_version(&repo, &ids[0], &all[0]);
    (1..4).for_each(|i| assert!(checkout(&repo, &ids[i]).is_err()));
    let report = fsck(&repo);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    let hit: std::collections::BTreeSet<Id> = report.problems[0].affected.iter().map(|a| a.commit).collect();
    assert_eq!(hit, ids[1..].iter().copied().collect());
}

#[test]
fn grandparents_that_go_round_or_are_missing_are_refused() {
    let (storage, repo, _, ids) = committed(3);
    let (sound, bytes) = (tensor(&repo, &ids[1]), vec![7u8; 64]);
    let own = tensor_id(Dtype::U8, &[64], &bytes);
    let other = tensor_id(Dtype::U8, &[64], &[8; 64]);
    let whole = [&[0u8][..], &bytes].concat();
    let new =
        |id, depth, base, grandparent| NewObject { id, kind: Kind::Tensor, depth, base, grandparent, logical: 64 };
    // Itself; one that is not there; one of another length; one that is as deep; and two that need each other.
    let cases = [
        vec![new(own, 3, Some(sound), Some(own))],
        vec![new(own, 3, Some(sound), Some(other))],
        vec![new(own, 3, Some(sound), Some(sound))],
        vec![new(own, 1, Some(sound), Some(sound))],
        vec![new(own, 9, Some(sound), Some(other)), new(other, 8, Some(sound), Some(own))],
    ];
    for case in cases {
        let copy = duplicate(&storage);
        let repo = open(copy.clone());
        for object in case {
            let mut header = vec![2, 3, Dtype::U8.code(), 1, 64];
            [object.base, object.grandparent].iter().flatten().for_each(|id| header.extend_from_slice(id.as_bytes()));
            header.extend((whole.len() as u32).to_le_bytes());
            let len = (header.len() as u32).to_le_bytes();
            let mut pack = PackApart::new(repo.storage()).expect("pack");
            pack.add(object, &[whole.as_slice(), &header, &len].concat()).expect("add");
            pack.finish(&WriteTransaction::begin(&repo).expect("lock")).expect("finish");
        }
        let repo = open(copy);
        assert!(repo.odb().tensor(&own).is_err());
        assert!(!fsck(&repo).problems.is_empty());
        assert!(repo.odb().tensor(&sound).is_ok());
    }
}
