//! Block cache: a bounded cache in memory of blocks of immutable keys; a block that many threads miss is fetched once.
//!
//! Nothing here is relied on: what was dropped or never came is fetched again.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Bytes of a block; a key's last one is shorter.
pub(super) const BLOCK: u64 = 1 << 20;

/// Blocks that one request fetches where reads go forward.
const AHEAD: u64 = 4;

type Name = (Arc<str>, u64);

#[derive(Default)]
struct State {
    /// Blocks, each with when it was last used.
    held: HashMap<Name, (Bytes, u64)>,
    /// The same by that time, longest ago first.
    uses: BTreeMap<u64, Name>,
    clock: u64,
    bytes: usize,
    /// Blocks that a thread is fetching.
    flying: HashSet<Name>,
}

/// The cache.
pub(super) struct Blocks {
    state: Mutex<State>,
    landed: Condvar,
    limit: usize,
}

/// What a reader does about a block.
pub(super) enum Ask<'a> {
    /// Here it is.
    Have(Bytes),
    /// Fetch these; until then other threads wait for them.
    Fetch(Flight<'a>),
}

/// Blocks that one caller fetches; the fetch ends when this is dropped, successful or not.
pub(super) struct Flight<'a> {
    blocks: &'a Blocks,
    key: Arc<str>,
    /// Numbers of blocks.
    pub(super) range: Range<u64>,
}

impl State {
    fn touch(&mut self, name: &Name) -> Option<Bytes> {
        self.clock += 1;
        let (bytes, used) = self.held.get_mut(name)?;
        self.uses.remove(used);
        *used = self.clock;
        self.uses.insert(self.clock, name.clone());
        Some(bytes.clone())
    }

    fn insert(&mut self, name: Name, bytes: Bytes, limit: usize) {
        self.remove(&name);
        self.clock += 1;
        self.bytes += bytes.len();
        self.uses.insert(self.clock, name.clone());
        self.held.insert(name, (bytes, self.clock));
        while self.bytes > limit {
            let Some((_, oldest)) = self.uses.pop_first() else {
                break;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, name: &Name) {
        if let Some((bytes, used)) = self.held.remove(name) {
            self.bytes -= bytes.len();
            self.uses.remove(&used);
        }
    }

    fn idle(&self, key: &Arc<str>, block: u64) -> bool {
        let name = (key.clone(), block);
        !self.held.contains_key(&name) && !self.flying.contains(&name)
    }
}

impl Blocks {
    /// Holds up to `limit` bytes.
    pub(super) fn new(limit: usize) -> Blocks {
        Blocks { state: Mutex::default(), landed: Condvar::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of the blocks that a read wants. If it is to be fetched, so are those after it that are wanted too
    /// and, where the one before it was read, some that will be.
    pub(super) fn ask(&self, key: &Arc<str>, wanted: Range<u64>) -> Ask<'_> {
        let name = (key.clone(), wanted.start);
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.touch(&name) {
                return Ask::Have(bytes);
            }
            if !state.flying.contains(&name) {
                break;
            }
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let forward = wanted.start > 0 && state.held.contains_key(&(key.clone(), wanted.start - 1));
        let ahead = if forward { AHEAD } else { 1 };
        let most = wanted.end.max(wanted.start.saturating_add(ahead));
        let end = (wanted.start..most).find(|b| !state.idle(key, *b)).unwrap_or(most);
        let range = wanted.start..end;
        state.flying.extend(range.clone().map(|b| (key.clone(), b)));
        Ask::Fetch(Flight { blocks: self, key: key.clone(), range })
    }

    /// Forgets a key that is deleted.
    pub(super) fn forget(&self, key: &str) {
        let mut state = self.lock();
        let gone: Vec<Name> = state.held.keys().filter(|(k, _)| &**k == key).cloned().collect();
        gone.iter().for_each(|name| state.remove(name));
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks({} of {} bytes)", self.lock().bytes, self.limit)
    }
}

impl Flight<'_> {
    /// The blocks have come: all bytes from the first one on, as far as the key goes.
    pub(super) fn land(self, bytes: &Bytes) -> Vec<Bytes> {
        let size = BLOCK as usize;
        let cuts = (0..bytes.len()).step_by(size);
        // Copies: a block must not keep its neighbours in memory.
        let parts: Vec<Bytes> = cuts.map(|at| Bytes::copy_from_slice(&bytes[at..bytes.len().min(at + size)])).collect();
        let mut state = self.blocks.lock();
        for (number, part) in self.range.clone().zip(&parts) {
            state.insert((self.key.clone(), number), part.clone(), self.blocks.limit);
        }
        drop(state);
        parts
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.blocks.lock();
        for block in self.range.clone() {
            state.flying.remove(&(self.key.clone(), block));
        }
        self.blocks.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(ask: Ask<'_>) -> Range<u64> {
        match ask {
            Ask::Fetch(flight) => {
                let range = flight.range.clone();
                let bytes = vec![7; ((range.end - range.start) * BLOCK) as usize];
                flight.land(&bytes.into());
                range
            }
            Ask::Have(_) => 0..0,
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bytes_are_bounded() {
        let blocks = Blocks::new(2 * BLOCK as usize);
        let key: Arc<str> = "packs/a".into();
        assert_eq!(fetched(blocks.ask(&key, 0..1)), 0..1);
        assert_eq!(fetched(blocks.ask(&key, 9..10)), 9..10);
        assert!(matches!(blocks.ask(&key, 0..1), Ask::Have(_)));
        assert_eq!(fetched(blocks.ask(&key, 20..21)), 20..21);
        assert!(matches!(blocks.ask(&key, 0..1), Ask::Have(_)), "used last");
        assert_eq!(fetched(blocks.ask(&key, 9..10)), 9..10, "went");
        assert!(blocks.lock().bytes <= 2 * BLOCK as usize);
        blocks.forget("packs/a");
        let state = blocks.lock();
        assert_eq!((state.bytes, state.uses.len()), (0, 0));
    }

    #[test]
    fn reads_that_go_forward_fetch_ahead() {
        let blocks = Blocks::new(64 * BLOCK as usize);
        let key: Arc<str> = "packs/a".into();
        assert_eq!(fetched(blocks.ask(&key, 0..1)), 0..1);
        assert_eq!(fetched(blocks.ask(&key, 1..2)), 1..5);
        assert!(matches!(blocks.ask(&key, 4..5), Ask::Have(_)));
        assert_eq!(fetched(blocks.ask(&key, 5..7)), 5..9);
    }

    #[test]
    fn a_flight_that_does_not_land_lets_the_next_one_go() {
        let blocks = Blocks::new(BLOCK as usize);
        let key: Arc<str> = "packs/a".into();
        drop(blocks.ask(&key, 0..2));
        assert_eq!(fetched(blocks.ask(&key, 0..2)), 0..2);
    }
}
