//! Decides when a checkpoint is completely written, without help of its writer: it was renamed into place, or nothing
//! in it changes any more.

use crate::checkpoints::find::{Stamp, WatchedEntry};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// An entry that does not settle in so many times the time of settling is reported.
const RESTLESS: u32 = 6;

/// State of one entry.
#[derive(Debug, Default)]
struct EntryState {
    stamp: Stamp,
    first: Duration,
    /// Unchanged since then, and for `before` already.
    since: Duration,
    before: Duration,
    renamed: bool,
    /// Not decided on yet.
    open: bool,
    changed: bool,
    /// Not left alone since then.
    restless: Duration,
    /// Whether that was said.
    told_restless: bool,
    /// Last message about it, so that none is repeated.
    said: String,
}

/// Tracks when entries settle. Times are relative to the start of the watch.
#[derive(Debug)]
pub struct Settling {
    settle: Duration,
    seen: HashMap<String, EntryState>,
    /// Entries with a temporary name at the last scan.
    being_written: HashMap<(u64, u64), Stamp>,
}

impl Settling {
    pub fn new(settle: Duration) -> Settling {
        Settling { settle, seen: HashMap::new(), being_written: HashMap::new() }
    }

    /// Processes a scan and returns the entries to commit now, in the order of training. `age` says for how long a new
    /// entry was unchanged.
    pub fn look(
        &mut self,
        now: Duration,
        found: &[WatchedEntry],
        age: impl Fn(&WatchedEntry) -> Duration,
    ) -> Vec<WatchedEntry> {
        let names: HashSet<&str> = found.iter().map(|f| f.name.as_str()).collect();
        self.seen.retain(|name, _| names.contains(name.as_str()));
        for f in found.iter().filter(|f| !f.temporary) {
            let renamed = self.was_renamed(f);
            match self.seen.get_mut(&f.name) {
                Some(seen) if seen.stamp == f.stamp => {}
                Some(seen) => {
                    seen.stamp.clone_from(&f.stamp);
                    if !seen.open || now - seen.since >= self.settle {
                        seen.restless = now;
                    }
                    (seen.since, seen.before) = (now, Duration::ZERO);
                    (seen.renamed, seen.open, seen.changed) = (renamed, true, true);
                }
                None => {
                    let new = EntryState {
                        stamp: f.stamp.clone(),
                        first: now,
                        since: now,
                        before: age(f),
                        renamed,
                        open: true,
                        restless: now,
                        ..EntryState::default()
                    };
                    self.seen.insert(f.name.clone(), new);
                }
            }
        }
        let temporary = found.iter().filter(|f| f.temporary);
        self.being_written = temporary.map(|f| (f.inode, f.stamp.clone())).collect();
        self.ready(now, found)
    }

    /// Returns whether this entry had a temporary name at the last scan, with all the same files: an inode alone may
    /// have been reused.
    fn was_renamed(&self, f: &WatchedEntry) -> bool {
        let same = |before: &Stamp| {
            let file = before.len() == 1 && f.stamp.len() == 1;
            file || !before.is_empty() && before.keys().all(|rel| f.stamp.contains_key(rel))
        };
        self.being_written.get(&f.inode).is_some_and(same)
    }

    fn ready(&self, now: Duration, found: &[WatchedEntry]) -> Vec<WatchedEntry> {
        let whole = |seen: &EntryState| seen.renamed || now - seen.since + seen.before >= self.settle;
        let state = |f: &WatchedEntry| self.seen.get(&f.name).filter(|seen| seen.open && !f.temporary);
        // An entry waits for earlier checkpoints, but not for ever.
        let waiting = |seen: &EntryState| !whole(seen) && now - seen.first < self.settle;
        let earlier = found.iter().filter(|f| state(f).is_some_and(waiting));
        let earlier = earlier.filter_map(|f| f.place.rank()).min().unwrap_or(u64::MAX);
        let ready = found.iter().filter(|f| state(f).is_some_and(whole));
        let ready = ready.filter(|f| f.place.rank().is_none_or(|rank| rank <= earlier));
        let mut ready: Vec<WatchedEntry> = ready.cloned().collect();
        ready.sort_by_key(WatchedEntry::order);
        ready
    }

    /// Returns, each once, the entries that were written to again and again for so long that they may never settle.
    pub fn restless(&mut self, now: Duration) -> Vec<String> {
        let long = |seen: &EntryState| seen.open && seen.changed && now - seen.restless >= RESTLESS * self.settle;
        let told = self.seen.iter_mut().filter(|(_, seen)| long(seen) && !seen.told_restless);
        let mut names: Vec<String> = told
            .map(|(name, seen)| {
                seen.told_restless = true;
                name.clone()
            })
            .collect();
        names.sort_unstable();
        names
    }

    /// What can be done about an entry that never settles.
    pub fn advice(&self) -> String {
        format!(
            "it is written to again before it was left alone for {} s, and is not committed; a shorter --settle than \
             the pause between two writes takes it, or have it written elsewhere and renamed",
            self.settle.as_secs_f64()
        )
    }

    /// Marks an entry as decided, until it changes.
    pub fn close(&mut self, name: &str) {
        if let Some(seen) = self.seen.get_mut(name) {
            seen.open = false;
            seen.said.clear();
        }
    }

    /// Records that an entry could not be committed; returns whether to report it. One that was only renamed must
    /// settle after all. `again`: it is retried once it was unchanged for as long once more; else only when it changes.
    pub fn failed(&mut self, name: &str, now: Duration, why: &str, again: bool) -> bool {
        let Some(seen) = self.seen.get_mut(name) else {
            return false;
        };
        if seen.renamed {
            (seen.renamed, seen.since, seen.before) = (false, now, Duration::ZERO);
            return false;
        }
        seen.open = again;
        (seen.since, seen.before) = (now, Duration::ZERO);
        let news = seen.said != why;
        why.clone_into(&mut seen.said);
        news
    }

    /// Returns whether an entry that never changed since it was first seen is undecided.
    pub fn pending(&self) -> bool {
        self.seen.values().any(|s| s.open && !s.changed)
    }

    /// Returns the entries that could not be committed as they are now.
    pub fn refused(&self) -> Vec<&str> {
        let refused = self.seen.iter().filter(|(_, s)| !s.open && !s.said.is_empty());
        let mut names: Vec<&str> = refused.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the entries that changed while we watched and are undecided.
    pub fn unfinished(&self) -> Vec<&str> {
        let open = self.seen.iter().filter(|(_, s)| s.open);
        let mut names: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::{find, name::Place};

    const SETTLE: Duration = Duration::from_secs(10);

    fn found(name: &str, inode: u64, files: &[(&str, u64)]) -> WatchedEntry {
        WatchedEntry {
            name: name.to_owned(),
            path: name.into(),
            stamp: files.iter().map(|(rel, size)| ((*rel).to_owned(), (*size, 0))).collect(),
            inode: (1, inode),
            temporary: find::is_temporary(name),
            place: Place::of_name(name),
        }
    }

    fn names(ready: &[WatchedEntry]) -> Vec<&str> {
        ready.iter().map(|f| f.name.as_str()).collect()
    }

    fn look(s: &mut Settling, at: u64, found: &[WatchedEntry]) -> Vec<String> {
        let ready = s.look(Duration::from_secs(at), found, |_| Duration::ZERO);
        names(&ready).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_written_slowly_settles_after_its_last_change() {
        let mut s = Settling::new(SETTLE);
        assert!(look(&mut s, 0, &[found("step_1", 1, &[("w", 5)])]).is_empty());
        assert!(look(&mut s, 9, &[found("step_1", 1, &[("w", 6)])]).is_empty());
        assert!(look(&mut s, 18, &[found("step_1", 1, &[("w", 6)])]).is_empty());
        assert_eq!(look(&mut s, 19, &[found("step_1", 1, &[("w", 6)])]), ["step_1"]);
        s.close("step_1");
        assert!(look(&mut s, 40, &[found("step_1", 1, &[("w", 6)])]).is_empty());
        assert!(look(&mut s, 41, &[found("step_1", 1, &[("w", 7)])]).is_empty(), "it changed");
        assert_eq!(look(&mut s, 51, &[found("step_1", 1, &[("w", 7)])]), ["step_1"]);
    }

    #[test]
    fn what_never_settles_is_told_once() {
        let mut s = Settling::new(SETTLE);
        let told = |s: &mut Settling, at: u64, size: u64| {
            look(s, at, &[found("latest.pt", 1, &[("w", size)]), found("step_1", 2, &[("w", 1)])]);
            s.restless(Duration::from_secs(at))
        };
        for at in (0..60).step_by(6) {
            assert!(told(&mut s, at, at).is_empty(), "{at}");
        }
        assert_eq!(told(&mut s, 60, 60), ["latest.pt"]);
        assert!(told(&mut s, 66, 66).is_empty(), "said before");
        // One that settles between its changes is none.
        let mut s = Settling::new(SETTLE);
        for at in (0..600).step_by(12) {
            assert!(told(&mut s, at, at).is_empty());
            assert!(told(&mut s, at + 10, at).is_empty());
            s.close("latest.pt");
        }
    }

    #[test]
    fn what_was_renamed_is_ready_at_once() {
        let mut s = Settling::new(SETTLE);
        look(&mut s, 0, &[found("tmp-checkpoint-1", 7, &[("w", 5)])]);
        assert_eq!(look(&mut s, 2, &[found("checkpoint-1", 7, &[("w", 5), ("x", 1)])]), ["checkpoint-1"]);
        // A reused inode is no sign of a rename.
        look(&mut s, 3, &[found("tmp-checkpoint-2", 8, &[("w", 5), ("v", 5)])]);
        assert!(look(&mut s, 4, &[found("step_2", 8, &[("other", 1)])]).is_empty());
        // A damaged one: it must settle after all, and the damage is reported then, once.
        look(&mut s, 20, &[found("tmp-checkpoint-3", 9, &[("w", 5)])]);
        let renamed = [found("checkpoint-3", 9, &[("w", 5)])];
        assert_eq!(look(&mut s, 21, &renamed), ["checkpoint-3"]);
        assert!(!s.failed("checkpoint-3", Duration::from_secs(21), "torn", false));
        assert!(look(&mut s, 30, &renamed).is_empty());
        assert_eq!(look(&mut s, 31, &renamed), ["checkpoint-3"]);
        assert!(s.failed("checkpoint-3", Duration::from_secs(31), "torn", false));
        assert!(look(&mut s, 90, &renamed).is_empty());
        let grown = [found("checkpoint-3", 9, &[("w", 6)])];
        look(&mut s, 91, &grown);
        assert_eq!(look(&mut s, 101, &grown), ["checkpoint-3"]);
        assert!(!s.failed("checkpoint-3", Duration::from_secs(101), "torn", false), "said before");
    }

    #[test]
    fn order_is_that_of_training() {
        let mut s = Settling::new(SETTLE);
        let two = [found("checkpoint-1000", 1, &[("w", 1)]), found("checkpoint-500", 2, &[("w", 1)])];
        look(&mut s, 0, &two);
        let tmp = found("tmp-checkpoint-1500", 3, &[("w", 1)]);
        look(&mut s, 1, &[two[0].clone(), two[1].clone(), tmp]);
        // Renamed into place while those before it still settle.
        let three = [two[0].clone(), found("checkpoint-1500", 3, &[("w", 1)]), two[1].clone()];
        assert!(look(&mut s, 2, &three).is_empty());
        assert_eq!(look(&mut s, 10, &three), ["checkpoint-500", "checkpoint-1000", "checkpoint-1500"]);
        // A checkpoint that keeps changing holds up the others only for a while.
        let mut s = Settling::new(SETTLE);
        for at in 0..10 {
            assert!(
                look(&mut s, at, &[found("step_1", 1, &[("log", at)]), found("step_2", 2, &[("w", 1)])]).is_empty()
            );
        }
        let after = [found("step_1", 1, &[("log", 99)]), found("step_2", 2, &[("w", 1)])];
        assert_eq!(look(&mut s, 10, &after), ["step_2"]);
    }

    #[test]
    fn a_single_look_goes_by_the_age_of_files() {
        let mut s = Settling::new(SETTLE);
        let two = [found("step_1", 1, &[("w", 1)]), found("step_2", 2, &[("w", 1)])];
        let age = |f: &WatchedEntry| Duration::from_secs(if f.name == "step_1" { 60 } else { 4 });
        assert_eq!(names(&s.look(Duration::ZERO, &two, age)), ["step_1"]);
        s.close("step_1");
        assert!(s.pending());
        assert_eq!(names(&s.look(Duration::from_secs(6), &two, age)), ["step_2"]);
        let changed = [two[0].clone(), found("step_2", 2, &[("w", 2)])];
        s.look(Duration::from_secs(7), &changed, age);
        assert!(!s.pending());
        assert_eq!(s.unfinished(), ["step_2"]);
    }

    #[test]
    fn what_failed_for_now_is_tried_again() {
        let mut s = Settling::new(SETTLE);
        let one = [found("step_1", 1, &[("w", 1)])];
        look(&mut s, 0, &one);
        assert_eq!(look(&mut s, 10, &one), ["step_1"]);
        assert!(s.failed("step_1", Duration::from_secs(10), "disk full", true));
        assert!(look(&mut s, 11, &one).is_empty());
        assert_eq!(look(&mut s, 20, &one), ["step_1"]);
        assert!(!s.failed("step_1", Duration::from_secs(20), "disk full", true));
        look(&mut s, 21, &[]);
        assert!(!s.pending() && s.unfinished().is_empty());
    }
}
