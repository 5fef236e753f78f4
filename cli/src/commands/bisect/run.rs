//! `mdl bisect run`: tests versions by a command until the first bad one is found.

use super::{
    tell,
    trial::{Room, Trial},
};
use crate::commands::prelude::*;
use mdl_repo::{Noise, Outlook, Verdict};
use std::{ffi::OsString, thread};

/// How often a verdict is wrong, where that is not said.
const RATE: f64 = 0.1;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command runs in a directory with the version's files, which is also in MDL_BISECT_DIR; MDL_BISECT_COMMIT is the
version's id and MDL_BISECT_FROM the directory that `mdl bisect run` was started in.

Exit codes: 0 good, 1 to 127 bad, but 125: it cannot be tested. Any other stops the bisection, which goes on when it is
run again.

--repeat is for verdicts that may be wrong. It assumes that each is wrong with the same probability (--noise), whatever
the version and the other verdicts, and tests the version that splits what is probable in two; it ends once a version is
the first bad one with 99 %, or after N tests for each step that a bisection without noise would take.")]
pub struct Args {
    /// Check out only what matches this glob, such as '*.safetensors'; may be given again.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Test N versions at the same time: the ones that split what is left into N + 1 parts.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// Verdicts may be wrong: test up to N times as often.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: Option<u32>,
    /// With --repeat: probability of a wrong verdict, above 0 and below 0.5.
    #[arg(long, value_name = "P", requires = "repeat", default_value_t = RATE)]
    noise: f64,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(CliError::usage("no command is named", ""));
    };
    if let Some(repeat) = args.repeat.filter(|n| *n > 1) {
        mdl_repo::bisect_with_noise(&repo, Noise { repeat, rate: args.noise })?;
    }
    let noisy = mdl_repo::bisection(&repo)?.is_some_and(|b| b.noise.is_some());
    let room = Room::take(&repo)?;
    let quiet_output = context.global.json;
    let trial = Trial { repo: &repo, room: &room, program, args: rest, only: &args.only, quiet_output };
    let (mut trials, mut rounds) = (0usize, 0usize);
    loop {
        let outlook = mdl_repo::bisect_next(&repo, args.jobs as usize)?;
        let Outlook::Test { commits, .. } = &outlook else {
            return end(context, &repo, &outlook, trials, rounds);
        };
        context.note(&tell::lines_of(&repo, &outlook).join("\n"));
        rounds += 1;
        let verdicts = thread::scope(|scope| {
            let running: Vec<_> = commits
                .iter()
                .enumerate()
                .map(|(n, id)| {
                    (
                        *id,
                        scope.spawn({
                            let trial = &trial;
                            move || trial.verdict(id, n)
                        }),
                    )
                })
                .collect();
            let failed = || crate::commands::refused("a trial ended unexpectedly", "");
            let join =
                |(id, t): (Id, thread::ScopedJoinHandle<'_, _>)| (id, t.join().unwrap_or_else(|_| Err(failed())));
            running.into_iter().map(join).collect::<Vec<(Id, Result<Verdict>)>>()
        });
        let mut error = None;
        for (id, verdict) in verdicts {
            match verdict {
                Ok(verdict) => {
                    trials += 1;
                    context.note(&format!("{}: {}", verdict.name(), id.short()));
                    note(&repo, id, verdict, noisy)?;
                }
                Err(e) => error = error.or(Some(e)),
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
    }
}

/// Notes a verdict. One of a round may be on a version that an earlier one of the same round has ruled out.
fn note(repo: &Repo, id: Id, verdict: Verdict, noisy: bool) -> Result<()> {
    Ok(mdl_repo::bisect_mark(repo, &[id], verdict, noisy && verdict != Verdict::Skip)?)
}

fn end(context: &mut Context, repo: &Repo, outlook: &Outlook, trials: usize, rounds: usize) -> Result<()> {
    if let Outlook::Waiting { .. } = outlook {
        let hint = tell::lines_of(repo, outlook).join("; ");
        return Err(crate::commands::refused("nothing can be tested before a bad and a good version are known", hint));
    }
    let document = || {
        let mut document = tell::json_of(outlook);
        document["trials"] = trials.into();
        document["rounds"] = rounds.into();
        Ok(document)
    };
    if context.wants_text(document)? {
        context.print(&tell::lines_of(repo, outlook))?;
        writeln!(context.out, "{}", count(trials as u64, "test"))?;
    }
    Ok(())
}
