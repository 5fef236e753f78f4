//! `mdl free`: makes room on the disk, in an order that needs none.

use super::{
    prelude::*,
    prune::{line, list},
    retention_options::{RetentionOptions, To},
};
use crate::render::parse_size;
use mdl_repo::{ErrorKind, FreeOptions, FreeReport, Level, Wanted};
use std::io::{self, IsTerminal};

/// Free so much of the disk now, what costs nothing first
///
/// How much is a size (20GB, 512MiB) or a part of what the repository takes (25%). It goes in this order, and no
/// further than it must: the cache of decoded tensors; what `mdl gc` would delete; what only the time of grace and the
/// reflog still hold; then versions that no rule keeps, the oldest first, and only as many as it takes. Without a rule
/// no version goes. What a branch, tag or HEAD points at always stays.
///
/// Nothing is written that there is no room for: on a full disk packs are rewritten one by one, each when the one
/// before is gone. Tensors that stay and are stored as differences to what goes are encoded anew last, if there is room
/// by then.
///
/// Unlike `mdl prune`, this cannot be undone: the versions that go are listed, and it asks first (--yes: it does not).
/// If less can be freed than is wanted, it frees that, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl free 20GB --dry-run
  mdl free 20GB --keep-latest 3 --keep-every-steps 10000
  mdl free 50% --keep-latest 1 --to weights --yes")]
pub struct Args {
    /// How much: a size, or a percentage of what the repository takes.
    #[arg(value_name = "SIZE|PERCENT", value_parser = wanted)]
    wanted: Wanted,
    #[command(flatten)]
    rules: RetentionOptions,
    /// What is left of versions that no rule keeps.
    #[arg(long, value_enum, default_value_t = To::Gone, value_name = "LEVEL")]
    to: To,
    /// Only say what would go.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,
}

fn wanted(text: &str) -> std::result::Result<Wanted, String> {
    let Some(percent) = text.trim().strip_suffix('%') else { return parse_size(text).map(Wanted::Bytes) };
    let number = percent.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
    number.map(Wanted::Percent).ok_or_else(|| "a percentage from 0% to 100% is wanted".to_owned())
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let mut options =
        FreeOptions { dry_run: true, wanted: args.wanted, rules: args.rules.rules(), to: args.to.into(), among: None };
    let plan = mdl_repo::free(&repo, &options, &context.bars)?;
    if args.dry_run {
        return tell(context, &plan);
    }
    if plan.freed_bytes > 0 && !args.yes {
        confirm(context, &plan)?;
    }
    // What is counted from the plan's state on is what was asked for, and no other version goes than was named.
    options.dry_run = false;
    options.wanted = Wanted::Bytes(plan.wanted_bytes);
    options.among = Some(plan.pruned.iter().map(|p| p.commit).collect());
    let done = mdl_repo::free(&repo, &options, &context.bars)?;
    tell(context, &done)
}

/// Lists what would go, and asks.
fn confirm(context: &mut Context, plan: &FreeReport) -> Result<()> {
    if context.global.json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let message = "what is freed cannot be taken back, and there is no terminal to ask at";
        return Err(CliError::usage(message, "--dry-run shows what would go; --yes does it"));
    }
    if context.chatty() && !context.global.json {
        print(context, plan)?;
        context.finish()?;
    }
    let mut err = io::stderr();
    write!(err, "Free {}? This cannot be taken back. [y/N] ", size(plan.freed_bytes))?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(refused("nothing was freed", "")),
    }
}

fn tell(context: &mut Context, r: &FreeReport) -> Result<()> {
    if context.wants_text(|| Ok(json_of(r)))? {
        print(context, r)?;
    }
    let missing = r.missing_bytes();
    if missing == 0 {
        return Ok(());
    }
    let hint = match (r.room_wanted_bytes, r.kept_versions) {
        (0, 0) => "name rules for what may go, such as --keep-latest 3: without any, no version goes".to_owned(),
        (0, _) => "let rules keep less, or delete branches and tags that hold versions (`mdl stats`)".to_owned(),
        (room, _) => format!("the rest has to be written anew first, which takes {} of room for a while", size(room)),
    };
    let message = format!("{} less than wanted", size(missing));
    Err(CliError::Own { kind: ErrorKind::User, message, hint })
}

/// The report with what is missing.
fn json_of(r: &FreeReport) -> Value {
    let mut document = json!(r);
    document["missing_bytes"] = r.missing_bytes().into();
    document
}

fn print(context: &mut Context, r: &FreeReport) -> Result<()> {
    if r.freed_bytes == 0 && r.held_bytes == 0 {
        return Ok(writeln!(context.out, "Nothing to free of {}", size(r.stored_bytes_before))?);
    }
    let verb = if r.dry_run { "Would free" } else { "Freed" };
    writeln!(context.out, "{verb} {} of {}:", size(r.freed_bytes), size(r.stored_bytes_before))?;
    let versions = count(r.pruned.len() as u64, "version");
    let left = match r.to {
        Level::Gone => String::new(),
        to => format!(", down to {}", to.name()),
    };
    let steps = [
        (r.cache_bytes, "cache of decoded tensors, which later commits fill again".to_owned()),
        (r.garbage_bytes, "what nothing reaches".to_owned()),
        (
            r.grace_bytes,
            "what only the time of grace and the reflog hold: no undo of what was pruned before".to_owned(),
        ),
        (r.versions_bytes, format!("{versions} that no rule keeps{left}")),
        (r.base_bytes, "delta bases of what stays, which is encoded anew".to_owned()),
    ];
    for (bytes, what) in steps.iter().filter(|(bytes, _)| *bytes > 0) {
        writeln!(context.out, "{:>12}  {what}", size(*bytes))?;
    }
    if r.held_bytes > 0 {
        let held = size(r.held_bytes);
        writeln!(context.out, "{held:>12}  stay: delta bases of what stays, and no room to encode that anew")?;
    }
    list(context, r.pruned.iter().map(|p| line(p.commit, p.step, "")))
}
