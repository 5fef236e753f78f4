//! Times of kernel launches and copies, recorded while profiling is on.

use mdl_codec::locks::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A name, milliseconds, and how often.
pub(crate) type Timed = (&'static str, f64, u64);

/// Names and times: `T` is whatever a driver has before it is asked for milliseconds.
#[derive(Debug)]
pub(crate) struct Profile<T> {
    on: AtomicBool,
    list: Mutex<Vec<(&'static str, T)>>,
}

impl<T> Default for Profile<T> {
    fn default() -> Self {
        Profile { on: AtomicBool::new(false), list: Mutex::default() }
    }
}

impl<T> Profile<T> {
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, name: &'static str, time: T) {
        self.list.lock().push((name, time));
    }

    /// Sums by name, in the order in which names came up first, of what was added since the last call.
    pub(crate) fn take(&self, milliseconds: impl Fn(&T) -> f64) -> Vec<Timed> {
        let list = std::mem::take(&mut *self.list.lock());
        let mut out: Vec<Timed> = Vec::new();
        for (name, time) in &list {
            let ms = milliseconds(time);
            match out.iter_mut().find(|o| o.0 == *name) {
                Some(o) => (o.1, o.2) = (o.1 + ms, o.2 + 1),
                None => out.push((name, ms, 1)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_by_name_and_are_taken_once() {
        let profile = Profile::<f64>::default();
        assert!(!profile.is_on());
        profile.switch(true);
        assert!(profile.is_on());
        for (name, ms) in [("a", 1.0), ("b", 5.0), ("a", 2.5)] {
            profile.add(name, ms);
        }
        assert_eq!(profile.take(|ms| *ms), [("a", 3.5, 2), ("b", 5.0, 1)]);
        assert_eq!(profile.take(|ms| *ms), []);
    }
}
