//! Runs transfers of several parts in parallel.

use mdl_codec::locks::Mutex;
use mdl_repo::{RepoError, Result};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Parts that are on their way at once.
const STREAMS: usize = 4;

/// Does something for each item, a few at a time, in their order. After the first error no further item is begun.
pub(crate) fn each<T: Sync>(items: &[T], one: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None::<RepoError>));
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(e) = one(item) {
                next.store(items.len(), Ordering::Relaxed);
                failure.lock().get_or_insert(e);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..STREAMS.min(items.len()) {
            scope.spawn(work);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn each_is_done_once_and_as_many_at_once_as_there_are_streams() {
        let together = Barrier::new(STREAMS);
        let done: Vec<AtomicUsize> = (0..3 * STREAMS).map(|_| AtomicUsize::new(0)).collect();
        let one = |n: &AtomicUsize| {
            together.wait();
            n.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        each(&done, one).expect("all of them");
        assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        each(&[], |_: &u8| unreachable!("there is none")).expect("nothing to do");
    }

    #[test]
    fn a_failure_ends_it() {
        let begun = AtomicUsize::new(0);
        let failed = each(&[(); 1000], |()| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err(RepoError::user("no", ""))
        });
        assert_eq!(failed.expect_err("the first").to_string(), "no");
        assert!(begun.into_inner() <= STREAMS);
    }
}
