//! `mdl notes`: metrics and texts on versions that exist already.

use super::prelude::*;
use crate::{args::revision, render::json_number, render::rfc3339_ms};
use mdl_repo::{Note, NoteValue, VersionNotes, note_value};
use std::collections::BTreeMap;

/// Note metrics and texts on a version after it was committed
///
/// For evaluations that finish later, and links to runs in a tracker. The version and its id stay what they are; what
/// is noted stands beside what it was committed with, and of the same name in its place: in `log`, `show`,
/// `@best(...)`, retention rules, the pages and the API. Fetches, pushes and clones bring notes along. Where two places
/// noted the same key, the later note counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl notes add main~3 acc=0.91 mmlu=0.47
  mdl notes add v1.0 wandb=https://wandb.ai/team/project/runs/4f3a
  mdl notes show main~3
  mdl notes remove main~3 mmlu")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Note values on a version: a number is a metric, anything else a text
    Add(Add),
    /// Show what is noted on a version, by whom and when
    Show(Show),
    /// List the versions that something is noted on
    List,
    /// Remove what is noted on a version
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Revision.
    #[arg(value_parser = revision)]
    rev: String,
    /// What to note: KEY=VALUE.
    #[arg(required = true, value_name = "KEY=VALUE")]
    values: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Revision.
    #[arg(default_value = "HEAD", value_parser = revision)]
    rev: String,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Revision.
    #[arg(value_parser = revision)]
    rev: String,
    /// Keys. Default: all that is noted on the version.
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    match &args.what {
        What::Add(args) => add(context, args),
        What::Show(args) => show(context, args),
        What::List => list(context),
        What::Remove(args) => remove(context, args),
    }
}

fn pair(text: &str) -> Result<(String, Option<NoteValue>)> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), Some(note_value(value)))),
        None => Err(CliError::usage(format!("{text:?} has no value"), "write KEY=VALUE, such as acc=0.91")),
    }
}

fn add(context: &mut Context, args: &Add) -> Result<()> {
    let values: BTreeMap<String, Option<NoteValue>> =
        args.values.iter().map(|text| pair(text)).collect::<Result<_>>()?;
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let changed = mdl_repo::set_notes(&repo, &id, &values, None)?;
    confirm(context, &repo, &id, changed, "Noted on")
}

fn remove(context: &mut Context, args: &Remove) -> Result<()> {
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let all = mdl_repo::notes(&repo)?;
    if let Some(key) = args.keys.iter().find(|key| all.on(&id).all(|(k, ..)| k != key.as_str())) {
        return Err(super::refused(
            format!("nothing is noted on {} as {key:?}", id.short()),
            format!("`mdl notes show {}` shows what is", id.short()),
        ));
    }
    let changed = mdl_repo::remove_notes(&repo, &id, &args.keys)?;
    confirm(context, &repo, &id, changed, "Removed from")
}

fn confirm(context: &mut Context, repo: &Repo, id: &Id, changed: bool, what: &str) -> Result<()> {
    let document = || {
        let notes = mdl_repo::notes(repo)?;
        Ok(json!({"commit": id.to_hex(), "changed": changed, "notes": of_version(&notes, id)}))
    };
    if !context.wants_text(document)? {
        return Ok(());
    }
    let line = if changed { format!("{what} {}", id.short()) } else { "Nothing changes".to_owned() };
    Ok(writeln!(context.out, "{line}")?)
}

fn of_version(notes: &VersionNotes, id: &Id) -> Value {
    let one = |(key, note, value): (&str, &Note, &NoteValue)| {
        let value = match value {
            NoteValue::Metric(v) => json_number(*v),
            NoteValue::Text(text) => json!(text),
        };
        (key.to_owned(), json!({"value": value, "date": rfc3339_ms(note.time_ms), "by": note.by}))
    };
    Value::Object(notes.on(id).map(one).collect())
}

fn show(context: &mut Context, args: &Show) -> Result<()> {
    let repo = context.repo()?;
    let id = mdl_repo::resolve(&repo, &args.rev)?;
    let notes = mdl_repo::notes(&repo)?;
    if context.global.json {
        return context.json(&json!({"commit": id.to_hex(), "notes": of_version(&notes, &id)}));
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for (key, note, value) in notes.on(&id) {
        let who = format!("{}, {}", visible(&note.by), rfc3339_ms(note.time_ms));
        table.row([visible(key), visible(&value.to_string()), context.paint.dim(&who)]);
    }
    context.print(&table.lines(0))
}

fn list(context: &mut Context) -> Result<()> {
    let repo = context.repo()?;
    let notes = mdl_repo::notes(&repo)?;
    if context.global.json {
        let all = notes.versions().map(|id| json!({"commit": id.to_hex(), "notes": of_version(&notes, id)}));
        return context.json(&json!({"versions": all.collect::<Vec<_>>()}));
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for id in notes.versions() {
        // Notes may come before the version that they are about.
        let title = repo.odb().commit(id).map_or_else(|_| "(not here)".to_owned(), |c| subject(&c.message));
        let keys: Vec<&str> = notes.on(id).map(|(key, ..)| key).collect();
        table.row([context.paint.yellow(&id.short()), visible(&keys.join(", ")), title]);
    }
    context.print(&table.lines(0))
}
