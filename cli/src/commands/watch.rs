//! `mdl watch`: what a training framework drops into a directory becomes versions. Neighbours: the rooms beside it: `find` looks, `settle`
//! waits, `whole` reads headers, `take` commits, `remove` clears up. It must not know how a framework writes.

mod find;
mod known;
mod name;
mod remove;
mod settle;
mod take;
mod trainer;
mod whole;

use super::contract::Contract;
use crate::{
    context::Context,
    errors::{CliError, Result},
    render::{entry, visible},
};
use find::{Found, Look, look};
use known::Known;
use mdl_objects::Id;
use mdl_repo::{Committed, Head, Repo, RepoError};
use serde_json::{Value, json};
use settle::Settling;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::{
    collections::HashMap,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use take::Taken;

/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Commit each checkpoint that appears in a directory, once it is completely written
///
/// Every entry of DIR is a checkpoint if it has tensors: a directory (checkpoint-500, global_step200) or a file (.ckpt, .pt, .pth, .bin,
/// .safetensors, .npz, .gguf). It is committed when it was renamed from a temporary name (tmp-*, .tmp*, *.tmp, *.part*,
/// *.incomplete), or when nothing in it has changed for --settle seconds; and only if all files in it scan undamaged. The step
/// is that of trainer_state.json, which also gives epoch and metrics, or of the name: checkpoint-500, step_500, ba500, iter_0000500.
///
/// The directory is looked at again and again, so any file system will do. What is on the branch already is not committed again,
/// also after a restart or a kill. Ctrl-C ends after the commit that runs, a second one at once. With --json each commit is a document of
/// one line. --resumed-from is said of the first commit.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl watch out
  mdl watch out --pattern 'checkpoint-*' --branch run7 --remove --keep 2
  mdl watch out --once
  mdl watch out --policy lossy --eval './evaluate.sh'")]
pub struct Args {
    /// Directory that checkpoints appear in.
    dir: PathBuf,
    /// Only entries whose name matches (`*` any text, `?` any character); may be repeated.
    #[arg(long, value_name = "GLOB")]
    pattern: Vec<String>,
    /// Branch to commit to, made from the present commit if it is new. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    interval: Duration,
    /// Seconds that a checkpoint must be left alone before it counts as written.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    settle: Duration,
    /// Commit what is there and complete, then end.
    #[arg(long)]
    once: bool,
    /// Remove originals once their versions are committed and every byte was compared. The newest stay, and so does what a link or the
    /// Trainer's best_model_checkpoint names. Under a policy replaced weights cannot be compared: there the version is read back, and
    /// the original must be what it was.
    #[arg(long)]
    remove: bool,
    /// Newest originals that stay.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "remove", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    #[command(flatten)]
    contract: Contract,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
    let wrong = |_| "a number of seconds from 0 up is wanted".to_owned();
    // A look costs something; a file system that is polled without a pause is no use to training.
    Ok(Duration::try_from_secs_f64(number)
        .map_err(wrong)?
        .max(Duration::from_millis(10)))
}

/// A watch that goes on.
#[derive(Debug)]
struct Watch {
    branch: String,
    contract: Contract,
    resumed_from: Option<Id>,
    known: Known,
    settling: Settling,
    /// Originals that the branch holds.
    committed: HashMap<String, (Found, Id)>,
    start: Instant,
    /// What was last said of the directory itself.
    said: String,
}

pub fn run(context: &mut Context, args: Args) -> Result<()> {
    let repo = context.repo()?;
    let mut watch = Watch {
        branch: branch(&repo, args.branch)?,
        resumed_from: args.contract.resumed_from(&repo)?,
        contract: args.contract,
        known: Known::default(),
        settling: Settling::new(args.settle),
        committed: HashMap::new(),
        start: Instant::now(),
        said: String::new(),
    };
    // A policy that does not exist is better known now than in an hour.
    watch.contract.judged(&repo)?;
    let stop = stop_flag()?;
    if args.remove && args.dir.is_dir() {
        watch.known.refresh(&repo, &watch.branch)?;
        remove::resume(context, &repo, &watch.known, &args.dir)?;
    }
    // Between commits the index is left to others.
    drop(repo);
    loop {
        let seen = watch.look(&args.dir, &args.pattern, args.once)?;
        let keep = args.remove.then_some(args.keep as usize);
        watch.turn(context, &seen, args.once, keep, &stop)?;
        let done = args.once && !watch.settling.pending();
        if done || stop.load(Ordering::Relaxed) {
            break;
        }
        nap(args.interval, &stop);
    }
    for name in watch.settling.unfinished().into_iter().filter(|_| args.once) {
        say(context, "skipped", name, "it is still being written")?;
    }
    Ok(())
}

/// The branch is decided on once: `mdl switch` elsewhere does not redirect a watch.
fn branch(repo: &Repo, asked: Option<String>) -> Result<String> {
    if let Some(name) = asked {
        mdl_repo::check_ref_name(&name)?;
        return Ok(name);
    }
    match repo.refs().head()? {
        Head::Branch(name) => Ok(name),
        Head::Detached(_) => Err(CliError::usage("HEAD is on no branch", "name one with --branch NAME")),
    }
}

/// Set by Ctrl-C and SIGTERM; the second one ends the program as if nobody had listened.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let listen = |signal| {
        flag::register_conditional_default(signal, stop.clone())?;
        flag::register(signal, stop.clone())
    };
    for signal in [SIGINT, SIGTERM] {
        listen(signal).map_err(RepoError::io("cannot listen for signals"))?;
    }
    Ok(stop)
}

fn nap(interval: Duration, stop: &AtomicBool) {
    let end = Instant::now() + interval;
    while !stop.load(Ordering::Relaxed) {
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => break,
            left => sleep(left.min(NAP)),
        }
    }
}

/// How long ago the youngest file of a checkpoint was changed, by this machine's clock.
fn age(found: &Found) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as i128);
    Duration::from_nanos(u64::try_from(now - found.changed()).unwrap_or(0))
}

impl Watch {
    /// Looks at the directory. One that is not there may still be made, or its file system come back: that is said, and waited for.
    fn look(&mut self, dir: &Path, patterns: &[String], once: bool) -> Result<Look> {
        let failed = match look(dir, patterns) {
            Ok(look) => {
                self.said.clear();
                return Ok(look);
            }
            Err(e) if once && e.kind() == io::ErrorKind::NotFound => {
                return Err(RepoError::not_found("directory", dir.display()).into());
            }
            Err(e) if once || e.kind() == io::ErrorKind::NotADirectory => {
                return Err(RepoError::io(format!("cannot list {}", dir.display()))(e).into());
            }
            Err(e) => format!("cannot list {}: {e}; waiting for it", dir.display()),
        };
        if self.said != failed {
            let _ = writeln!(io::stderr(), "note: {}", visible(&failed));
            self.said = failed;
        }
        Ok(Look::default())
    }

    /// Takes what is ready after a look, and then clears up.
    fn turn(
        &mut self,
        context: &mut Context,
        seen: &Look,
        once: bool,
        keep: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<()> {
        // The clock of a file server may be wrong: only a single run goes by the age of files.
        let left_alone = |f: &Found| if once { age(f) } else { Duration::ZERO };
        let ready = self.settling.look(self.start.elapsed(), &seen.entries, left_alone);
        let there: HashMap<&str, &Found> = seen.entries.iter().map(|f| (f.name.as_str(), f)).collect();
        self.committed
            .retain(|name, (f, _)| there.get(name.as_str()).is_some_and(|now| now.stamp == f.stamp));
        if ready.is_empty() {
            return Ok(());
        }
        let repo = match context.repo() {
            Ok(repo) => repo,
            Err(error) if once => return Err(error),
            Err(error) => {
                for f in &ready {
                    self.failed(context, f, error.kind(), &error.message(), true)?;
                }
                return Ok(());
            }
        };
        for mut found in ready {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let taken = self.take(context, &repo, &mut found);
            self.tell(context, &repo, found, taken, once)?;
        }
        match keep {
            Some(keep) if !stop.load(Ordering::Relaxed) => self.clear(context, &repo, seen, keep, stop),
            _ => Ok(()),
        }
    }

    fn tell(&mut self, context: &mut Context, repo: &Repo, found: Found, taken: Taken, once: bool) -> Result<()> {
        match taken {
            Taken::Committed(done) => {
                committed(context, repo, &found, &done)?;
                self.settling.close(&found.name);
                self.committed.insert(found.name.clone(), (found, done.id));
            }
            Taken::Known(id) => {
                self.settling.close(&found.name);
                self.committed.insert(found.name.clone(), (found, id));
            }
            Taken::NoCheckpoint => self.settling.close(&found.name),
            // The next look sees that it is gone, or waits for it once more.
            Taken::Gone => say(context, "skipped", &found.name, "it was deleted before it was read")?,
            Taken::Changing => say(
                context,
                "skipped",
                &found.name,
                "it changed while it was read; it is tried again",
            )?,
            Taken::Failed { why, kind, again } => self.failed(context, &found, kind, &why, again && !once)?,
        }
        Ok(())
    }

    /// Says what is wrong with a checkpoint, once; the watch goes on.
    fn failed(&mut self, context: &mut Context, found: &Found, kind: &str, why: &str, again: bool) -> Result<()> {
        if !self.settling.failed(&found.name, self.start.elapsed(), why, again) {
            return Ok(());
        }
        if context.global.json {
            let error = json!({"kind": kind, "message": why});
            return event(
                context,
                &json!({"event": "failed", "source": found.name, "error": error}),
            );
        }
        let paint = context.error_paint();
        let then = if again {
            "it is tried again"
        } else {
            "it is tried again when it changes"
        };
        let line = format!("{}: not committed: {why}; {then}", found.name);
        // If standard error is closed there is nowhere to say so.
        let _ = writeln!(io::stderr(), "{} {}", paint.red("error:"), visible(&line));
        Ok(())
    }

    /// Removes the originals that need not stay.
    fn clear(&mut self, context: &mut Context, repo: &Repo, seen: &Look, keep: usize, stop: &AtomicBool) -> Result<()> {
        let all: Vec<Found> = self.committed.values().map(|(f, _)| f.clone()).collect();
        let stay = remove::staying(&all, keep, &seen.linked);
        let mut going: Vec<Found> = all.into_iter().filter(|f| !stay.contains(&f.name)).collect();
        going.sort_by_key(Found::order);
        for found in going {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Some((_, commit)) = self.committed.remove(&found.name) else {
                continue;
            };
            match remove::remove(context, repo, &self.branch, &found, &commit) {
                Ok(None) if context.global.json => {
                    event(
                        context,
                        &json!({"event": "removed", "source": found.name, "commit": commit.to_hex()}),
                    )?;
                }
                Ok(None) if context.chatty() => {
                    writeln!(context.out, "removed {} ({})", visible(&found.name), commit.short())?;
                    context.finish()?;
                }
                Ok(None) => {}
                Ok(Some(why)) => say(context, "kept", &found.name, &why)?,
                Err(error) => say(context, "kept", &found.name, &error.to_string())?,
            }
        }
        Ok(())
    }
}

/// One line of JSON, at once.
fn event(context: &mut Context, document: &Value) -> Result<()> {
    writeln!(context.out, "{document}")?;
    context.finish()
}

/// Says what did not happen, and why.
fn say(context: &mut Context, what: &str, name: &str, why: &str) -> Result<()> {
    if context.global.json {
        return event(context, &json!({"event": what, "source": name, "message": why}));
    }
    context.note(&visible(&format!("note: {name} is {what}: {why}")));
    Ok(())
}

fn committed(context: &mut Context, repo: &Repo, found: &Found, done: &Committed) -> Result<()> {
    let commit = repo.odb().commit(&done.id)?;
    if context.global.json {
        let mut document = entry::json(&done.id, &commit, &[]);
        if let Some(map) = document.as_object_mut() {
            map.remove("refs");
            map.insert("event".to_owned(), "committed".into());
            map.insert("source".to_owned(), found.name.clone().into());
            map.insert("branch".to_owned(), json!(done.branch));
        }
        return event(context, &document);
    }
    if !context.chatty() {
        return Ok(());
    }
    writeln!(context.out, "{}", entry::short(&done.id, &commit, &[], context.paint))?;
    for warning in done.quality.iter().flat_map(|q| &q.warnings) {
        context.note(&format!("warning: {warning}"));
    }
    context.finish()
}
