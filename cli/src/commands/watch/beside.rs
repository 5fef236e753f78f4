//! A watch beside the training command that it runs: whatever becomes of the watch, the command runs on to its end.

use super::{Args, Watch, command::Running, nap, tell::say};
use crate::{commands::prelude::*, errors::report};
use mdl_repo::ErrorKind;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};

impl Watch {
    /// Runs the command, commits meanwhile and after its end, and ends as it did.
    ///
    /// # Errors
    /// The command's exit code where that is not 0, else why something is not committed.
    pub fn beside(&mut self, context: &mut Context, args: &Args) -> Result<()> {
        self.starts_writer = true;
        let running = Running::start(context, &args.command, &self.quit)?;
        // A commit that waits for room on the disk is given up once the command has ended.
        context.bars.leave_when(running.ended.clone());
        if !context.global.json {
            context.leave_standard_output()?;
        }
        let mut said = String::new();
        while !running.ended.load(Ordering::Relaxed) {
            let pass = guarded(|| {
                let seen = self.look(&args.dir, &args.pattern)?;
                self.turn(context, &seen, &running.ended)
            });
            match pass {
                Ok(()) => said.clear(),
                Err(error) if said == error.message() => {}
                Err(error) => {
                    report(context, &error);
                    context.note("note: the command runs on; the watch tries again");
                    said = error.message();
                }
            }
            nap(args.interval, &running.ended);
        }
        let asked = running.asked.clone();
        let ended = running.exit_code();
        if let Ok(code @ 1..) = ended {
            context.note(&format!("note: {} ended with exit code {code}", args.command[0].display()));
        }
        self.starts_writer = false;
        let left = guarded(|| self.finish(context, args, &asked));
        let why = match ended {
            Ok(0) => return left,
            Ok(code) => CliError::Ended(code),
            Err(error) => error,
        };
        if let Err(error) = left {
            report(context, &error);
        }
        Err(why)
    }

    /// Commits what the command left.
    fn finish(&mut self, context: &mut Context, args: &Args, hurried: &AtomicBool) -> Result<()> {
        if !args.dir.exists() {
            let why = "the command made no such directory: nothing is committed";
            return say(context, "missing", &args.dir.display().to_string(), why);
        }
        let left = self.drain(context, args, hurried)?;
        if left.is_empty() {
            return Ok(());
        }
        let message = format!("{} not committed: {}", count(left.len() as u64, "checkpoint"), left.join(", "));
        let hint = format!("`mdl watch {} --once` commits what is whole", args.dir.display());
        Err(CliError::Own { kind: ErrorKind::User, message, hint })
    }
}

/// A panic is an error as well: the command must not lose the process that waits for it.
fn guarded(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "the watch failed: this is a bug".to_owned();
        Err(CliError::Own { kind: ErrorKind::Io, message, hint: String::new() })
    })
}
