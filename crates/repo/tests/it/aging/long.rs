//! Long histories: what the tenth and the thirtieth version give, and maintenance of all of them.

use super::run::{Run, Version, is_clean, judged};
use crate::support::engine;
use mdl_repo::{
    CompactOptions, Level, PruneOptions, Repo, Retention, Silent,
    storage::{MemoryStorage, Storage},
};
use std::sync::Arc;

fn compact(run: &Run) {
    mdl_repo::compact(&run.p.repo, &CompactOptions::default(), &Silent).expect("compact");
}

/// Weighs what other rules would do.
fn weigh(run: &Run) {
    let stats = mdl_repo::stats(&run.p.repo, &Silent).expect("stats");
    assert!(stats.depths.iter().sum::<u64>() > 0);
    let dry = PruneOptions { dry_run: true, to: Level::Gone };
    let report = mdl_repo::prune(&run.p.repo, None, &Retention::LatestN { n: 3 }, &dry).expect("prune");
    assert_eq!((report.kept.len(), report.pruned.len()), (3, run.all.len() - 3));
    assert!(report.freed_bytes > 0);
}

fn same(a: &[Version], b: &[Version]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| a.exact == b.exact && a.near == b.near));
}

#[test]
fn the_tenth_and_the_thirtieth_version_of_a_run() {
    let (mut swept, mut full) = (Run::new("exact_latest = 1"), Run::new("exact_latest = 1"));
    for n in 1..=30usize {
        swept.on(1);
        full.on(1);
        if n % 7 == 0 {
            swept.collect();
        }
        if n != 10 && n != 30 {
            continue;
        }
        let exact = if n == 10 { 6..n } else { 27..n };
        swept.are_exact(&exact.collect::<Vec<_>>());
        full.are_exact(&(0..n).collect::<Vec<_>>());
        [&swept, &full].into_iter().for_each(weigh);
    }
    same(&swept.all, &full.all);

    // Compacted while exact contents are there that will go.
    compact(&full);
    full.are_exact(&(0..30).collect::<Vec<_>>());
    let report = full.collect();
    assert_eq!(report.aged, 29);
    for run in [&swept, &full] {
        run.collect();
        run.are_exact(&[29]);
        compact(run);
        run.are_exact(&[29]);
        run.collect();
        run.are_exact(&[29]);
        weigh(run);
        assert_eq!(run.collect().bytes_freed, 0);
        assert!(run.all.iter().all(|v| judged(&run.p.repo, &v.id) == v.near), "what was judged is what stands");
    }
    // It goes on.
    for run in [&mut swept, &mut full] {
        run.on(2).collect();
        run.are_exact(&[31]);
    }
    same(&swept.all, &full.all);
}

#[test]
fn another_handle_and_a_copy_read_the_same() {
    let mut run = Run::new("exact_latest = 1");
    run.on(2).collect();
    run.on(2);
    mdl_repo::create_tag(&run.p.repo, "t", &run.all[2].id, None, false).expect("tag");
    let storage = MemoryStorage::new();
    mdl_repo::copy_to(&run.p.repo, &storage, &Silent).expect("copy");
    let copy = Repo::with_storage(Arc::new(storage) as Arc<dyn Storage>, engine(), None, None, None).expect("open");
    let open = Repo::open(run.p.path(), engine()).expect("open");
    for repo in [&copy, &open] {
        for (n, version) in run.all.iter().enumerate() {
            version.gives(repo, n > 0, &format!("version {n}"));
        }
        is_clean(repo);
    }
    for repo in [&open, &copy] {
        mdl_repo::gc(repo, &super::run::NOW, &Silent).expect("gc");
        for (n, version) in run.all.iter().enumerate() {
            version.gives(repo, n > 1, &format!("version {n}"));
        }
        is_clean(repo);
    }
}

#[test]
fn what_is_stored_for_a_version_shrinks_to_its_approximation() {
    let (mut windowed, mut bare) = (Run::new("exact_latest = 1"), Run::new("exact_latest = 0"));
    let stored = |run: &Run| run.collect().bytes_after;
    let exact_bytes = |run: &mut Run| {
        let version = run.commit(mdl_repo::CommitRequest::default());
        let commit = run.p.repo.odb().commit(&version.id).expect("commit");
        let quality = mdl_repo::Quality::from_commit(&commit).expect("a record").expect("lossy");
        (quality.exact_bytes, commit.summary.stored_bytes)
    };
    for _ in 0..6 {
        let (exact, all) = exact_bytes(&mut windowed);
        assert!(exact.is_some_and(|exact| exact > 0 && exact < all), "{exact:?} of {all}");
        assert_eq!(exact_bytes(&mut bare).0, None);
    }
    // Beside what a run without exact versions takes there is one exact copy, and little else.
    let (windowed_bytes, bare_bytes) = (stored(&windowed), stored(&bare));
    let one = windowed.all[5].exact.len() as u64;
    assert!(windowed_bytes < bare_bytes + one + one / 2, "{windowed_bytes} beside {bare_bytes}, a copy has {one}");
}
