//! Two repositories that commit, push, fetch, tag and collect in any order.

use super::{
    Exact, MAIN, clone_of, collect, gives, goes_on, is_clean, open, pull, push_refs,
    run::{Run, fidelity, read},
};
use mdl_repo::Fidelity;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// By one side, which then sends.
    Commit(usize),
    Send(usize),
    Fetch(usize),
    Tag(usize, usize),
    Collect(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let side = 0usize..2;
    prop_oneof![
        4 => side.clone().prop_map(Act::Commit),
        3 => side.clone().prop_map(Act::Send),
        3 => side.clone().prop_map(Act::Fetch),
        1 => (side.clone(), 0usize..64).prop_map(|(s, n)| Act::Tag(s, n)),
        3 => side.prop_map(Act::Collect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6, max_shrink_iters: 30, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn no_order_of_transfers_and_collections_loses_a_version(acts in prop::collection::vec(act(), 6..20)) {
        let keep = "exact_latest = 1";
        let mut first = Run::new(keep);
        first.on(2);
        let second = goes_on(&first, clone_of(&first.p), keep);
        let mut sides = [first, second];
        // Versions are made where all before them are known.
        let mut all = sides[0].all.clone();
        // By a tag, and exact when they got it.
        let mut held = Vec::new();
        for (n, act) in acts.iter().enumerate() {
            let tip = |run: &Run| mdl_repo::resolve(&open(&run.p), "main").expect("main");
            match *act {
                Act::Commit(s) => {
                    if tip(&sides[s]) != all.last().expect("a version").id {
                        pull(&sides[s].p, &sides[1 - s].p);
                    }
                    let other = &sides[1 - s];
                    let (training, step) = if other.step > sides[s].step {
                        (other.training.clone(), other.step)
                    } else {
                        (sides[s].training.clone(), sides[s].step)
                    };
                    (sides[s].training, sides[s].step) = (training, step);
                    sides[s].p.reopen();
                    sides[s].on(1);
                    all.push(sides[s].all.last().expect("a version").clone());
                }
                Act::Send(s) => {
                    let refs = [(MAIN, Some(tip(&sides[s])))];
                    drop(push_refs(&sides[s].p, &sides[1 - s].p, &refs).expect("push"));
                }
                Act::Fetch(s) => {
                    let behind = mdl_repo::reaches(&open(&sides[1 - s].p), &tip(&sides[1 - s]), &tip(&sides[s]));
                    if behind.unwrap_or(false) {
                        pull(&sides[s].p, &sides[1 - s].p);
                    }
                }
                Act::Tag(s, v) => {
                    let v = &all[v % all.len()];
                    let repo = open(&sides[s].p);
                    if repo.odb().has(&v.id).expect("has") {
                        mdl_repo::create_tag(&repo, &format!("{s}-{n}"), &v.id, None, true).expect("tag");
                        let exact = read(&repo, &v.id).expect("read") == v.exact;
                        held.extend(exact.then(|| (s, v.clone())));
                    }
                }
                Act::Collect(s) => collect(&sides[s].p),
            }
            for (s, version) in &held {
                gives(&open(&sides[*s].p), version, Exact, &format!("{act:?}: tagged"));
            }
            for run in &sides {
                let repo = open(&run.p);
                is_clean(&repo);
                let at = all.iter().position(|v| v.id == tip(run)).expect("known");
                gives(&repo, &all[at], Exact, &format!("{act:?}: the newest"));
                for version in &all[..at] {
                    let file = read(&repo, &version.id).expect("read");
                    let want = if file == version.exact { Fidelity::Exact } else { Fidelity::Approximate };
                    assert!(file == version.exact || file == version.near, "{act:?}");
                    assert_eq!(fidelity(&repo, &version.id), want);
                }
            }
        }
    }
}
