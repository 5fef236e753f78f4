//! Shutdown of a watch: checkpoints that are there by then are committed once they have settled, or reported.

use super::{
    Args, NAP, Watch,
    find::Look,
    tell::say,
    whole::{Whole, check},
};
use crate::commands::prelude::*;
use std::{sync::atomic::AtomicBool, thread::sleep, time::Duration};

/// Job schedulers kill a process that does not end soon after SIGTERM.
const LIMIT: Duration = Duration::from_secs(60);

impl Watch {
    /// Commits what settles in time. Under a policy a search may take hours: there, what is left is only reported.
    pub fn drain(&mut self, context: &mut Context, args: &Args) -> Result<()> {
        let most = (args.settle + 2 * args.interval).min(LIMIT);
        let (end, go_on) = (self.start.elapsed() + most, AtomicBool::new(false));
        let policy = |repo: Repo| -> Result<bool> { Ok(self.lossy.plan(&repo)?.is_some()) };
        // Without a repository nothing can be committed either.
        let has_policy = context.repo().and_then(policy).unwrap_or(true);
        self.keep = None;
        let mut told = false;
        loop {
            let seen = self.look(&args.dir, &args.pattern)?;
            if has_policy {
                self.settling.look(self.start.elapsed(), &seen.entries, |_| Duration::ZERO);
                return self.name_left(context, &seen);
            }
            self.turn(context, &seen, &go_on)?;
            let left = self.settling.unfinished().len();
            if left == 0 || self.start.elapsed() >= end {
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

    /// Reports each uncommitted checkpoint, with the command that commits it.
    fn name_left(&self, context: &mut Context, seen: &Look) -> Result<()> {
        let left = self.settling.unfinished();
        let is_left = |name: &str| left.contains(&name);
        for found in seen.entries.iter().filter(|f| is_left(&f.name)) {
            if check(found) != Whole::NoTensors {
                say(context, "left", &found.name, "it is not committed yet; the same command with --once takes it")?;
            }
        }
        Ok(())
    }
}
