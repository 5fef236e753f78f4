//! Shutdown of a watch: checkpoints that are there by then are committed once they have settled, or reported.

use super::{
    Args, NAP, Watch,
    tell::say,
    whole::{Whole, check},
};
use crate::{checkpoints::find::Look, commands::prelude::*};
use std::{sync::atomic::AtomicBool, thread::sleep, time::Duration};

/// Job schedulers kill a process that does not end soon after SIGTERM.
const LIMIT: Duration = Duration::from_secs(60);

impl Watch {
    /// Commits what settles in time and returns the names of what is left. Hurried, it takes a minute at most, and
    /// under a policy, whose search may take hours, what is left is only reported.
    pub fn drain(&mut self, context: &mut Context, args: &Args, hurried: bool) -> Result<Vec<String>> {
        let patience = args.settle + 2 * args.interval;
        let most = if hurried { patience.min(LIMIT) } else { patience };
        let (mut end, go_on) = (self.start.elapsed() + most, AtomicBool::new(false));
        let policy = |repo: Repo| -> Result<bool> { Ok(self.lossy.plan(&repo)?.is_some()) };
        // Without a repository nothing can be committed either.
        let only_report = hurried && context.repo().and_then(policy).unwrap_or(true);
        self.keep = None;
        let mut told = false;
        let mut before = usize::MAX;
        loop {
            let seen = self.look(&args.dir, &args.pattern)?;
            if only_report {
                self.settling.look(self.start.elapsed(), &seen.entries, |_| Duration::ZERO);
                return self.name_left(context, &seen);
            }
            self.turn(context, &seen, &go_on)?;
            let left = self.settling.unfinished().len();
            if !hurried && left < before {
                end = self.start.elapsed() + most;
            }
            before = left;
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
