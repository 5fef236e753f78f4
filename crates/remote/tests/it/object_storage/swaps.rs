//! Conditional puts whose answer is lost: the value is looked for, and found, sent again, or said to be unknown.

use super::flaky::{FaultPlan, Flaky};
use mdl_repo::{
    ErrorKind,
    storage::{Key, Storage, Swap},
};
use std::{sync::Barrier, thread};

const UNCONFIRMED: FaultPlan =
    FaultPlan { unconfirmed: 100, broken: 0, late: 0, busy: 0, cut: 0, unread: 0, forgetful: false };

#[test]
fn a_lost_answer_is_found_in_the_value() {
    for forgetful in [false, true] {
        let flaky = Flaky::new(FaultPlan { forgetful, ..UNCONFIRMED });
        let storage = flaky.storage();
        assert_eq!(storage.swap(&Key::fixed("refs/a"), None, Some(b"1")).expect("created"), Swap::Done);
        assert_eq!(storage.swap(&Key::fixed("refs/a"), Some(b"1"), Some(b"2")).expect("moved"), Swap::Done);
        assert_eq!(storage.swap(&Key::fixed("refs/a"), Some(b"2"), None).expect("removed"), Swap::Done);
        assert_eq!(storage.swap(&Key::fixed("refs/a"), Some(b"2"), Some(b"3")).expect("late"), Swap::Lost(None));
        assert_eq!(storage.swap(&Key::fixed("refs/a"), None, Some(b"4")).expect("created again"), Swap::Done);
        assert_eq!(storage.get(&Key::fixed("refs/a")).expect("get"), Some(b"4".to_vec()));
    }
}

#[test]
fn a_put_that_never_happened_is_sent_again_for_a_while() {
    let flaky = Flaky::new(FaultPlan { broken: 60, ..FaultPlan::default() });
    let storage = flaky.storage();
    assert_eq!(storage.swap(&Key::fixed("refs/a"), None, Some(b"1")).expect("in the end"), Swap::Done);
    flaky.set(FaultPlan { broken: 100, ..FaultPlan::default() });
    let error = storage.swap(&Key::fixed("refs/a"), Some(b"1"), Some(b"2")).expect_err("never");
    assert_eq!(error.kind(), ErrorKind::Io);
    flaky.set(FaultPlan { busy: 100, ..FaultPlan::default() });
    assert!(storage.swap(&Key::fixed("refs/a"), Some(b"1"), Some(b"2")).is_err(), "busy for ever");
    assert_eq!(storage.get(&Key::fixed("refs/a")).expect("get"), Some(b"1".to_vec()));
}

/// Another writer moves `refs/a` through these values after our put of `2`, whose answer is lost.
fn overtaken(plan: FaultPlan, moves: &'static [&'static [u8]]) -> (mdl_repo::Result<Swap>, Option<Vec<u8>>) {
    let flaky = Flaky::new(FaultPlan::default());
    let (storage, other) = (flaky.storage(), Flaky::over(flaky.inner.clone(), FaultPlan::default()).storage());
    storage.put(&Key::fixed("refs/a"), b"1").expect("put");
    *flaky.meanwhile.lock().expect("meanwhile") = Some(Box::new(move || {
        for pair in moves.windows(2) {
            assert_eq!(other.swap(&Key::fixed("refs/a"), Some(pair[0]), Some(pair[1])).expect("swap"), Swap::Done);
        }
    }));
    flaky.set(plan);
    let swapped = storage.swap(&Key::fixed("refs/a"), Some(b"1"), Some(b"2"));
    (swapped, storage.get(&Key::fixed("refs/a")).expect("get"))
}

#[test]
fn whoever_moves_on_from_our_value_bears_witness() {
    let (swapped, value) = overtaken(UNCONFIRMED, &[b"2", b"3"]);
    assert_eq!((swapped.expect("seen"), value), (Swap::Done, Some(b"3".to_vec())));
}

#[test]
fn what_cannot_be_known_is_not_claimed() {
    // Two moves later nothing bears witness; nor if our put may have come and gone, nor if it came and was undone.
    let broken = FaultPlan { broken: 100, ..FaultPlan::default() };
    let moved_twice: &[&[u8]] = &[b"2", b"3", b"4"];
    let moved: &[&[u8]] = &[b"1", b"3"];
    let undone: &[&[u8]] = &[b"2", b"3", b"1"];
    for (plan, moves) in [(UNCONFIRMED, moved_twice), (broken, moved), (UNCONFIRMED, undone)] {
        let (swapped, value) = overtaken(plan, moves);
        assert_eq!(swapped.expect_err("not known").kind(), ErrorKind::Io, "{moves:?}");
        assert_eq!(value.as_deref(), moves.last().copied(), "and nothing is put again");
    }
}

#[test]
fn one_of_sixteen_wins_each_round_though_answers_get_lost() {
    let plan = FaultPlan { unconfirmed: 20, broken: 10, late: 20, busy: 10, ..FaultPlan::default() };
    let flaky = Flaky::new(FaultPlan::default());
    flaky.storage().put(&Key::fixed("refs/heads/main"), b"start").expect("put");
    flaky.set(plan);
    let together = Barrier::new(16);
    let won: Vec<Vec<bool>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|me| {
                let (storage, together) = (flaky.storage(), &together);
                scope.spawn(move || (0..50).map(|round| contend(&storage, together, round, me)).collect())
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("joined")).collect()
    });
    for round in 0..50 {
        let winners = won.iter().filter(|w| w[round]).count();
        assert_eq!(winners, 1, "round {round}");
    }
}

/// One thread's part in a round; whether it won. All threads find the winner's value afterwards.
fn contend(storage: &dyn Storage, together: &Barrier, round: u32, me: u32) -> bool {
    let old = storage.get(&Key::fixed("refs/heads/main")).expect("get").expect("there");
    together.wait();
    let mine = format!("round {round}, thread {me}").into_bytes();
    let won = match storage.swap(&Key::fixed("refs/heads/main"), Some(&old), Some(&mine)) {
        Ok(Swap::Done) => true,
        Ok(Swap::Lost(found)) => {
            assert_ne!(found, Some(old), "lost to nobody");
            false
        }
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Io);
            false
        }
    };
    together.wait();
    let now = storage.get(&Key::fixed("refs/heads/main")).expect("get").expect("there");
    assert_eq!(now == mine, won, "round {round}: the winner's value, and nobody else's");
    together.wait();
    won
}
