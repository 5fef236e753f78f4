//! Fair semaphore for scarce resources (decoding memory, jobs, deliveries), shared between clients and repositories.
//!
//! No client and no repository holds more than its cap, so that something is left for others whatever one of them does.
//! Of those who wait, the one whose client and repository hold least comes next; among equals, the one that came first.
//! Queues are bounded.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// Owner of a share: a client (its token, else its address), and the repository of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    client: Arc<str>,
    repo: Arc<str>,
}

impl Party {
    /// A client and a repository.
    pub fn new(client: impl Into<Arc<str>>, repo: impl Into<Arc<str>>) -> Party {
        Party { client: client.into(), repo: repo.into() }
    }

    /// The client.
    pub fn client(&self) -> &Arc<str> {
        &self.client
    }
}

/// Total units, and caps per client and repository.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Total units.
    pub all: u32,
    /// Units that one client may hold. One that holds none may have a larger share at once.
    pub per_client: u32,
    /// Units that are held for one repository, likewise.
    pub per_repo: u32,
    /// Shares that are held at a time, however small.
    pub shares: usize,
    /// Most waiting requests.
    pub waiting: usize,
    /// Most waiting requests of one client.
    pub waiting_per_client: usize,
}

/// Too many wait already: the caller is to try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// A scarce resource.
#[derive(Clone, Debug)]
pub struct Pool {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    used: u32,
    shares: usize,
    by_client: HashMap<Arc<str>, u32>,
    by_repo: HashMap<Arc<str>, u32>,
    waiting: BTreeMap<u64, Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    party: Party,
    units: u32,
    grant: oneshot::Sender<Share>,
}

/// Units that are held until this is dropped.
#[derive(Debug)]
pub struct Share {
    pool: Pool,
    party: Party,
    units: u32,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.used -= self.units;
        state.shares -= 1;
        lower(&mut state.by_client, &self.party.client, self.units);
        lower(&mut state.by_repo, &self.party.repo, self.units);
        self.pool.grant(state);
    }
}

/// Lowers a count and removes it at zero, so that the map does not grow for ever.
fn lower(counts: &mut HashMap<Arc<str>, u32>, name: &str, by: u32) {
    if let Some(count) = counts.get_mut(name) {
        *count -= by;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

/// A place in the queue, left when this is dropped.
struct Place<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        if state.waiting.remove(&self.number).is_some() {
            // Its leaving may unblock others behind it.
            self.pool.grant(state);
        }
    }
}

/// Returns whether a cap allows so many more units.
fn fits(held: u32, units: u32, cap: u32) -> bool {
    held == 0 || held.saturating_add(units) <= cap
}

impl State {
    fn held_by_client(&self, party: &Party) -> u32 {
        self.by_client.get(&party.client).copied().unwrap_or(0)
    }

    fn held_for_repo(&self, party: &Party) -> u32 {
        self.by_repo.get(&party.repo).copied().unwrap_or(0)
    }

    fn is_under_caps(&self, limits: &Limits, party: &Party, units: u32) -> bool {
        fits(self.held_by_client(party), units, limits.per_client)
            && fits(self.held_for_repo(party), units, limits.per_repo)
    }

    fn has(&self, limits: &Limits, units: u32) -> bool {
        self.used.saturating_add(units) <= limits.all && self.shares < limits.shares
    }

    /// Returns the request that is served next, if any may be.
    fn first(&self, limits: &Limits) -> Option<u64> {
        let held = |w: &Waiter| self.held_by_client(&w.party).saturating_add(self.held_for_repo(&w.party));
        let eligible = self.waiting.iter().filter(|(_, w)| self.is_under_caps(limits, &w.party, w.units));
        eligible.min_by_key(|(number, w)| (held(w), **number)).map(|(number, _)| *number)
    }
}

impl Pool {
    /// With nothing given out yet.
    pub fn new(limits: Limits) -> Pool {
        Pool { limits, state: Arc::default() }
    }

    /// The share must not be dropped under the lock.
    fn share(&self, state: &mut State, party: Party, units: u32) -> Share {
        state.used += units;
        state.shares += 1;
        *state.by_client.entry(party.client.clone()).or_default() += units;
        *state.by_repo.entry(party.repo.clone()).or_default() += units;
        Share { pool: self.clone(), party, units }
    }

    /// Waits until it is served. More units than there are count as all. The place in the queue is given up when the
    /// future is dropped.
    pub async fn take(&self, party: &Party, units: u32) -> Result<Share, QueueFull> {
        let units = units.min(self.limits.all);
        let (grant, granted) = oneshot::channel();
        let place = {
            let mut state = self.state.lock();
            let free = state.first(&self.limits).is_none() && state.has(&self.limits, units);
            if free && state.is_under_caps(&self.limits, party, units) {
                return Ok(self.share(&mut state, party.clone(), units));
            }
            let own = state.waiting.values().filter(|w| w.party.client == party.client).count();
            if state.waiting.len() >= self.limits.waiting || own >= self.limits.waiting_per_client {
                return Err(QueueFull);
            }
            let number = state.next;
            state.next += 1;
            state.waiting.insert(number, Waiter { party: party.clone(), units, grant });
            // It may be served before all waiting requests.
            self.grant(state);
            Place { pool: self, number }
        };
        let share = granted.await;
        drop(place);
        // The sender is dropped by nothing but a grant.
        share.map_err(|_| QueueFull)
    }

    /// Takes a share without waiting, or `None`.
    pub fn try_take(&self, party: &Party, units: u32) -> Option<Share> {
        let mut state = self.state.lock();
        let may = state.has(&self.limits, units) && state.is_under_caps(&self.limits, party, units);
        may.then(|| self.share(&mut state, party.clone(), units))
    }

    /// Grants free units to waiting requests.
    fn grant(&self, mut state: MutexGuard<'_, State>) {
        // A share granted to a waiter that has just gone is returned after the lock is released.
        let mut unwanted = Vec::new();
        while let Some(number) = state.first(&self.limits) {
            let has_room = state.waiting.get(&number).is_some_and(|w| state.has(&self.limits, w.units));
            let Some(waiter) = has_room.then(|| state.waiting.remove(&number)).flatten() else {
                break;
            };
            let share = self.share(&mut state, waiter.party, waiter.units);
            unwanted.extend(waiter.grant.send(share).err());
        }
        drop(state);
    }

    /// Returns whether a request waits.
    pub fn is_contended(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Returns whether another client waits for units that this one holds.
    pub fn is_wanted_by_others(&self, party: &Party) -> bool {
        let state = self.state.lock();
        state.waiting.values().any(|w| {
            w.party.client != party.client && fits(state.held_by_client(&w.party), w.units, self.limits.per_client)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pool(all: u32, per_client: u32, per_repo: u32) -> Pool {
        Pool::new(Limits { all, per_client, per_repo, shares: 64, waiting: 8, waiting_per_client: 4 })
    }

    fn party(client: &str, repo: &str) -> Party {
        Party::new(client, repo)
    }

    /// Waits in the queue until it is given a share.
    fn queue(pool: &Pool, party: &Party, units: u32) -> tokio::task::JoinHandle<Result<Share, QueueFull>> {
        let (pool, party) = (pool.clone(), party.clone());
        tokio::spawn(async move { pool.take(&party, units).await })
    }

    async fn settle(pool: &Pool, waiting: usize) {
        for _ in 0..1000 {
            if pool.state.lock().waiting.len() == waiting {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} wait", pool.state.lock().waiting.len());
    }

    #[tokio::test]
    async fn one_client_leaves_something_for_others_however_much_it_asks_for() {
        let pool = pool(8, 4, 6);
        let (ada, bob) = (party("ada", "a/x"), party("bob", "b/y"));
        let held = [pool.take(&ada, 4).await, pool.take(&bob, 1).await];
        let more: Vec<_> = (0..3).map(|_| queue(&pool, &ada, 1)).collect();
        settle(&pool, 3).await;
        // Behind them in the queue, and served at once.
        let next = pool.take(&bob, 2).await;
        assert!(next.is_ok() && held.iter().all(Result::is_ok));
        drop(held);
        for one in more {
            drop(one.await);
        }
        drop(next);
        let state = pool.state.lock();
        assert_eq!((state.used, state.shares), (0, 0));
        assert!(state.by_client.is_empty() && state.by_repo.is_empty() && state.waiting.is_empty());
    }

    #[tokio::test]
    async fn the_client_and_repository_that_hold_least_come_next() {
        let pool = pool(4, 4, 4);
        let first = pool.take(&party("ada", "a/x"), 2).await;
        let second = pool.take(&party("ada", "a/x"), 2).await;
        let own = queue(&pool, &party("ada", "a/x"), 2);
        settle(&pool, 1).await;
        let other = queue(&pool, &party("eve", "a/x"), 2);
        settle(&pool, 2).await;
        let elsewhere = queue(&pool, &party("bob", "b/y"), 2);
        settle(&pool, 3).await;
        drop(first);
        let third = elsewhere.await.expect("a task");
        settle(&pool, 2).await;
        drop(second);
        // By now none of the two holds anything: the one that came first.
        let fourth = own.await.expect("a task");
        settle(&pool, 1).await;
        assert!(third.is_ok() && fourth.is_ok());
        drop((third, fourth));
        assert!(other.await.is_ok_and(|s| s.is_ok()));
    }

    #[tokio::test]
    async fn queues_are_bounded_and_a_client_that_leaves_leaves_the_queue() {
        let pool = pool(1, 1, 1);
        let held = pool.take(&party("ada", "a/x"), 1).await;
        let mut waiting: Vec<_> = (0..4).map(|_| queue(&pool, &party("bob", "a/x"), 1)).collect();
        settle(&pool, 4).await;
        assert_eq!(pool.take(&party("bob", "a/x"), 1).await.err(), Some(QueueFull));
        waiting.extend((0..4).map(|n| queue(&pool, &party(&format!("c{n}"), "a/x"), 1)));
        settle(&pool, 8).await;
        assert_eq!(pool.take(&party("eve", "a/x"), 1).await.err(), Some(QueueFull));
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        settle(&pool, 0).await;
        drop(held);
        let again = tokio::time::timeout(Duration::from_secs(20), pool.take(&party("bob", "a/x"), 1)).await;
        assert!(again.is_ok_and(|s| s.is_ok()));
    }

    #[tokio::test]
    async fn more_than_there_is_waits_for_all_and_a_share_is_given_back_by_whoever_is_gone() {
        let pool = pool(4, 2, 2);
        let all = pool.take(&party("ada", "a/x"), 9).await;
        assert_eq!(pool.state.lock().used, 4);
        let gone = queue(&pool, &party("bob", "b/y"), 4);
        settle(&pool, 1).await;
        gone.abort();
        drop(all);
        settle(&pool, 0).await;
        assert!(gone.await.is_err());
        assert_eq!(pool.state.lock().used, 0);
        assert!(pool.try_take(&party("ada", "a/x"), 5).is_none());
        assert!(pool.try_take(&party("ada", "a/x"), 4).is_some());
    }
}
