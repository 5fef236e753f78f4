//! Restarts: from the newest version a run goes on bit for bit, and so do its approximations.

use super::run::{FILE, Run, Says, Version, read};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, Direction, LossyRequest, Quality};

/// Commits under the built-in policy, judged by what sees nothing.
fn commit(run: &mut Run, resumed_from: Option<Id>) -> Version {
    let mut says = Says(Some(2.0 - 0.01 * run.step as f64));
    let mut lossy = LossyRequest {
        policy: mdl_repo::policy(&run.p.repo, "lossy").expect("built in"),
        evaluator: Some(&mut says),
        direction: Direction::LowerIsBetter,
        grads: None,
        since: None,
    };
    run.commit_with(CommitRequest { resumed_from, ..CommitRequest::default() }, &mut lossy)
}

/// Root directories of a version, the exact one and the approximation's, and what its search left for the next.
fn made(run: &Run, version: &Version) -> (Id, Option<Id>, String) {
    let commit = run.p.repo.odb().commit(&version.id).expect("commit");
    let quality = Quality::from_commit(&commit).expect("a record").expect("lossy");
    (commit.tree, commit.approximation, format!("{} {:?}", quality.configuration, quality.bounds))
}

#[test]
fn a_restart_from_the_newest_version_goes_on_as_if_nothing_had_happened() {
    let (mut run, mut restarted) = (Run::new(""), Run::new(""));
    let mut from = None;
    for n in 0..9 {
        commit(&mut run, None);
        commit(&mut restarted, from.take());
        let [a, b] = [&run, &restarted].map(|r| made(r, &r.all[n]));
        assert!(a == b && a.1.is_some(), "version {n}: {a:?} {b:?}");
        if n % 3 == 2 {
            // The machine dies; what it had is what the repository gives.
            restarted.collect();
            restarted.p.reopen();
            let newest = mdl_repo::resolve(&restarted.p.repo, "main").expect("main");
            let file = read(&restarted.p.repo, &newest).expect("read");
            assert!(file == restarted.all[n].exact && file == run.all[n].exact, "bit for bit");
            from = Some(newest);
        }
    }
    restarted.collect();
    restarted.are_exact(&[8]);
    run.are_exact(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(run.all.iter().zip(&restarted.all).all(|(a, b)| a.near == b.near));
    let resumed = restarted.p.repo.odb().commit(&restarted.all[3].id).expect("commit").resumed_from;
    assert_eq!(resumed, Some(restarted.all[2].id));
}

#[test]
fn a_restart_from_an_aged_version_goes_on_from_what_it_gives() {
    for collected in [false, true] {
        let mut run = Run::new("");
        (0..4).for_each(|_| drop(commit(&mut run, None)));
        if collected {
            run.collect();
        }
        let from = run.all[1].id;
        let given = read(&run.p.repo, &from).expect("read");
        assert_eq!(given == run.all[1].exact, !collected);
        mdl_repo::create_branch(&run.p.repo, "again", &from, false).expect("branch");
        // The same is committed again, then it trains on.
        run.p.write(FILE, &given);
        let request = CommitRequest {
            source: Some(run.p.path().join(FILE)),
            branch: Some("again".to_owned()),
            step: Some(9),
            resumed_from: Some(from),
            ..CommitRequest::default()
        };
        let mut says = Says(Some(2.0));
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&run.p.repo, "lossy").expect("built in"),
            evaluator: Some(&mut says),
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        let done = mdl_repo::commit_lossy(&run.p.repo, &request, &mut lossy, &mdl_repo::Silent).expect("commit");
        run.collect();
        assert_eq!(read(&run.p.repo, &done.id).expect("read"), given, "collected: {collected}");
        if collected {
            assert_eq!(done.summary.new_tensors, 0, "what it restored from is stored already");
        }
        let request = CommitRequest { branch: Some("again".to_owned()), ..CommitRequest::default() };
        let mut lossy = LossyRequest {
            policy: mdl_repo::policy(&run.p.repo, "lossy").expect("built in"),
            evaluator: Some(&mut says),
            direction: Direction::LowerIsBetter,
            grads: None,
            since: None,
        };
        let next = run.commit_with(request, &mut lossy);
        run.collect();
        next.gives(&run.p.repo, true, "the newest");
        super::run::is_clean(&run.p.repo);
    }
}
