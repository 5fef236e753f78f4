//! Versions in each state: exact and new, aged, collected, pruned after that, tagged before it aged and after.

use super::{Exact, Gone, Left, MAIN, Near, clone_of, collect, goes_on, holds, pull, push_refs, run::Run, send};
use crate::support::place;
use mdl_repo::{CommitRequest, Content, NewFile, PruneOptions, Retention, Silent};
use std::sync::Arc;

const WINDOW: &str = "exact_latest = 1";

/// What it holds of these, what others get of it, and what both hold once they have collected.
const HERE: [Left; 7] = [Gone, Near, Exact, Exact, Exact, Exact, Exact];
const SENT: [Left; 7] = [Gone, Near, Near, Exact, Exact, Near, Exact];

fn states() -> Run {
    let mut run = Run::new(WINDOW);
    run.on(3).collect();
    let rules = Retention::LatestN { n: 2 };
    mdl_repo::prune(&run.p.repo, None, &rules, &PruneOptions::default()).expect("prune");
    run.collect();
    run.on(1);
    mdl_repo::create_tag(&run.p.repo, "kept", &run.all[3].id, None, false).expect("tag");
    run.on(3);
    mdl_repo::create_tag(&run.p.repo, "late", &run.all[4].id, None, false).expect("tag");
    holds(&run.p, &run.all, &HERE);
    run
}

#[test]
fn a_clone_has_every_version_as_it_lasts() {
    let run = states();
    let clone = clone_of(&run.p);
    holds(&clone, &run.all, &SENT);
    holds(&run.p, &run.all, &HERE);
    // The marks came along, but for that of what a tag holds exact.
    let record = mdl_repo::pruned(&clone.repo).expect("the record");
    let aged: Vec<usize> = (0..7).filter(|n| record.aged(&run.all[*n].id).is_some()).collect();
    // The first one aged, too, before it was pruned.
    assert_eq!(aged, [0, 1, 2, 5]);
    assert!(record.get(&run.all[0].id).is_some() && record.iter().count() == 1);
    let sent = |id| mdl_repo::pruned(&run.p.repo).expect("the record").aged(id).cloned();
    assert!([1, 2, 5].iter().all(|n| record.aged(&run.all[*n].id).cloned() == sent(&run.all[*n].id)));
    for place in [&clone, &run.p] {
        collect(place);
        holds(place, &run.all, &SENT);
    }
    // A clone of the clone, and one of the collected original, have the same.
    for place in [&clone, &run.p] {
        let second = clone_of(place);
        collect(&second);
        holds(&second, &run.all, &SENT);
    }
}

#[test]
fn a_push_has_every_version_as_it_lasts() {
    let run = states();
    // Without its tag a version that the sender keeps arrives as it is there, and ages.
    let untagged = [Gone, Near, Near, Exact, Near, Near, Exact];
    for (names, sent, lasting) in
        [(vec!["refs/tags/kept", "refs/tags/late"], SENT, SENT), (vec!["refs/tags/kept"], SENT, untagged)]
    {
        let there = place();
        let at = |name: &str| if name.ends_with("kept") { run.all[3].id } else { run.all[4].id };
        let refs: Vec<_> = names.iter().map(|n| (*n, Some(at(n)))).chain([(MAIN, Some(run.all[6].id))]).collect();
        send(&run.p, &there, &refs);
        holds(&there, &run.all, &sent);
        collect(&there);
        holds(&there, &run.all, &lasting);
        holds(&run.p, &run.all, &HERE);
    }
}

#[test]
fn new_versions_go_either_way() {
    let mut here = states();
    let mut there = goes_on(&here, clone_of(&here.p), WINDOW);
    collect(&here.p);
    for round in 0..4 {
        let (from, to) = if round % 2 == 0 { (&mut here, &mut there) } else { (&mut there, &mut here) };
        from.on(2);
        if round == 1 {
            collect(&from.p);
        }
        // Both by fetching and by sending.
        if round < 2 {
            pull(&to.p, &from.p);
        } else {
            send(&from.p, &to.p, &[(MAIN, from.all.last().map(|v| v.id))]);
        }
        (to.all, to.training, to.step) = (from.all.clone(), from.training.clone(), from.step);
        let newest = to.all.last().expect("a version");
        super::gives(&super::open(&to.p), newest, Exact, "the newest");
        super::is_clean(&super::open(&to.p));
    }
    // Exact is what a name points at, one of another place's branch too.
    for run in [&mut here, &mut there] {
        run.p.reopen();
        run.on(1);
        collect(&run.p);
        let named: Vec<_> = run.p.repo.refs().list("refs/").expect("refs").into_iter().map(|(_, id)| id).collect();
        let left = |id| if named.contains(id) { Exact } else { Near };
        let left: Vec<Left> = run.all.iter().map(|v| left(&v.id)).collect();
        assert!(left.iter().filter(|l| **l == Exact).count() < 6, "{left:?}");
        holds(&run.p, &run.all, &[&[Gone], &left[1..]].concat());
    }
}

#[test]
fn what_is_exact_here_stays_until_we_collect_though_the_sender_has() {
    let mut run = Run::new(WINDOW);
    run.on(3);
    let (clone, tagged) = (clone_of(&run.p), clone_of(&run.p));
    mdl_repo::create_tag(&tagged.repo, "ours", &run.all[2].id, None, false).expect("tag");
    run.on(3).collect();
    for place in [&clone, &tagged] {
        pull(place, &run.p);
        holds(place, &run.all, &[Near, Near, Exact, Near, Near, Exact]);
    }
    // The branch here stood on the third when the others came; it is noted with what comes next.
    run.on(1).collect();
    for (place, third) in [(&clone, Near), (&tagged, Exact)] {
        pull(place, &run.p);
        collect(place);
        let left = [Near, Near, third, Near, Near, Exact, Exact];
        super::is_clean(&super::open(place));
        for n in [0, 1, 2, 3, 4, 6] {
            super::gives(&super::open(place), &run.all[n], left[n], &format!("version {n}"));
        }
    }
}

#[test]
fn what_one_side_has_collected_comes_with_a_version_that_needs_it() {
    // A lossless version shares its tensors with an aged one, whose exact contents one side has collected.
    for by_push in [true, false] {
        let mut run = Run::new(WINDOW);
        run.on(4);
        let there = place();
        send(&run.p, &there, &[(MAIN, Some(run.all[3].id))]);
        collect(&there);
        holds(&there, &run.all, &[Near, Near, Near, Exact]);
        mdl_repo::create_branch(&run.p.repo, "side", &run.all[1].id, false).expect("branch");
        let file = |rel: &str, bytes: Vec<u8>| NewFile {
            rel: rel.to_owned(),
            executable: false,
            content: Content::Memory(Arc::new(bytes)),
        };
        let files = vec![file(super::run::FILE, run.all[1].exact.clone()), file("README.md", b"shared".to_vec())];
        let request = CommitRequest { files: Some(files), branch: Some("side".to_owned()), ..CommitRequest::default() };
        let done = mdl_repo::commit(&run.p.repo, &request, &Silent).expect("commit");
        if by_push {
            send(&run.p, &there, &[("refs/heads/side", Some(done.id))]);
        } else {
            pull(&there, &run.p);
        }
        for place in [&there, &run.p] {
            collect(place);
            let repo = super::open(place);
            assert!(super::read(&repo, &done.id).expect("read") == run.all[1].exact);
            super::gives(&repo, &run.all[3], Exact, "the newest");
            super::is_clean(&repo);
        }
    }
}

#[test]
fn what_comes_approximate_later_is_no_longer_pruned() {
    let mut run = Run::new(WINDOW);
    run.on(4);
    let (thinned, there) = (clone_of(&run.p), place());
    let rules = Retention::LatestN { n: 1 };
    mdl_repo::prune(&thinned.repo, None, &rules, &PruneOptions::default()).expect("prune");
    collect(&thinned);
    holds(&thinned, &run.all, &[Gone, Gone, Gone, Exact]);
    send(&thinned, &there, &[("refs/heads/a", Some(run.all[3].id))]);
    holds(&there, &run.all, &[Gone, Gone, Gone, Exact]);
    send(&thinned, &there, &[("refs/heads/a", None)]);
    send(&run.p, &there, &[(MAIN, Some(run.all[3].id))]);
    holds(&there, &run.all, &[Near, Near, Near, Exact]);
    collect(&there);
    holds(&there, &run.all, &[Near, Near, Near, Exact]);
}

#[test]
fn a_tag_on_an_aged_version_brings_what_is_there() {
    let mut run = Run::new(WINDOW);
    run.on(2).collect();
    run.on(2);
    for (n, left) in [(0usize, Near), (1, Exact)] {
        mdl_repo::create_tag(&run.p.repo, &format!("t{n}"), &run.all[n].id, None, false).expect("tag");
        let there = place();
        let name = format!("refs/tags/t{n}");
        send(&run.p, &there, &[(&name, Some(run.all[n].id))]);
        super::gives(&super::open(&there), &run.all[n], left, &name);
        collect(&there);
        super::gives(&super::open(&there), &run.all[n], left, &name);
        super::is_clean(&super::open(&there));
        // Of what there is already nothing comes anew.
        assert!(push_refs(&run.p, &there, &[(&name, Some(run.all[n].id))]).expect("push").refs.is_empty());
    }
}

#[test]
fn a_name_for_a_version_that_is_there_already_brings_its_exact_contents() {
    let mut run = Run::new(WINDOW);
    let there = place();
    run.on(3);
    let tip = run.all[2].id;
    send(&run.p, &there, &[(MAIN, Some(tip))]);
    holds(&there, &run.all, &[Near, Near, Exact]);
    mdl_repo::create_tag(&run.p.repo, "t", &run.all[1].id, None, false).expect("tag");
    send(&run.p, &there, &[("refs/tags/t", Some(run.all[1].id))]);
    holds(&there, &run.all, &[Near, Exact, Exact]);
    collect(&there);
    holds(&there, &run.all, &[Near, Exact, Exact]);
    // Where the exact contents are gone here, too, the name is all that arrives.
    collect(&run.p);
    mdl_repo::create_tag(&run.p.repo, "late", &run.all[0].id, None, false).expect("tag");
    send(&run.p, &there, &[("refs/tags/late", Some(run.all[0].id))]);
    holds(&there, &run.all, &[Near, Exact, Exact]);
}
