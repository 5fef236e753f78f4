//! `mdl clone`: copies a remote repository.

use super::{carried, elsewhere, received_json, scratch};
use crate::commands::prelude::*;
use mdl_objects::Mode;
use mdl_remote::{
    clone::{self, ORIGIN, begin, dir_of, fill, finish, heads},
    place::kept,
    sync::Filter,
};
use mdl_repo::{CheckedOut, CheckoutOptions, ErrorKind, Remote};
use std::env;

/// Make a repository from another place: a directory, a bucket or a server's repository
///
/// A clone that was cut off goes on where it was when the same command is run again. With --depth or --only the clone
/// is partial: it has every commit, and of the contents what was asked for; the rest is fetched when a command needs
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl clone s3://team-models/llama
  mdl clone https://models.example.org/team/llama --depth 1
  mdl clone https://models.example.org/team/llama embeddings --only 'model.safetensors:*embed*'")]
pub struct Args {
    /// Where it is.
    url: String,
    /// Directory to make. Default: the last part of the URL.
    dir: Option<PathBuf>,
    /// Branch to work on. Default: the one HEAD is on there.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Contents of only this many generations, and of one branch (that of --branch, or the one HEAD is on there)
    /// without tags; older ones are fetched when they are needed, other branches and tags by `mdl fetch REMOTE NAME`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// With --depth: all branches and tags, each with contents of N generations.
    #[arg(long, requires = "depth")]
    no_single_branch: bool,
    /// Contents of only these files (FILE) or tensors (FILE:TENSOR), as globs; others are fetched when they are
    /// needed. May be repeated. No files are checked out.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Make a repository without a work tree, in DIR itself.
    #[arg(long)]
    bare: bool,
    /// Do not write any files.
    #[arg(short, long)]
    no_checkout: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let url = kept(&args.url)?;
    let dir = args.dir.clone().map_or_else(|| dir_of(&url), Ok)?;
    Filter::new(&args.only)?;
    let peer = mdl_remote::open(&url, context.engine()?, &env::temp_dir(), None).map_err(elsewhere(&url))?;
    let there = peer.refs().map_err(elsewhere(&url))?;
    let branch = clone::branch(&there, args.branch.as_deref(), &url).map_err(elsewhere(&url))?;
    let tip = there.get(&format!("{HEADS}{branch}"));
    let single = args.depth.is_some() && !args.no_single_branch && tip.is_some();
    let remote = Remote {
        partial: args.depth.is_some() || !args.only.is_empty(),
        only: args.only.clone(),
        depth: args.depth,
        branch: single.then(|| branch.clone()),
        url,
    };
    let repo = begin(&dir, args.bare, &remote, &branch, &context.engine()?)?;
    let filled = fill(&repo, &remote, &*peer, &there, &branch, &context.bars).map_err(elsewhere(ORIGIN));
    let received = filled.inspect_err(|e| {
        let again = match e.kind() {
            ErrorKind::Io | ErrorKind::Conflict => "run the same command again to go on",
            _ => "when that is mended, the same command goes on",
        };
        context.note(&format!("note: what has come is kept in {}: {again}", dir.display()));
    })?;
    let files = !(args.bare || args.no_checkout || !args.only.is_empty());
    let done = match tip.filter(|_| files) {
        Some(tip) => {
            let options = CheckoutOptions::default();
            mdl_repo::checkout(&repo, &tip, &Head::Branch(branch.clone()), &options, &context.bars)?
        }
        None => {
            // The next commit of what will be here must not take all that is not for deleted.
            mdl_repo::clear_work_tree_base(&repo);
            CheckedOut::default()
        }
    };
    finish(&repo);
    if tip.is_none() && heads(&there).next().is_some() {
        context.note(&format!(
            "warning: HEAD there names {branch}, and there is no such branch: nothing was checked out\nhint: \
             `mdl switch -c NAME origin/NAME` goes to one of {}",
            heads(&there).collect::<Vec<_>>().join(", ")
        ));
    }
    // A clone of everything has nothing to look for.
    let chosen = tip.filter(|_| !remote.only.is_empty());
    for pattern in chosen.map_or(Ok(Vec::new()), |tip| idle(&repo, &tip, &remote.only))? {
        context.note(&format!(
            "warning: nothing in {branch} matches {pattern:?}\nhint: `mdl ls {branch}` lists the files, \
             `mdl ls {branch} FILE` the tensors of one"
        ));
    }
    let document = json!({
        "repository": scratch(&repo).display().to_string(),
        "remote": ORIGIN,
        "url": remote.url,
        "branch": branch,
        "commit": tip.map(|id| id.to_hex()),
        "partial": remote.partial,
        "received": received_json(&received),
        "written": done.written,
        "bytes": done.bytes,
    });
    if !context.wants_text(|| Ok(document))? {
        return Ok(());
    }
    writeln!(context.out, "Cloned {} into {}: {}", remote.url, dir.display(), carried(&received))?;
    if done.written > 0 {
        writeln!(context.out, "{} written ({})", count(done.written, "file"), size(done.bytes))?;
    }
    Ok(())
}

/// Patterns of --only that match no file and no tensor of a version.
fn idle<'a>(repo: &Repo, tip: &Id, only: &'a [String]) -> Result<Vec<&'a str>> {
    let parse = |pattern: &'a String| Ok((pattern.as_str(), Filter::new(std::slice::from_ref(pattern))?));
    let mut left = only.iter().map(parse).collect::<Result<Vec<_>>>()?;
    for (path, entry) in mdl_repo::files(repo, tip)? {
        let tensors = match entry.mode {
            Mode::Manifest => repo.odb().manifest(&entry.id)?.tensors,
            _ => Vec::new(),
        };
        left.retain(|(_, only)| !only.file(&path) && !tensors.iter().any(|t| only.tensor(&path, &t.name)));
    }
    Ok(left.into_iter().map(|(pattern, _)| pattern).collect())
}
