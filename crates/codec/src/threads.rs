//! Which threads share the blocks of a call: those of a rayon pool, a caller's own, or the calling one alone.

use rayon::prelude::*;
use std::{
    cell::RefCell,
    fmt::Debug,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Threads that the caller has anyway, such as those of a runtime for parallel loops.
pub trait Team: Debug + Send + Sync {
    /// How many there are.
    fn threads(&self) -> usize;

    /// Calls `work` with each number below `n`, once, on any of the threads, and returns when all calls have.
    fn run(&self, n: usize, work: &(dyn Fn(usize) + Sync));
}

#[derive(Clone, Debug)]
enum Who {
    Pool,
    Alone,
    Team(Arc<dyn Team>),
}

thread_local! {
    static WHO: RefCell<Who> = const { RefCell::new(Who::Pool) };
}

/// Sets back who works when a call ends, by a panic too.
struct Restore(Who);

impl Drop for Restore {
    fn drop(&mut self) {
        WHO.replace(std::mem::replace(&mut self.0, Who::Pool));
    }
}

fn within<T>(who: Who, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(WHO.replace(who));
    work()
}

/// Codes on the calling thread alone what is coded within `work` without bases: what is decoded is then in its cache.
pub fn alone<T>(work: impl FnOnce() -> T) -> T {
    within(Who::Alone, work)
}

/// Codes on a team's threads what is coded within `work` without bases.
pub fn on_team<T>(team: Arc<dyn Team>, work: impl FnOnce() -> T) -> T {
    within(Who::Team(team), work)
}

fn who() -> Who {
    WHO.with_borrow(Clone::clone)
}

/// How many threads share the blocks of a call.
pub(crate) fn threads() -> usize {
    match who() {
        Who::Pool => rayon::current_num_threads(),
        Who::Alone => 1,
        Who::Team(team) => team.threads().max(1),
    }
}

/// What `work` makes of each item, in their order.
pub(crate) fn share_out<T: Send, R: Send + Sync>(items: Vec<T>, work: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    let who = if items.len() > 1 { who() } else { Who::Alone };
    let team = match who {
        Who::Pool => return items.into_par_iter().map(work).collect(),
        Who::Alone => return items.into_iter().map(work).collect(),
        Who::Team(team) => team,
    };
    let slots: Vec<(Mutex<Option<T>>, OnceLock<R>)> =
        items.into_iter().map(|item| (Mutex::new(Some(item)), OnceLock::new())).collect();
    team.run(slots.len(), &|i| {
        let Some((item, result)) = slots.get(i) else { return };
        if let Some(item) = item.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = result.set(alone(|| work(item)));
        }
    });
    // A team that left an item out is made good here.
    let results = slots.into_iter().filter_map(|(item, result)| {
        let left = item.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.into_inner().or_else(|| left.map(&work))
    });
    results.collect()
}

/// Does `work` to each item; the first error there is, by the items' order.
pub(crate) fn try_share_out<T: Send, E: Send + Sync>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<(), E> + Sync + Send,
) -> Result<(), E> {
    share_out(items, work).into_iter().collect()
}

/// As [`try_share_out`], for items whose own blocks are shared out too. Each thread of a team works alone: where there
/// are fewer items than threads, items come one after the other.
pub(crate) fn try_share_out_all<T: Send, E: Send + Sync>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<(), E> + Sync + Send,
) -> Result<(), E> {
    match who() {
        Who::Team(team) if items.len() < team.threads() => items.into_iter().try_for_each(work),
        _ => try_share_out(items, work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Two threads, each of which takes the next number.
    #[derive(Debug)]
    struct Two;

    impl Team for Two {
        fn threads(&self) -> usize {
            2
        }

        fn run(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
            let next = AtomicUsize::new(0);
            let numbers = || std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&i| i < n);
            let all = || numbers().for_each(work);
            std::thread::scope(|s| {
                s.spawn(all);
                all();
            });
        }
    }

    fn squares() -> Vec<usize> {
        share_out((0..100).collect(), |i: usize| i * i)
    }

    #[test]
    fn whoever_works_the_results_are_in_order() {
        let expected: Vec<usize> = (0..100).map(|i| i * i).collect();
        assert_eq!(squares(), expected);
        assert_eq!(alone(squares), expected);
        assert_eq!(on_team(Arc::new(Two), squares), expected);
        let fails = |i: usize| if i % 7 == 3 { Err(i) } else { Ok(()) };
        assert_eq!(on_team(Arc::new(Two), || try_share_out((0..100).collect(), fails)), Err(3));
    }

    #[test]
    fn a_team_works_each_for_itself() {
        let inner = on_team(Arc::new(Two), || share_out(vec![(); 8], |()| threads()));
        assert_eq!(inner, [1; 8]);
        let few = |()| if threads() == 2 { Ok(()) } else { Err(threads()) };
        assert_eq!(on_team(Arc::new(Two), || try_share_out_all(vec![()], few)), Ok(()));
        assert_eq!(on_team(Arc::new(Two), || try_share_out_all(vec![(); 2], few)), Err(1));
    }

    #[test]
    fn who_works_is_the_calling_threads_own_and_ends_with_the_call() {
        alone(|| {
            on_team(Arc::new(Two), || assert_eq!(threads(), 2));
            assert_eq!(threads(), 1);
            std::thread::scope(|s| s.spawn(|| assert!(matches!(who(), Who::Pool))).join()).unwrap();
        });
        assert!(std::panic::catch_unwind(|| alone(|| panic!("in the work"))).is_err());
        assert!(matches!(who(), Who::Pool));
    }
}
