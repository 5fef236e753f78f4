//! `mdl import`: the history of another system becomes versions of a branch.

use super::prelude::*;
use crate::{
    import::{self, Imported, Kind, Report, Request, Scratch},
    render::ratio,
};
use std::rc::Rc;

/// Bring versions from another system, oldest first
///
/// SOURCE is a directory with the checkpoints of a run (each entry a version, in the order of its steps, with step,
/// epoch and metrics as `mdl watch` finds them); a git repository, with git-lfs or without; one with DVC; W&B artifacts
/// with their manifests or without; a model on a Hugging Face Hub (OWNER/NAME, or a URL) with its commits, or in the
/// cache of huggingface_hub. What it is shows by itself; --from says it.
///
/// Messages, authors, dates and tags come along. Everything is verified by the ids that the source has for it (SHA-256
/// of git-lfs and the Hub, MD5 of DVC and W&B, git's own); a checkpoint without such ids that is not whole is left out.
/// Nothing of the source is changed. What is on the branch already is not imported again: after a kill the same command
/// goes on. docs/import.md has the details of each kind.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl import out                                # the checkpoints of a run
  mdl import ../models-git --branch from-lfs    # a git repository with git-lfs
  mdl import ada/gpt --revision main            # from the Hub (HF_ENDPOINT, HF_TOKEN)
  mdl import ~/.cache/huggingface/hub/models--ada--gpt")]
pub struct Args {
    /// Directory, name or URL to import from.
    source: String,
    /// What the source is.
    #[arg(long, value_enum, value_name = "KIND")]
    from: Option<Kind>,
    /// Branch to commit to, made if it is new. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Branch, tag or commit of a git repository or Hub model whose history is imported. Default: HEAD, or main.
    #[arg(long, value_name = "REV", value_parser = crate::args::revision)]
    revision: Option<String>,
    /// Where the source's contents lie, if not in their usual place: git-lfs's objects, DVC's or W&B's cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Address of the Hub, which gets HF_TOKEN. Default: HF_ENDPOINT, else huggingface.co.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Only list the versions that the source has.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let repo = context.repo()?;
    let branch = match &args.branch {
        Some(name) => name.clone(),
        None => {
            present_branch(&repo)?.ok_or_else(|| CliError::usage("HEAD is on no branch", "name one with --branch"))?
        }
    };
    mdl_repo::check_ref_name(&branch)?;
    let scratch = Rc::new(Scratch::make(&repo, &args.source)?);
    let request = Request {
        place: args.source.clone(),
        revision: args.revision.clone(),
        cache: args.cache.clone(),
        endpoint: args.endpoint.clone(),
        scratch: scratch.clone(),
    };
    let (kind, mut source) = import::open(args.from, request)?;
    if args.dry_run {
        return list(context, kind, source.as_mut());
    }
    let report = import::run(context, &repo, source.as_mut(), &branch, &mut |context, imported| {
        if !context.chatty() || context.global.json {
            return Ok(());
        }
        let (id, stored) = (context.paint.yellow(&imported.done.id.short()), entry::stored(&imported.done.summary));
        writeln!(context.out, "{id} {}  {stored}", subject(&imported.message))?;
        context.finish()
    })?;
    drop(source);
    Rc::into_inner(scratch).into_iter().for_each(Scratch::remove);
    tell(context, kind, &branch, &report)
}

fn list(context: &mut Context, kind: Kind, source: &mut dyn import::Source) -> Result<()> {
    let versions = source.versions()?;
    if context.global.json {
        let rows: Vec<Value> = versions
            .iter()
            .map(|v| {
                let (step, metrics) = (v.step, &v.metrics);
                json!({"source": v.key, "message": v.message, "step": step, "metrics": metrics, "tags": v.tags})
            })
            .collect();
        return context.json(&json!({"kind": kind.name(), "versions": rows}));
    }
    writeln!(context.out, "{} ({}):", count(versions.len() as u64, "version"), kind.name())?;
    for version in &versions {
        let step = version.step.map_or_else(String::new, |s| format!("  [step {s}]"));
        let short = &version.key[..version.key.char_indices().nth(12).map_or(version.key.len(), |(at, _)| at)];
        writeln!(context.out, "  {}  {}{step}", visible(short), subject(&version.message))?;
    }
    Ok(())
}

fn tell(context: &mut Context, kind: Kind, branch: &str, r: &Report) -> Result<()> {
    if context.global.json {
        let row = |i: &Imported| {
            json!({
                "source": i.key,
                "commit": i.done.id.to_hex(),
                "step": i.step,
                "logical_bytes": i.done.summary.logical_bytes,
                "stored_bytes": i.done.summary.stored_bytes,
            })
        };
        return context.json(&json!({
            "kind": kind.name(),
            "branch": branch,
            "imported": r.imported.iter().map(row).collect::<Vec<_>>(),
            "known": r.known,
            "logical_bytes": r.logical_bytes,
            "source_bytes": r.source_bytes,
            "stored_bytes": r.stored_bytes,
            "tags": r.tags,
            "notes": r.notes,
        }));
    }
    for note in &r.notes {
        context.note(&format!("note: {}", visible(note)));
    }
    if !context.chatty() {
        return Ok(());
    }
    let known = if r.known > 0 { format!(", {} were there already", r.known) } else { String::new() };
    let versions = count(r.imported.len() as u64, "version");
    writeln!(context.out, "Imported {versions} from {} to {branch}{known}", kind.name())?;
    if !r.imported.is_empty() {
        let smaller = |bytes: u64| format!("{} ({} smaller)", size(bytes), ratio(bytes, r.stored_bytes));
        writeln!(context.out, "  as files           {}", smaller(r.logical_bytes))?;
        if kind != Kind::Folder {
            writeln!(context.out, "  each content once  {}", smaller(r.source_bytes))?;
        }
        writeln!(context.out, "  stored here        {}", size(r.stored_bytes))?;
    }
    if !r.tags.is_empty() {
        writeln!(context.out, "  tags               {}", r.tags.join(", "))?;
    }
    Ok(())
}
