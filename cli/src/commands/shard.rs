//! `mdl shard`: ranks on many hosts store their own files, one final call commits them as one version.

use super::{commit_fields::CommitFields, prelude::*, shared::refuse_repository};
use crate::{args::revision, render::rfc3339_ms};
use mdl_objects::{Commit, Summary};
use mdl_repo::{CommitRequest, Committed, JoinRequest, Session, Shard, ShardRequest};

/// Commit a checkpoint whose files lie on many hosts
///
/// Each rank puts its own files under a session's name that all of them agree on; when all have, one `join` makes one
/// version of them and moves the branch. A rank that dies leaves no version: start it again and let it put again. A
/// `join` that is cut off, or run twice, may be run again: there is one version, and it says which.
///
/// A file belongs to one rank, whole. What is never joined is taken away by `mdl gc`, once its time of grace is over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl shard put --session run7/2000 --rank $RANK out/rank-$RANK
  mdl shard join --session run7/2000 --ranks 8 --step 2000 --metric loss=0.38
  mdl shard list")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Store a rank's files, durably, in no version yet
    Put(Put),
    /// Make one version of what all ranks have put
    Join(Join),
    /// List the sessions, finished ones until `mdl gc` takes them away
    List,
}

#[derive(Debug, clap::Args)]
struct Put {
    /// The session, a name like a branch's: a new one for each version.
    #[arg(long, value_name = "NAME")]
    session: String,
    /// This rank, counted from 0. A rank that puts again replaces what it has put.
    #[arg(long, value_name = "N")]
    rank: u32,
    /// Directories whose contents, and files which, are this rank's part of the version.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The branch that the version is for: differences are stored to where it stands. Default: the present branch.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// The version that differences are stored to, the same for all ranks. Default: where the branch stands.
    #[arg(long, value_name = "REV", value_parser = revision)]
    parent: Option<String>,
    /// Put even if there are no files: a rank that has none is counted all the same.
    #[arg(long)]
    allow_empty: bool,
    /// Store checkpoint files that are damaged as plain bytes instead of refusing them.
    #[arg(long)]
    allow_damaged: bool,
    /// Store what symbolic links point at instead of refusing them.
    #[arg(long)]
    follow_symlinks: bool,
}

#[derive(Debug, clap::Args)]
struct Join {
    /// The session.
    #[arg(long, value_name = "NAME")]
    session: String,
    /// How many ranks there are: all of 0 to N-1 must have put.
    #[arg(long, value_name = "N")]
    ranks: u32,
    #[command(flatten)]
    fields: CommitFields,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    match &args.what {
        What::Put(args) => put(context, args),
        What::Join(args) => join(context, args),
        What::List => list(context),
    }
}

fn put(context: &mut Context, args: &Put) -> Result<()> {
    let repo = context.repo()?;
    for path in &args.paths {
        refuse_repository(&repo, path)?;
    }
    let request = ShardRequest {
        session: args.session.clone(),
        rank: args.rank,
        paths: args.paths.clone(),
        parent: args.parent.as_ref().map(|rev| mdl_repo::resolve(&repo, rev)).transpose()?,
        branch: args.branch.clone(),
        allow_empty: args.allow_empty,
        allow_damaged: args.allow_damaged,
        follow_symlinks: args.follow_symlinks,
        ..ShardRequest::default()
    };
    let done = mdl_repo::put_shard(&repo, &request, &context.bars)?;
    let Shard { session, rank, files, tensors, new_tensors, logical_bytes, stored_bytes, pack } = done;
    let summary = Summary { files, tensors, new_tensors, logical_bytes, stored_bytes };
    let document = json!({"session": session, "rank": rank, "pack": pack.map(|p| p.to_string())});
    let line = format!("rank {rank} of {}: {}", visible(&session), entry::stored(&summary));
    context.confirm(&entry::with_summary(document, &summary), line)
}

fn join(context: &mut Context, args: &Join) -> Result<()> {
    args.fields.check()?;
    let repo = context.repo()?;
    // The finisher runs unattended: it opens no editor.
    let unsaid = || Err(CliError::usage("no message is given", "say what this version is with -m TEXT or --step N"));
    let request =
        JoinRequest { session: args.session.clone(), ranks: args.ranks, commit: args.fields.clone().request(unsaid)? };
    let done = mdl_repo::join_shards(&repo, &request, &context.bars)?;
    let commit = repo.odb().commit(&done.id)?;
    tell(context, &request, &done, &commit)
}

fn tell(context: &mut Context, request: &JoinRequest, done: &Committed, commit: &Commit) -> Result<()> {
    let document = json!({
        "commit": done.id.to_hex(),
        "branch": done.branch,
        "parent": done.parent.map(|id| id.to_hex()),
        "session": request.session,
        "message": commit.message,
        "step": commit.step,
    });
    if !context.wants_text(|| Ok(entry::with_summary(document, &done.summary)))? {
        return Ok(());
    }
    let branch = done.branch.as_deref().unwrap_or("detached HEAD");
    let id = context.paint.yellow(&done.id.short());
    writeln!(context.out, "[{branch} {id}] {}", subject(&commit.message))?;
    writeln!(context.out, " {}", entry::stored(&done.summary))?;
    if said_otherwise(&request.commit, commit) {
        context.note("note: the session was finished before; what was said of the version then stands");
    }
    Ok(())
}

fn said_otherwise(request: &CommitRequest, commit: &Commit) -> bool {
    (&request.message, request.step, &request.metrics) != (&commit.message, commit.step, &commit.metrics)
}

fn list(context: &mut Context) -> Result<()> {
    let sessions = mdl_repo::sessions(&context.repo()?)?;
    if context.global.json {
        let all: Vec<Value> = sessions.iter().map(document).collect();
        return context.json(&json!({ "sessions": all }));
    }
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right, Align::Left, Align::Left]);
    for s in &sessions {
        table.row([
            visible(&s.name),
            count(s.ranks.len() as u64, "rank"),
            size(s.logical_bytes),
            s.time_ms.map_or_else(String::new, rfc3339_ms),
            s.commit.map_or_else(|| "not finished".to_owned(), |id| format!("finished: {}", id.short())),
        ]);
    }
    context.print(&table.lines(0))
}

fn document(s: &Session) -> Value {
    json!({
        "session": s.name,
        "ranks": s.ranks,
        "files": s.files,
        "logical_bytes": s.logical_bytes,
        "stored_bytes": s.stored_bytes,
        "date": s.time_ms.map(rfc3339_ms),
        "commit": s.commit.map(|id| id.to_hex()),
    })
}
