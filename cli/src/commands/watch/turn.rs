//! One pass of a watch: scans, commits and reports the settled checkpoints, then removes originals.

use super::{
    Watch, remove,
    take::Taken,
    tell::{self, say},
};
use crate::{
    checkpoints::find::{Look, WatchedEntry, look},
    commands::prelude::*,
};
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Returns how long ago a checkpoint was last touched, by this machine's clock. Uses ctime too: a copy may keep its
/// original's mtime, but not its ctime.
fn age(found: &WatchedEntry) -> Duration {
    let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    let inode =
        |rel: &String| fs::symlink_metadata(found.file(rel)).map_or(i128::MAX, |m| ns(m.ctime(), m.ctime_nsec()));
    let touched = found.stamp.keys().map(inode).max().unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
    let left_alone = now.saturating_sub(touched.max(found.changed()));
    Duration::from_nanos(u64::try_from(left_alone).unwrap_or(0))
}

impl Watch {
    /// Scans the directory. A missing one may still be made, or its file system mounted again: reports that, and waits.
    pub fn look(&mut self, dir: &Path, patterns: &[String]) -> Result<Look> {
        let failed = match look(dir, patterns) {
            Ok(look) => {
                self.said.clear();
                return Ok(look);
            }
            Err(e) if self.once && e.kind() == io::ErrorKind::NotFound => {
                return Err(RepoError::not_found(Missing::Directory, dir.display()).into());
            }
            Err(e) if self.once || e.kind() == io::ErrorKind::NotADirectory => {
                return Err(RepoError::io(format!("cannot list {}", dir.display()))(e).into());
            }
            Err(e) if self.starts_writer && e.kind() == io::ErrorKind::NotFound => return Ok(Look::default()),
            Err(e) => format!("cannot list {}: {e}; waiting for it", dir.display()),
        };
        if self.said != failed {
            let _ = writeln!(io::stderr(), "note: {}", visible(&failed));
            self.said = failed;
        }
        Ok(Look::default())
    }

    /// Commits what is ready after a scan, then removes originals.
    pub fn turn(&mut self, context: &mut Context, seen: &Look, stop: &AtomicBool) -> Result<()> {
        // The clock of a file server may be wrong: only `--once` uses the age of files.
        let left_alone = |f: &WatchedEntry| if self.once { age(f) } else { Duration::ZERO };
        let ready = self.settling.look(self.start.elapsed(), &seen.entries, left_alone);
        let there: HashMap<&str, &WatchedEntry> = seen.entries.iter().map(|f| (f.name.as_str(), f)).collect();
        for name in self.settling.restless(self.start.elapsed()) {
            say(context, "waiting", &name, &self.settling.advice())?;
        }
        self.committed.retain(|name, (f, _)| there.get(name.as_str()).is_some_and(|now| now.stamp == f.stamp));
        if ready.is_empty() {
            return Ok(());
        }
        let repo = match context.repo() {
            Ok(repo) => repo,
            Err(error) if self.once => return Err(error),
            Err(error) => {
                for f in &ready {
                    self.failed(context, f, error.kind_name(), &error.message(), true)?;
                }
                return Ok(());
            }
        };
        for mut found in ready {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let taken = self.take(context, &repo, &mut found);
            self.quit.obey();
            self.settle(context, &repo, found, taken)?;
        }
        match self.keep {
            Some(keep) if !stop.load(Ordering::Relaxed) => self.clear(context, &repo, seen, keep, stop),
            _ => Ok(()),
        }
    }

    fn settle(&mut self, context: &mut Context, repo: &Repo, found: WatchedEntry, taken: Taken) -> Result<()> {
        match taken {
            Taken::Committed(done) => {
                tell::committed(context, repo, &found.name, &done)?;
                self.settling.close(&found.name);
                self.committed.insert(found.name.clone(), (found, done.id));
            }
            Taken::Known(id) => {
                self.settling.close(&found.name);
                self.committed.insert(found.name.clone(), (found, id));
            }
            Taken::NoCheckpoint => self.settling.close(&found.name),
            // The next scan sees that it is gone, or waits for it once more.
            Taken::Deleted => say(context, "skipped", &found.name, "it was deleted before it was read")?,
            Taken::Changing => say(context, "skipped", &found.name, "it changed while it was read; it is tried again")?,
            Taken::Failed { why, kind, again } => self.failed(context, &found, kind, &why, again && !self.once)?,
        }
        Ok(())
    }

    /// Reports once what is wrong with a checkpoint; the watch goes on.
    fn failed(
        &mut self,
        context: &mut Context,
        found: &WatchedEntry,
        kind: &str,
        why: &str,
        again: bool,
    ) -> Result<()> {
        if self.settling.failed(&found.name, self.start.elapsed(), why, again) {
            tell::failed(context, &found.name, kind, why, again)?;
        }
        Ok(())
    }

    /// Removes originals beyond those to keep.
    pub fn clear(
        &mut self,
        context: &mut Context,
        repo: &Repo,
        seen: &Look,
        keep: usize,
        stop: &AtomicBool,
    ) -> Result<()> {
        let all: Vec<WatchedEntry> = self.committed.values().map(|(f, _)| f.clone()).collect();
        let stay = remove::staying(&all, keep, &seen.linked);
        let mut going: Vec<WatchedEntry> = all.into_iter().filter(|f| !stay.contains(&f.name)).collect();
        going.sort_by_key(WatchedEntry::order);
        for found in going {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Some((_, commit)) = self.committed.remove(&found.name) else {
                continue;
            };
            match remove::remove(context, repo, &self.branch, &found, &commit) {
                Ok(None) => tell::removed(context, &found.name, &commit)?,
                Ok(Some(why)) => say(context, "kept", &found.name, &why)?,
                Err(error) => say(context, "kept", &found.name, &error.to_string())?,
            }
        }
        Ok(())
    }
}
