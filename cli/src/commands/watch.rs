//! `mdl watch`: commits the checkpoints that a training framework writes into a directory.

mod beside;
mod command;
mod drain;
mod known;
mod quit;
mod remove;
mod settle;
mod take;
mod tell;
mod turn;

use super::{lossy_options::LossyOptions, prelude::*, provenance_options::ProvenanceOptions};
use crate::checkpoints::find::WatchedEntry;
use known::KnownCheckpoints;
use quit::Quit;
use settle::Settling;
use std::{
    collections::HashMap,
    ffi::OsString,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};
use tell::say;

/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Commit each checkpoint that appears in a directory, once it is completely written
///
/// Every entry of DIR is a checkpoint if it has tensors: a directory (checkpoint-500, global_step200) or a file (.ckpt,
/// .pt, .pth, .bin, .safetensors, .npz, .gguf). It is committed when it was renamed from a temporary name (tmp-*,
/// .tmp*, *.tmp, *.part*, *.incomplete), or when nothing in it has changed for --settle seconds; and only if all files
/// in it scan undamaged. The step is that of trainer_state.json, which also gives epoch and metrics, or of the name:
/// checkpoint-500, step_500, ba500, iter_0000500.
///
/// The directory is looked at again and again, so any file system will do. What is on the branch already is not
/// committed again, also after a restart or a kill. Ctrl-C (or SIGTERM) ends once what is there has settled and is
/// committed, within a minute, and names what is left; a second one ends at once. Under a policy it ends after the
/// commit that runs; a checkpoint for which the evaluator gives no number is committed exactly. With --json each commit
/// is a document of one line. --resumed-from is said of the first commit.
///
/// After `--` comes the training command, which is run. It gets the signals that are sent to the watch, runs on if the
/// watch fails, and its end is the end of the watch: what it left is committed once it has settled, also after an
/// error, under a policy too. A scheduler that signals every process of a job signals the command twice, itself and
/// through the watch, unless it is told to signal the watch alone (`scancel --batch`, systemd's KillMode=mixed). The
/// exit code is the command's, 128+n if signal n killed it, 127 or 126 if it cannot be found or run; if it is 0 and a
/// checkpoint could not be committed, 1. Standard output is the command's, and what is committed is said on standard
/// error (with --json the other way round). What the command leaves in the background is not waited for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl watch out
  mdl watch out --pattern 'checkpoint-*' --branch run7 --remove --keep 2
  mdl watch out --once
  mdl watch out --remove --keep 2 -- python train.py --output_dir out
  mdl watch out --policy lossy --eval './evaluate.sh'")]
pub struct Args {
    /// Directory that checkpoints appear in.
    dir: PathBuf,
    /// Training command to run and to watch until its end.
    #[arg(last = true, value_name = "CMD", conflicts_with = "once")]
    command: Vec<OsString>,
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
    /// Remove originals once their versions are committed and every byte was compared. The newest stay, and so does
    /// what a link or the Trainer's best_model_checkpoint names. Under a policy replaced weights cannot be compared:
    /// there the version is read back, and the original must be what it was.
    #[arg(long)]
    remove: bool,
    /// Newest originals that stay.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "remove")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    #[command(flatten)]
    lossy: LossyOptions,
    #[command(flatten)]
    provenance: ProvenanceOptions,
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
    let wrong = |_| "a number of seconds from 0 up is wanted".to_owned();
    // Polling costs file system operations: without a pause it would slow training down.
    Ok(Duration::try_from_secs_f64(number).map_err(wrong)?.max(Duration::from_millis(10)))
}

/// State of a running watch.
#[derive(Debug)]
struct Watch {
    branch: String,
    lossy: LossyOptions,
    once: bool,
    /// Whether a command that was started may still make the directory.
    starts_writer: bool,
    /// How many originals to keep; none: all.
    keep: Option<usize>,
    resumed_from: Option<Id>,
    /// What each version says of where it comes from.
    provenance: Option<String>,
    known: KnownCheckpoints,
    settling: Settling,
    /// Originals that the branch holds.
    committed: HashMap<String, (WatchedEntry, Id)>,
    start: Instant,
    quit: Quit,
    /// Last message about the directory itself, so that none is repeated.
    said: String,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let mut watch = Watch {
        branch: branch(&repo, args.branch.clone())?,
        resumed_from: args.lossy.resumed_from(&repo)?,
        provenance: args.provenance.captured(&repo, words(&args.command))?,
        // Better exact than not at all: the trainer may delete it.
        lossy: args.lossy.keeping_on(),
        once: args.once,
        starts_writer: false,
        keep: args.remove.then_some(args.keep as usize),
        known: KnownCheckpoints::default(),
        settling: Settling::new(args.settle),
        committed: HashMap::new(),
        start: Instant::now(),
        quit: Quit::default(),
        said: String::new(),
    };
    // A missing policy fails now, not at the first checkpoint.
    watch.lossy.plan(&repo)?;
    if args.remove && args.dir.is_dir() {
        watch.known.refresh(&repo, &watch.branch)?;
        remove::resume(context, &repo, &watch.known, &args.dir)?;
    }
    context.bars.stop_when(watch.quit.flag.clone());
    // Between commits other processes may use the index.
    drop(repo);
    if !args.command.is_empty() {
        return watch.beside(context, args);
    }
    let stop = quit::listen(&watch.quit)?;
    context.bars.leave_when(stop.clone());
    loop {
        let seen = watch.look(&args.dir, &args.pattern)?;
        watch.turn(context, &seen, &stop)?;
        if args.once && !watch.settling.pending() {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            watch.drain(context, args, &stop)?;
            break;
        }
        nap(args.interval, &stop);
    }
    for name in watch.settling.unfinished().into_iter().filter(|_| args.once) {
        say(context, "skipped", name, "it is still being written")?;
    }
    Ok(())
}

/// Returns the branch to commit to, decided once: a later `mdl switch` does not redirect a watch.
fn branch(repo: &Repo, asked: Option<String>) -> Result<String> {
    if let Some(name) = asked {
        mdl_repo::check_ref_name(&name)?;
        return Ok(name);
    }
    present_branch(repo)?.ok_or_else(|| CliError::usage("HEAD is on no branch", "name one with --branch NAME"))
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
