//! Output of a watch as it happens: a line of text for people, or a line of JSON for programs.

use crate::{
    commands::{prelude::*, shared::Notes},
    render::entry::Entry,
};
use mdl_repo::Committed;
use std::io;

/// Prints one line of JSON and flushes it.
fn event(context: &mut Context, document: &Value) -> Result<()> {
    writeln!(context.out, "{document}")?;
    context.finish()
}

/// Reports what was not done, and why.
pub fn say(context: &mut Context, what: &str, name: &str, why: &str) -> Result<()> {
    if context.global.json {
        return event(context, &json!({"event": what, "source": name, "message": why}));
    }
    context.note(&visible(&format!("note: {name} is {what}: {why}")));
    Ok(())
}

pub fn committed(context: &mut Context, repo: &Repo, source: &str, done: &Committed) -> Result<()> {
    let commit = repo.odb().commit(&done.id)?;
    // Names and prunings are of no interest in a version that was made just now.
    let notes = Notes::default();
    if context.global.json {
        let mut document = entry::json(repo.odb(), &notes, &done.id, &commit)?;
        document.as_object_mut().map(|map| map.remove("refs"));
        document["event"] = "committed".into();
        document["source"] = source.into();
        document["branch"] = json!(done.branch);
        return event(context, &document);
    }
    if !context.chatty() {
        return Ok(());
    }
    writeln!(context.out, "{}", Entry::new(repo.odb(), &notes, &done.id, &commit)?.short(context.paint))?;
    for warning in done.quality.iter().flat_map(|q| &q.warnings) {
        context.note(&format!("warning: {warning}"));
    }
    context.finish()
}

pub fn removed(context: &mut Context, source: &str, commit: &Id) -> Result<()> {
    if context.global.json {
        return event(context, &json!({"event": "removed", "source": source, "commit": commit.to_hex()}));
    }
    if context.chatty() {
        writeln!(context.out, "removed {} ({})", visible(source), commit.short())?;
    }
    context.finish()
}

/// Reports a checkpoint that could not be committed, also with `--quiet`.
pub fn failed(context: &mut Context, source: &str, kind: &str, why: &str, again: bool) -> Result<()> {
    if context.global.json {
        let error = json!({"kind": kind, "message": why});
        return event(context, &json!({"event": "failed", "source": source, "error": error}));
    }
    let paint = context.error_paint();
    let then = match (again, kind) {
        (true, _) => "it is tried again",
        (false, "damaged") => "it is tried again when it changes; `mdl commit` with --allow-damaged takes it as it is",
        (false, _) => "it is tried again when it changes",
    };
    let line = format!("{source}: not committed: {why}; {then}");
    // If standard error is closed there is nowhere to say so.
    let _ = writeln!(io::stderr(), "{} {}", paint.red("error:"), visible(&line));
    Ok(())
}
