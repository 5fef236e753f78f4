//! Makes a repository from another place, in steps that can be taken again after a kill: `begin`, `fill`, `finish`.

use crate::{
    fetch::{Received, note_refs},
    peer::{Advertised, Peer},
    sync::RefMove,
    tracking::{Choice, note_wanted, notes::fetch_notes, receive_wanted, wanted},
};
use mdl_codec::Engine;
use mdl_repo::{DIR, HEADS, Head, Missing, Progress, RefName, Remote, Repo, RepoError, Result, WriteTransaction};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What the place that was cloned is called in the clone.
pub const ORIGIN: &str = "origin";

/// Short names of the branches there.
pub fn heads(there: &Advertised) -> impl Iterator<Item = &str> {
    there.refs.iter().filter_map(|(name, _)| name.strip_prefix(HEADS))
}

/// The branch to work on. It may be one that is not there, where that is what HEAD says and several others are.
///
/// # Errors
/// The wanted branch is not there.
pub fn branch(there: &Advertised, wanted: Option<&str>, url: &str) -> Result<String> {
    let is_there = |b: &str| there.get(&format!("{HEADS}{b}")).is_some();
    match (wanted, &there.head) {
        (Some(b), _) if is_there(b) => Ok(b.to_owned()),
        (Some(b), _) => Err(RepoError::not_found(Missing::Branch, format!("{b} at {url}"))),
        (None, Some(head)) if is_there(head) || heads(there).count() != 1 => Ok(head.clone()),
        // HEAD is on no branch, or names one that is not there: where there is one only, that one is meant.
        (None, _) => Ok(heads(there).next().unwrap_or("main").to_owned()),
    }
}

/// An empty repository that knows where it came from; or the one that an earlier try left.
///
/// # Errors
/// Something else is in the directory; an I/O error.
pub fn begin(dir: &Path, bare: bool, remote: &Remote, branch: &str, engine: &Arc<dyn Engine>) -> Result<Repo> {
    let occupied = fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some()) || dir.is_file();
    if occupied && !is_unmarked(dir) {
        let found = Repo::open(dir, engine.clone()).ok();
        let is_begun = |r: &Repo| r.config().remotes().get(ORIGIN) == Some(remote) && begun(r).exists();
        let refused = || RepoError::user(format!("{} is there and not empty", dir.display()), "name another directory");
        return found.filter(is_begun).ok_or_else(refused);
    }
    let (mut repo, _) = Repo::init(dir, bare, branch, engine.clone())?;
    let mark = begun(&repo);
    fs::write(&mark, b"").map_err(RepoError::io(format!("cannot write {}", mark.display())))?;
    repo.set_remote(ORIGIN, Some(remote))?;
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
    let store = dir.join(DIR);
    let is_empty = fs::metadata(store.join("config")).map_or(true, |m| m.len() == 0);
    // The lock and the index are of commands that only looked.
    let first =
        ["HEAD", "base", "base.new", "cloning", "config", "format", "gc.lock", "identity", "index", "swap.lock", "tmp"];
    is_empty && has_only(dir, &[DIR]) && has_only(&store, &first)
}

/// There from the first step of a clone to its last.
fn begun(repo: &Repo) -> PathBuf {
    repo.dir().map_or_else(env::temp_dir, PathBuf::from).join("cloning")
}

/// Brings everything over; the branch comes last, and says that the clone is whole.
///
/// # Errors
/// As those of a fetch. What has come need not come again.
pub fn fill(
    repo: &Repo,
    remote: &Remote,
    peer: &dyn Peer,
    there: &Advertised,
    branch: &str,
    progress: &dyn Progress,
) -> Result<Received> {
    let named = (ORIGIN, remote);
    let moves = wanted(repo, named, there, Choice { tags: true, ..Choice::default() })?;
    let received = receive_wanted(repo, remote, peer, &moves, progress)?;
    note_wanted(repo, named, moves, progress)?;
    let head = Head::Branch(branch.to_owned());
    if repo.refs().head()? != head {
        let who = repo.config().signature();
        WriteTransaction::begin(repo)?.set_head(&head, &who, "clone")?;
    }
    if let Some(tip) = there.get(&format!("{HEADS}{branch}")) {
        let made = RefMove {
            // It may be there, of an earlier try.
            expected: repo.refs().get(&RefName::branch(branch)?)?,
            name: format!("{HEADS}{branch}"),
            new: Some(tip),
            force: false,
        };
        let message = format!("clone: from {}", remote.url);
        for (_, outcome) in note_refs(repo, vec![made], remote.partial, &message, progress)? {
            outcome?;
        }
    }
    // What cannot be taken in now, the next fetch tells of.
    let _ = fetch_notes(repo, peer, there, progress);
    Ok(received)
}

/// Takes the mark away. One that stays says no more than that the clone could be made again.
pub fn finish(repo: &Repo) {
    let _ = fs::remove_file(begun(repo));
}

/// The directory that a URL suggests.
///
/// # Errors
/// It suggests none.
pub fn dir_of(url: &str) -> Result<PathBuf> {
    let last = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
    let name = last.strip_suffix(".git").or(last.strip_suffix(".mdl")).unwrap_or(last);
    match name {
        "" | "." | ".." => Err(RepoError::usage("the URL does not say what the directory is to be called", "name it")),
        name => Ok(PathBuf::from(name)),
    }
}
