//! Tensors on a lattice in a repository: stored so where a hint says so, and encoded anew without it. Neighbours:
//! `CommitRequest::hints`, compaction. What a lattice is, the codec's tests look at.

use crate::support::*;
use mdl_codec::{
    Dtype, SEGMENT_BYTES,
    quant::lattice::{Lattice, Outcome, Params},
};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, CompactOptions, Hints, Repo, Silent};
use std::collections::BTreeMap;
use tempfile::TempDir;

const FILE: &str = "sub/model.safetensors";

/// A version of two tensors, one of several segments, as a lattice has them; and the hints.
fn versions(n: usize) -> (Vec<Version>, Hints) {
    let mut noise = Noise(5);
    let mut hints = Hints::default();
    let mut tensors: Vec<(&str, Vec<f32>)> = [("long", SEGMENT_BYTES / 4 + 1000), ("short", 700)]
        .map(|(name, len)| (name, noise.weights(len)))
        .to_vec();
    let params = Params {
        step: -160,
        seed: Some(11),
        ..Params::default()
    };
    for (name, _) in &tensors {
        hints.insert(FILE, *name, params.clone());
    }
    let quantised = |values: &[f32]| -> Vec<f32> {
        let lattice = Lattice::new(&params, Dtype::F32, &[values.len()]).expect("lattice");
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = vec![0; raw.len()];
        assert_eq!(lattice.quantise(0, &raw, &mut out), Ok(Outcome::Quantised));
        out.chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().expect("4")))
            .collect()
    };
    let all = (0..n)
        .map(|_| {
            let now: Vec<(&str, Vec<f32>)> = tensors.iter().map(|(n, v)| (*n, quantised(v))).collect();
            for (_, values) in &mut tensors {
                let moves = noise.weights(values.len());
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
    let request = CommitRequest {
        source: Some(dir.path().to_owned()),
        hints: hints.clone(),
        ..CommitRequest::default()
    };
    let done = repo.commit(&request, &Silent).expect("commit");
    let seen = |t: mdl_repo::TensorReport| (t.name, (t.scheme, t.stored));
    (done.id, done.report.tensors.into_iter().map(seen).collect())
}

fn schemes(repo: &Repo, id: &Id) -> BTreeMap<String, Vec<String>> {
    let files = repo
        .odb()
        .files(&repo.odb().commit(id).expect("commit").tree)
        .expect("files");
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
    assert_eq!([0, 1].map(|i| found(i, "long")), ["lattice", "lattice-delta"]);
    assert_eq!(found(1, "short"), "lattice-delta");
    assert!(stored[1]["long"].1 * 2 < stored[0]["long"].1);
    // Without the hint the same tensors take more.
    let (_, other) = fresh();
    let (_, plain) = commit_with(&other, &all[0], &Hints::default());
    assert!(plain["long"].1 > stored[0]["long"].1 * 2);

    let report = repo
        .compact(&CompactOptions { dry_run: false }, &Silent)
        .expect("compact");
    assert_eq!((report.tensors_reencoded, report.deepest_after), (2, 2));
    assert!(schemes(&repo, &ids[3])["long"].iter().all(|s| s == "lattice-delta"));
    ids.iter().zip(&all).for_each(|(id, v)| assert_version(&repo, id, v));
    assert_clean(&repo);
    // The same again is nothing new.
    let (id, seen) = commit_with(&repo, &all[2], &Hints::default());
    assert!(seen.is_empty());
    assert_version(&repo, &id, &all[2]);
}
