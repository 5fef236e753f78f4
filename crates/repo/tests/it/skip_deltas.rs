//! Skip deltas: chains stay short however long a history gets, and the cache of decoded tensors is never believed.

use crate::support::{Noise, Place, place, safetensors};
use mdl_objects::Id;
use mdl_repo::Repo;
use mdl_store::write::{MOST_PLACES, chain_len};
use std::{fs, path::PathBuf};

const FILE: &str = "model.safetensors";

/// A tensor that moves a little with every version, and one that never does.
fn version(n: usize) -> Vec<u8> {
    let mut noise = Noise(7);
    let mut moving: Vec<f32> = (0..6000).map(|_| noise.weight()).collect();
    let frozen: Vec<f32> = (0..5000).map(|_| noise.weight()).collect();
    for step in 0..n {
        let mut noise = Noise(step as u64);
        moving.iter_mut().for_each(|v| *v += noise.weight() * 1e-4);
    }
    safetensors(&[("moving", &moving), ("frozen", &frozen)])
}

fn tensor(repo: &Repo, rev: &str, name: &str) -> Id {
    let id = mdl_repo::resolve(repo, rev).expect("revision");
    let files = repo.odb().files(&repo.odb().commit(&id).expect("commit").tree).expect("files");
    let manifest = repo.odb().manifest(&files[FILE].id).expect("manifest");
    manifest.tensors.iter().find(|t| t.name == name).expect("tensor").id
}

fn depth(repo: &Repo, rev: &str) -> usize {
    let id = tensor(repo, rev, "moving");
    repo.odb().tensor(&id).expect("tensor").chain_len()
}

fn history(versions: usize) -> Place {
    let p = place();
    for n in 0..versions {
        p.write(FILE, &version(n));
        p.commit(&format!("version {n}"));
    }
    p
}

fn cached(p: &Place) -> Vec<PathBuf> {
    let dir = p.path().join(".mdl/cache");
    let files = fs::read_dir(dir).into_iter().flatten().map(|f| f.expect("file").path());
    // What else is there has no id as its name.
    files.filter(|path| path.file_name().is_some_and(|name| name.len() == 64)).collect()
}

#[test]
fn a_chain_is_as_long_as_the_digits_of_its_place_say() {
    let most = usize::from(MOST_PLACES);
    let p = history(most + 4);
    for n in 0..most + 4 {
        let rev = format!("main~{}", most + 3 - n);
        // After the last place a tensor is stored whole, and counting begins again.
        let place = if n > most { n - most - 1 } else { n };
        assert_eq!(depth(&p.repo, &rev), usize::from(chain_len(place as u8)), "version {n}");
        assert_eq!(p.file_at(&rev, FILE), version(n), "version {n}");
    }
}

#[test]
fn a_lower_limit_of_depth_is_kept() {
    let mut p = place();
    p.repo.set_config("delta.max_depth", Some("2")).expect("set");
    for n in 0..24 {
        p.write(FILE, &version(n));
        p.commit("x");
        assert!(depth(&p.repo, "main") <= 2, "version {n}");
    }
    (0..24).for_each(|n| assert_eq!(p.file_at(&format!("main~{}", 23 - n), FILE), version(n)));
}

#[test]
fn a_damaged_or_foreign_cache_costs_time_only() {
    for harm in [0, 1, 2, 3] {
        let p = history(6);
        let files = cached(&p);
        assert!(files.len() >= 7, "six contents of one tensor and one of the other are kept: {files:?}");
        for file in &files {
            let mut bytes = fs::read(file).expect("cached");
            match harm {
                0 => bytes[100] ^= 1,
                1 => bytes.truncate(17),
                2 => bytes.fill(0),
                _ => bytes.extend([0; 64]),
            }
            fs::write(file, bytes).expect("harmed");
        }
        for n in 6..9 {
            p.write(FILE, &version(n));
            p.commit("x");
        }
        (0..9).for_each(|n| assert_eq!(p.file_at(&format!("main~{}", 8 - n), FILE), version(n), "harm {harm}"));
        // What was damaged was noticed, and is whole again once it was needed.
        let base = tensor(&p.repo, "main~4", "moving");
        let len = fs::metadata(p.path().join(".mdl/cache").join(base.to_hex())).map(|m| m.len());
        assert_eq!(len.ok(), Some(24_000), "harm {harm}");
    }
}

#[test]
fn a_tensor_that_its_base_did_not_help_takes_no_room_in_the_cache() {
    let p = place();
    let other = |seed| {
        let mut noise = Noise(seed);
        (0..6000).map(|_| noise.weight()).collect::<Vec<f32>>()
    };
    for seed in 1..=3 {
        p.write(FILE, &safetensors(&[("moving", &other(seed))]));
        p.commit("other numbers");
    }
    // The first might have been of use.
    let first = tensor(&p.repo, "main~2", "moving").to_hex();
    let kept = cached(&p);
    assert!(kept.len() == 1 && kept[0].ends_with(&first), "{kept:?}");
}

#[test]
fn the_cache_does_not_hide_damage_from_a_check() {
    let p = history(2);
    let packs = fs::read_dir(p.path().join(".mdl/packs")).expect("packs");
    for pack in packs.map(|f| f.expect("pack").path()) {
        let mut bytes = fs::read(&pack).expect("pack");
        bytes[64] ^= 1;
        fs::write(&pack, bytes).expect("damaged");
    }
    let report = mdl_repo::fsck(&p.repo, false, &mdl_repo::Silent).expect("fsck");
    assert!(!report.problems.is_empty());
}

#[test]
fn the_cache_holds_nothing_that_a_collection_deleted() {
    let p = history(3);
    p.write(FILE, &version(3));
    let side = mdl_repo::CommitRequest { branch: Some("side".to_owned()), ..mdl_repo::CommitRequest::default() };
    mdl_repo::commit(&p.repo, &side, &mdl_repo::Silent).expect("commit");
    let gone = tensor(&p.repo, "side", "moving");
    let kept = tensor(&p.repo, "main", "moving");
    let name = |id: &Id| p.path().join(".mdl/cache").join(id.to_hex());
    assert!(name(&gone).is_file() && name(&kept).is_file());
    mdl_repo::delete_branch(&p.repo, "side", true, &mdl_repo::Silent).expect("deleted");
    let now = mdl_repo::GcOptions { prune_now: true, ..mdl_repo::GcOptions::default() };
    mdl_repo::gc(&p.repo, &now, &mdl_repo::Silent).expect("gc");
    assert!(!p.repo.odb().contains(&gone).expect("look"), "the test needs something to be collected");
    assert!(!name(&gone).exists() && name(&kept).is_file());
}

#[test]
fn the_cache_keeps_to_its_size() {
    let mut p = history(3);
    let held = |p: &Place| cached(p).iter().map(|f| fs::metadata(f).expect("file").len()).sum::<u64>();
    assert!(held(&p) > 0);
    p.repo.set_config("cache.size", Some("64KiB")).expect("set");
    p.reopen();
    for n in 3..9 {
        p.write(FILE, &version(n));
        p.commit("x");
    }
    assert!(held(&p) <= 64 << 10, "{}", held(&p));
    let before = held(&p);
    p.repo.set_config("cache.size", Some("32KiB")).expect("set");
    assert!(before > 32 << 10 && held(&p) <= 32 << 10, "{before} became {}", held(&p));
    p.repo.set_config("cache.size", Some("0")).expect("set");
    assert!(!p.path().join(".mdl/cache").exists(), "what was kept goes at once");
    for n in 9..11 {
        p.write(FILE, &version(n));
        p.commit("x");
        p.reopen();
    }
    assert!(!p.path().join(".mdl/cache").exists(), "nothing more is kept");
    // As a process that began before the change leaves it.
    let late = p.path().join(".mdl/cache").join("ab".repeat(32));
    fs::create_dir_all(late.parent().expect("a directory")).expect("a directory");
    fs::write(&late, [7; 20_000]).expect("a file");
    mdl_repo::gc(&p.repo, &mdl_repo::GcOptions::default(), &mdl_repo::Silent).expect("gc");
    assert!(!late.exists());
}
