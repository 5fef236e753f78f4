//! Block cache: a bounded cache in memory of blocks of immutable keys; a block that many threads miss is fetched once.
//!
//! Nothing here is relied on: what was dropped or never came is fetched again.

use bytes::Bytes;
use quick_cache::{
    DefaultHashBuilder, OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard},
};
use std::{ops::Range, sync::Arc, time::Duration};

/// Bytes of a block; a key's last one is shorter.
pub(super) const BLOCK: u64 = 1 << 20;

/// Blocks that one request fetches where reads go forward.
const AHEAD: u64 = 4;

/// A key, and the number of a block of it.
type Name = (Arc<str>, u64);

/// The place of a block that is being fetched.
type Guard<'a> = PlaceholderGuard<'a, Name, Bytes, Bytewise, DefaultHashBuilder, DefaultLifecycle<Name, Bytes>>;

#[derive(Clone)]
struct Bytewise;

impl Weighter<Name, Bytes> for Bytewise {
    fn weight(&self, _: &Name, block: &Bytes) -> u64 {
        block.len() as u64
    }
}

/// The cache.
pub(super) struct Blocks(Cache<Name, Bytes, Bytewise>);

/// What a reader does about a block.
pub(super) enum Ask<'a> {
    /// Here it is.
    Have(Bytes),
    /// Fetch these; until then other threads wait for them.
    Fetch(Fetch<'a>),
}

/// Blocks that one caller fetches; the fetch ends when this is dropped, successful or not.
pub(super) struct Fetch<'a> {
    /// Numbers of blocks.
    pub(super) range: Range<u64>,
    guards: Vec<Guard<'a>>,
}

impl Blocks {
    /// Holds up to `limit` bytes, and at least two blocks.
    pub(super) fn new(limit: usize) -> Blocks {
        // The cache admits nothing that is larger than half of it.
        let limit = (limit as u64).max(2 * BLOCK);
        let mut options = OptionsBuilder::new();
        // One shard: a part of a small limit would hold no block. Half of it is for blocks that were not read twice:
        // what many readers fetch ahead must stay until they get there.
        options.shards(1).hot_allocation(0.5);
        options.weight_capacity(limit).estimated_items_capacity(limit.div_ceil(BLOCK) as usize);
        let options = options.build().expect("both capacities are given");
        Blocks(Cache::with_options(options, Bytewise, DefaultHashBuilder::default(), DefaultLifecycle::default()))
    }

    /// The first of the blocks that a read wants. If it is to be fetched, so are those after it that are wanted too
    /// and, where the one before it was read, some that will be.
    pub(super) fn ask(&self, key: &Arc<str>, wanted: Range<u64>) -> Ask<'_> {
        let block = |number, wait| self.0.get_value_or_guard(&(key.clone(), number), wait);
        let start = wanted.start;
        let first = match block(start, None) {
            GuardResult::Value(bytes) => return Ask::Have(bytes),
            GuardResult::Guard(guard) => guard,
            // Does not happen: the wait has no limit.
            GuardResult::Timeout => return self.ask(key, wanted),
        };
        let is_forward = start > 0 && self.0.contains_key(&(key.clone(), start - 1));
        let end = wanted.end.max(start.saturating_add(if is_forward { AHEAD } else { 1 }));
        // As far as none is here or being fetched.
        let more = (start + 1..end).map_while(|number| match block(number, Some(Duration::ZERO)) {
            GuardResult::Guard(guard) => Some(guard),
            GuardResult::Value(_) | GuardResult::Timeout => None,
        });
        let guards: Vec<_> = std::iter::once(first).chain(more).collect();
        Ask::Fetch(Fetch { range: start..start + guards.len() as u64, guards })
    }

    /// Forgets a key that is deleted.
    pub(super) fn forget(&self, key: &str) {
        self.0.retain(|(k, _), _| &**k != key);
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks({} of {} bytes)", self.0.weight(), self.0.capacity())
    }
}

impl Fetch<'_> {
    /// The blocks have come: all bytes from the first one on, as far as the key goes.
    pub(super) fn finish(self, bytes: &Bytes) -> Vec<Bytes> {
        // Copies: a block must not keep its neighbours in memory.
        let parts: Vec<Bytes> = bytes.chunks(BLOCK as usize).map(Bytes::copy_from_slice).collect();
        for (guard, part) in self.guards.into_iter().zip(&parts) {
            // An error: it is not wanted any more.
            let _ = guard.insert(part.clone());
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(ask: Ask<'_>) -> Range<u64> {
        match ask {
            Ask::Fetch(fetch) => {
                let range = fetch.range.clone();
                let bytes = vec![7; ((range.end - range.start) * BLOCK) as usize];
                fetch.finish(&bytes.into());
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
        assert!(blocks.0.weight() <= 2 * BLOCK);
        blocks.forget("packs/a");
        assert_eq!((blocks.0.weight(), blocks.0.len()), (0, 0));
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
    fn a_fetch_that_does_not_end_well_lets_the_next_one_go() {
        let blocks = Blocks::new(BLOCK as usize);
        let key: Arc<str> = "packs/a".into();
        drop(blocks.ask(&key, 0..2));
        assert_eq!(fetched(blocks.ask(&key, 0..2)), 0..2);
    }
}
