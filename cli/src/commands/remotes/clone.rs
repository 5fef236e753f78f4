//! `mdl clone`: copies a remote repository.

use super::{Choice, carried, elsewhere, fetch_into, received_json, remote::kept, scratch};
use crate::commands::prelude::*;
use mdl_objects::Mode;
use mdl_remote::{
    Advertised, Peer,
    fetch::note_refs,
    sync::{Filter, RefMove},
};
use mdl_repo::{CheckedOut, CheckoutOptions, ErrorKind, Remote, WriteTransaction};
use std::{env, ffi::OsString, fs};

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
    let dir = args.dir.clone().map_or_else(|| named_by(&url), Ok)?;
    Filter::new(&args.only)?;
    let peer = mdl_remote::open(&url, context.engine()?, &env::temp_dir(), None).map_err(elsewhere(&url))?;
    let there = peer.refs().map_err(elsewhere(&url))?;
    let branch = branch(&there, args.branch.as_deref(), &url)?;
    let tip = there.get(&format!("{HEADS}{branch}"));
    let single = args.depth.is_some() && !args.no_single_branch && tip.is_some();
    let remote = Remote {
        partial: args.depth.is_some() || !args.only.is_empty(),
        only: args.only.clone(),
        depth: args.depth,
        branch: single.then(|| branch.clone()),
        url,
    };
    let mut repo = begin(context, args, &dir, &remote, &branch)?;
    let filled = fill(context, &mut repo, &remote, &*peer, &there, &branch, tip);
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
    // A mark that stays says no more than that the clone could be made again.
    let _ = fs::remove_file(begun(&repo));
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
        "remote": "origin",
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

/// The directory that a URL suggests.
fn named_by(url: &str) -> Result<PathBuf> {
    let last = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
    let name = last.strip_suffix(".git").or(last.strip_suffix(".mdl")).unwrap_or(last);
    match name {
        "" | "." | ".." => {
            Err(RepoError::usage("the URL does not say what the directory is to be called", "name it").into())
        }
        name => Ok(PathBuf::from(name)),
    }
}

/// Short names of the branches there.
fn heads(there: &Advertised) -> impl Iterator<Item = &str> {
    there.refs.iter().filter_map(|(name, _)| name.strip_prefix(HEADS))
}

/// The branch to work on. It may be one that is not there, where that is what HEAD says and several others are.
fn branch(there: &Advertised, wanted: Option<&str>, url: &str) -> Result<String> {
    let is_there = |b: &str| there.get(&format!("{HEADS}{b}")).is_some();
    match (wanted, &there.head) {
        (Some(b), _) if is_there(b) => Ok(b.to_owned()),
        (Some(b), _) => Err(elsewhere(url)(RepoError::not_found(Missing::Branch, format!("{b} at {url}")))),
        (None, Some(head)) if is_there(head) || heads(there).count() != 1 => Ok(head.clone()),
        // HEAD is on no branch, or names one that is not there: where there is one only, that one is meant.
        (None, _) => Ok(heads(there).next().unwrap_or("main").to_owned()),
    }
}

/// An empty repository that knows where it came from; or the one that an earlier try left.
fn begin(context: &Context, args: &Args, dir: &Path, remote: &Remote, branch: &str) -> Result<Repo> {
    let occupied = fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) || dir.is_file();
    if occupied && !is_unmarked(dir) {
        let found = Repo::open(dir, context.engine()?).ok();
        let is_begun = |r: &Repo| r.config().remotes().get("origin") == Some(remote) && begun(r).exists();
        let refused = || RepoError::user(format!("{} is there and not empty", dir.display()), "name another directory");
        return Ok(found.filter(is_begun).ok_or_else(refused)?);
    }
    let (mut repo, _) = Repo::init(dir, args.bare, branch, context.engine()?)?;
    let mark = begun(&repo);
    fs::write(&mark, b"").map_err(RepoError::io(format!("cannot write {}", mark.display())))?;
    repo.set_remote("origin", Some(remote))?;
    Ok(repo)
}

/// Whether an earlier try ended before it could leave its mark, or say where it clones from: there is a store in which
/// nothing was put yet, and nothing else.
fn is_unmarked(dir: &Path) -> bool {
    let names = |dir: &Path| -> Option<Vec<OsString>> {
        let entries = fs::read_dir(dir).ok()?;
        entries.map(|e| e.ok().map(|e| e.file_name())).collect()
    };
    let has_only = |dir: &Path, known: &[&str]| {
        names(dir).is_some_and(|found| found.iter().all(|n| known.iter().any(|k| n == *k)))
    };
    let store = dir.join(mdl_repo::DIR);
    let is_empty = fs::metadata(store.join("config")).map_or(true, |m| m.len() == 0);
    // The lock and the index are of commands that only looked.
    let first = ["HEAD", "base", "cloning", "config", "format", "gc.lock", "identity", "index", "swap.lock", "tmp"];
    is_empty && has_only(dir, &[mdl_repo::DIR]) && has_only(&store, &first)
}

/// There from the first step of a clone to its last.
fn begun(repo: &Repo) -> PathBuf {
    scratch(repo).join("cloning")
}

/// Brings everything over; the branch comes last, and says that the clone is whole.
fn fill(
    context: &Context,
    repo: &mut Repo,
    remote: &Remote,
    peer: &dyn Peer,
    there: &Advertised,
    branch: &str,
    tip: Option<Id>,
) -> Result<mdl_remote::fetch::Received> {
    let choice = Choice { tags: true, ..Choice::default() };
    let done = fetch_into(context, repo, ("origin", remote), peer, there, choice)?;
    let head = Head::Branch(branch.to_owned());
    if repo.refs().head()? != head {
        let who = repo.config().signature();
        WriteTransaction::begin(repo)?.set_head(&head, &who, "clone")?;
    }
    if let Some(tip) = tip {
        let made = RefMove {
            // It may be there, of an earlier try.
            expected: repo.refs().get(&RefName::branch(branch)?)?,
            name: format!("{HEADS}{branch}"),
            new: Some(tip),
            force: false,
        };
        let message = format!("clone: from {}", remote.url);
        for (_, outcome) in note_refs(repo, vec![made], remote.partial, &message, &context.bars)? {
            outcome?;
        }
    }
    Ok(done.received)
}
