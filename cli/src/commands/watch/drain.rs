//! Shutdown of a watch: checkpoints that are there by then are committed once they have settled, or reported.

use super::{Args, NAP, Watch, tell::say};
use crate::{
    checkpoints::{
        find::Look,
        whole::{Whole, check},
    },
    commands::prelude::*,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};

/// Job schedulers kill a process that does not end soon after SIGTERM.
const LIMIT: Duration = Duration::from_secs(60);

impl Watch {
    /// Commits what settles in time and returns the names of what is left. Once it is hurried it takes a minute at
    /// most, and under a policy, whose search may take hours, what is left is only reported. Not hurried, it removes
    /// originals at the end.
    pub fn drain(&mut self, context: &mut Context, args: &Args, hurried: &AtomicBool) -> Result<Vec<String>> {
        let patience = args.settle + 2 * args.interval;
        let begun = self.start.elapsed();
        let mut end = begun + patience;
        let has_policy = |repo: Repo| -> Result<bool> { Ok(self.lossy.plan(&repo)?.is_some()) };
        // Without a repository nothing can be committed either.
        let slow = context.repo().and_then(has_policy).unwrap_or(true);
        let keep = self.keep.take();
        let mut told = false;
        let mut before = usize::MAX;
        loop {
            self.quit.obey();
            let seen = self.look(&args.dir, &args.pattern)?;
            let hasty = hurried.load(Ordering::Relaxed);
            if hasty && slow {
                self.settling.look(self.start.elapsed(), &seen.entries, |_| Duration::ZERO);
                return self.name_left(context, &seen);
            }
            self.turn(context, &seen, &AtomicBool::new(false))?;
            let left = self.settling.unfinished().len();
            if hasty {
                end = end.min(begun + LIMIT);
            } else if left < before {
                end = self.start.elapsed() + patience;
            }
            before = left;
            if left == 0 || self.start.elapsed() >= end {
                if let (Some(keep), false) = (keep, hurried.load(Ordering::Relaxed)) {
                    self.clear(context, &context.repo()?, &seen, keep, hurried)?;
                }
                return self.name_left(context, &seen);
            }
            if !told {
                let most = end.saturating_sub(self.start.elapsed()).as_secs() + 1;
                context.note(&format!("ending once all is settled, in at most {most} s (Ctrl-C again: at once)"));
                told = true;
            }
            sleep(args.interval.min(NAP));
        }
    }

    /// Reports each uncommitted checkpoint, with the command that commits it, and returns the names of all of them.
    fn name_left(&self, context: &mut Context, seen: &Look) -> Result<Vec<String>> {
        let left = self.settling.unfinished();
        let is_left = |name: &str| left.contains(&name);
        let mut names: Vec<String> = self.settling.refused().into_iter().map(str::to_owned).collect();
        for found in seen.entries.iter().filter(|f| is_left(&f.name)) {
            if check(found) != Whole::NoTensors {
                say(context, "left", &found.name, "it is not committed yet; the same command with --once takes it")?;
                names.push(found.name.clone());
            }
        }
        Ok(names)
    }
}
