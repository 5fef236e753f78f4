//! The conformance suite of storages, run on buckets: in memory, in an S3 store that the environment names, behind
//! faults.

#[path = "../../../../repo/tests/it/support/conformance.rs"]
mod promises;

use super::flaky::{FaultPlan, Flaky};
use mdl_remote::place::Place;
use mdl_repo::storage::{Fault, FaultStorage, Key, Prefix, Storage};
use promises::{conforms, get};
use std::{io::Write, sync::Arc, time::SystemTime};

/// A place that nothing was ever stored in, below `MDL_TEST_S3`; `None` where the environment names no store.
pub fn fresh_s3(name: &str) -> Option<Place> {
    let Ok(base) = std::env::var("MDL_TEST_S3") else {
        let required = std::env::var("MDL_REQUIRE_S3").is_ok_and(|v| v == "1");
        assert!(!required, "MDL_REQUIRE_S3=1, but MDL_TEST_S3 names no bucket");
        // Past the harness, which would keep it to itself.
        let skipped = "\n*** SKIPPED: MDL_TEST_S3=s3://BUCKET/PREFIX is not set, so no S3 store was tested ***\n\n";
        std::io::stderr().write_all(skipped.as_bytes()).expect("stderr");
        return None;
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let unique = format!("{name}-{}-{}", std::process::id(), now.as_nanos());
    Some(Place::parse(&format!("{}/{unique}", base.trim_end_matches('/'))).expect("a place"))
}

fn memory(name: &str) -> Arc<dyn Storage> {
    Place::parse(&format!("memory://{name}/p")).expect("place").storage().expect("storage")
}

/// The faults that storage above has to live with, on one that has just been made for each.
fn lives_with_faults(fresh: &dyn Fn(u32) -> Arc<dyn Storage>) {
    let faults = [Fault::Kill(2), Fault::Fail(2), Fault::LoseReply(2), Fault::Full(2)];
    for (n, fault) in (0..).zip(faults) {
        let inner = fresh(n);
        let faulty = FaultStorage::new(inner.clone(), Some(fault));
        assert!(!faulty.excludes(), "a wrapper says what the storage says");
        faulty.swap(&Key::fixed("refs/a"), None, Some(b"1")).expect("the first change");
        assert!(faulty.swap(&Key::fixed("refs/a"), Some(b"1"), Some(b"2")).is_err(), "{fault:?}");
        let happened = matches!(fault, Fault::LoseReply(_));
        let value: &[u8] = if happened { b"2" } else { b"1" };
        assert_eq!(get(&*inner, "refs/a"), Some(value.to_vec()), "{fault:?}");
    }
    let inner = fresh(9);
    let torn = FaultStorage::new(inner.clone(), Some(Fault::Tear(1)));
    assert!(torn.append(&Key::fixed("logs/a"), b"abcd").is_err());
    assert_eq!(get(&*inner, "logs/a"), Some(b"ab".to_vec()));
}

#[test]
fn a_bucket_in_memory_conforms() {
    conforms(&*memory("conforms"));
    conforms(&FaultStorage::new(memory("conforms-behind-faults"), None));
    lives_with_faults(&|n| memory(&format!("faults-{n}")));
}

#[test]
fn a_bucket_conforms_whose_answers_get_lost() {
    let plan = FaultPlan { unconfirmed: 10, broken: 10, busy: 10, cut: 10, ..FaultPlan::default() };
    // With eight threads at one key a lost answer may end in "not known": the counting test is in `swaps`.
    let flaky = Flaky::new(FaultPlan { unconfirmed: 0, broken: 0, ..plan });
    conforms(&flaky.storage());
    flaky.set(plan);
    let storage = flaky.storage();
    for n in 0..200u32 {
        let old = n.checked_sub(1).map(|n| n.to_string());
        storage
            .swap(&Key::fixed("refs/alone"), old.as_ref().map(String::as_bytes), Some(n.to_string().as_bytes()))
            .expect("nobody else is there");
    }
}

#[test]
fn an_s3_bucket_conforms() {
    let Some(place) = fresh_s3("conforms") else { return };
    conforms(&*place.storage().expect("storage"));
    let place = fresh_s3("behind-faults").expect("as before");
    conforms(&FaultStorage::new(place.storage().expect("storage"), None));
    lives_with_faults(&|_| fresh_s3("faults").expect("as before").storage().expect("storage"));
}

#[test]
fn a_bucket_that_is_not_there_is_said_to_be_missing() {
    if fresh_s3("missing").is_none() {
        return;
    }
    let place = Place::parse("s3://no-such-bucket-anywhere/p").expect("place");
    let storage = place.storage().expect("storage");
    for error in [storage.get(&Key::fixed("a")).map(drop), storage.list(&Prefix::fixed("a/")).map(drop)] {
        let error = error.expect_err("no bucket");
        assert!(error.hint().is_some(), "{error}");
        assert!(error.to_string().contains("bucket not found"), "{error}");
    }
    // SeaweedFS calls this one a matter of access.
    let error = storage.put(&Key::fixed("a"), b"1").expect_err("no bucket");
    assert!(error.hint().is_some(), "{error}");
}
