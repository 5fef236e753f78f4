//! Keyed mutex: one lock per key, which exists only while it is held or waited for.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};
use tokio::sync::OwnedMutexGuard;

type Lock = tokio::sync::Mutex<()>;

/// Held until it is dropped.
pub type KeyedGuard = OwnedMutexGuard<()>;

/// Locks by key, within this process: files that other processes change too need more than this.
#[derive(Debug)]
pub struct KeyedMutex<K>(Mutex<HashMap<K, Weak<Lock>>>);

impl<K> Default for KeyedMutex<K> {
    fn default() -> KeyedMutex<K> {
        KeyedMutex(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedMutex<K> {
    /// Waits until the key is free. Those who wait get it in the order in which they came.
    pub async fn lock(&self, key: K) -> KeyedGuard {
        self.lock_for(key).lock_owned().await
    }

    /// Takes the key if it is free.
    pub fn try_lock(&self, key: K) -> Option<KeyedGuard> {
        self.lock_for(key).try_lock_owned().ok()
    }

    fn lock_for(&self, key: K) -> Arc<Lock> {
        let mut all = self.0.lock();
        if let Some(lock) = all.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        all.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(Lock::default());
        all.insert(key, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_keeps_out_its_own_and_nothing_stays_of_it() {
        let locks = KeyedMutex::default();
        let held = locks.lock("a").await;
        assert!(locks.try_lock("a").is_none() && locks.try_lock("b").is_some());
        let waiting = locks.lock("a");
        drop(held);
        let held = waiting.await;
        assert!(locks.try_lock("a").is_none());
        drop(held);
        for key in ["c", "d", "e"] {
            drop(locks.lock(key).await);
        }
        assert_eq!(locks.0.lock().len(), 1);
    }

    #[tokio::test]
    async fn a_hundred_that_want_one_key_have_it_one_after_the_other() {
        let (locks, inside) = (Arc::new(KeyedMutex::default()), Arc::new(Mutex::new((0, 0))));
        let tasks = (0..100).map(|_| {
            let (locks, inside) = (locks.clone(), inside.clone());
            tokio::spawn(async move {
                let _held = locks.lock(7).await;
                inside.lock().0 += 1;
                tokio::task::yield_now().await;
                let mut inside = inside.lock();
                assert_eq!(inside.0, 1);
                *inside = (0, inside.1 + 1);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("one at a time");
        }
        assert_eq!(*inside.lock(), (0, 100));
    }
}
