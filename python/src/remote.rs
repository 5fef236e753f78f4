//! Methods of a repository about other places: remotes, push, fetch, pull, clone.

use crate::{
    engine::engine,
    errors::{Outcome, free},
    progress::watched,
    replay::{Rules, options, settled},
    repo::Repo,
};
use mdl_remote::{
    Peer, clone,
    fetch::note_refs,
    notes::{fetch_notes, push_notes},
    place::kept,
    push::{Push, push},
    sync::RefMove,
    tracking::{Choice, note_wanted, receive_wanted, wanted},
};
use mdl_repo::{
    CheckoutOptions, HEADS, Head, Merged, Missing, Operation, Progress, REMOTES, RefName, Remote, RepoError, TAGS,
    WriteTransaction,
};
use pyo3::{prelude::*, types::PyDict};
use std::{collections::BTreeMap, env, path::PathBuf};

/// A ref, where it stood, where it stands now.
type Moved = (String, Option<String>, Option<String>);

fn as_tuples(moves: &[RefMove]) -> Vec<Moved> {
    let hex = |id: Option<mdl_objects::Id>| id.map(|id| id.to_hex());
    moves.iter().map(|m| (m.name.clone(), hex(m.expected), hex(m.new))).collect()
}

fn peer(repo: &mdl_repo::Repo, remote: &Remote, create: Option<&str>) -> Outcome<Box<dyn Peer>> {
    let scratch = repo.dir().map_or_else(env::temp_dir, PathBuf::from);
    mdl_remote::open(&remote.url, engine()?, &scratch, create)
}

/// A remote by its name, the only one or `origin` where none is named.
fn named(repo: &mdl_repo::Repo, name: Option<&str>) -> Outcome<(String, Remote)> {
    let mut all = repo.config().remotes();
    let only = || all.keys().next().filter(|_| all.len() == 1).cloned();
    let name = name.map_or_else(|| only().unwrap_or_else(|| clone::ORIGIN.to_owned()), str::to_owned);
    let hint = "name one: repo.add_remote(\"origin\", URL)";
    match all.remove(&name) {
        Some(remote) => Ok((name, remote)),
        None if all.is_empty() => Err(RepoError::user("this repository knows no other place", hint)),
        None => Err(RepoError::not_found(Missing::Remote, name)),
    }
}

/// A remote by its name, or a place by its URL or path.
fn named_or_url(repo: &mdl_repo::Repo, text: Option<&str>) -> Outcome<(Option<String>, Remote)> {
    let is_url = |t: &&str| (t.contains('/') || matches!(*t, "." | "..")) && !repo.config().remotes().contains_key(*t);
    match text.filter(is_url) {
        Some(url) => Ok((None, Remote { url: kept(url)?, ..Remote::default() })),
        None => named(repo, text).map(|(name, remote)| (Some(name), remote)),
    }
}

/// The branch HEAD is on.
fn present(repo: &mdl_repo::Repo) -> Outcome<String> {
    let head = repo.refs().head()?;
    let branch = head.branch().map(str::to_owned);
    branch.ok_or_else(|| RepoError::user("HEAD is detached: it is on no branch", "name a branch"))
}

/// The ref that `text` names: a branch, a tag, or `REV:NAME` for a branch of another name there.
fn pushed(repo: &mdl_repo::Repo, text: &str, force: bool) -> Outcome<Push> {
    let made = |name: String, new| Push { name, new: Some(new), force, lease: None };
    if let Some((rev, name)) = text.split_once(':').filter(|(rev, name)| !rev.is_empty() && !name.is_empty()) {
        let full = if name.starts_with("refs/") { name.to_owned() } else { format!("{HEADS}{name}") };
        return Ok(made(full, mdl_repo::resolve(repo, rev)?));
    }
    let held = mdl_repo::full_ref(repo, text)?.filter(|f| f.starts_with(HEADS) || f.starts_with(TAGS));
    let held = held.ok_or_else(|| RepoError::not_found(Missing::BranchOrTag, text))?;
    let id = repo.refs().get(&held)?;
    let id = id.ok_or_else(|| RepoError::user(format!("{text} has no commit yet"), "commit first"))?;
    Ok(made(held.to_string(), id))
}

/// Names of branches or tags, as they are called there.
fn deleted(peer: &dyn Peer, names: &[String]) -> Outcome<Vec<Push>> {
    let there = peer.refs()?;
    let full = |name: &String| {
        let found = [format!("{HEADS}{name}"), format!("{TAGS}{name}")].into_iter().find(|f| there.get(f).is_some());
        let name = found.ok_or_else(|| RepoError::not_found(Missing::BranchOrTag, name))?;
        Ok(Push { name, new: None, force: true, lease: None })
    };
    names.iter().map(full).collect()
}

/// Notes where the branches stand that were pushed to a remote with a name.
fn settle(repo: &mdl_repo::Repo, remote: &str, moves: &[RefMove], progress: &dyn Progress) -> Outcome<()> {
    let branches = moves.iter().filter_map(|m| Some((m.name.strip_prefix(HEADS)?, m.new)));
    let noted = branches.map(|(branch, new)| {
        let name = RefName::remote(remote, branch)?;
        Ok(RefMove { expected: repo.refs().get(&name)?, name: name.to_string(), new, force: true })
    });
    note_refs(repo, noted.collect::<Outcome<_>>()?, true, "push", progress).map(drop)
}

/// Bytes that were carried, objects that were new here, and the refs that moved.
fn fetched(
    repo: &mdl_repo::Repo,
    named: (&str, &Remote),
    choice: Choice,
    progress: &dyn Progress,
) -> Outcome<(u64, u64, Vec<RefMove>)> {
    let peer = peer(repo, named.1, None)?;
    let there = peer.refs()?;
    let moves = wanted(repo, named, &there, choice)?;
    let received = receive_wanted(repo, named.1, &*peer, &moves, progress)?;
    let moves = note_wanted(repo, named, moves, progress)?;
    fetch_notes(repo, &*peer, &there, progress)?;
    Ok((received.carried, received.objects, moves))
}

#[pymethods]
impl Repo {
    /// Other places by name.
    fn remotes(&self, py: Python<'_>) -> PyResult<BTreeMap<String, String>> {
        free(py, || {
            let remotes = self.anew()?.config().remotes();
            Ok(remotes.into_iter().map(|(name, remote)| (name, remote.url)).collect())
        })
    }

    /// Names a place, or says where it is now; without a URL the name is forgotten.
    fn set_remote(&self, py: Python<'_>, name: &str, url: Option<&str>) -> PyResult<()> {
        free(py, || {
            let mut repo = self.anew()?;
            let Some(url) = url else { return forget(&mut repo, name) };
            let url = kept(url)?;
            repo.change_remote(name, &|noted| Ok(Some(Remote { url: url.clone(), ..noted.unwrap_or_default() })))
        })
    }

    /// Sends versions and moves the refs there: bytes sent, objects, refs that moved. The first refusal is raised, once
    /// the other refs have moved.
    #[pyo3(signature = (remote, refs, all, tags, force, delete, show=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the keywords of the Python method")]
    fn push(
        &self,
        py: Python<'_>,
        remote: Option<&str>,
        refs: Vec<String>,
        all: bool,
        tags: bool,
        force: bool,
        delete: bool,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, Vec<Moved>)> {
        let work = |progress: &dyn Progress| {
            let repo = &self.anew()?;
            let (name, remote) = named_or_url(repo, remote)?;
            let mut names = refs;
            let (peer, pushes) = if delete {
                let peer = peer(repo, &remote, None)?;
                let pushes = deleted(&*peer, &names)?;
                (peer, pushes)
            } else {
                if all {
                    names.extend(repo.refs().list(HEADS)?.into_iter().map(|(name, _)| name));
                }
                if names.is_empty() {
                    names.push(present(repo)?);
                }
                if tags {
                    names.extend(repo.refs().list(TAGS)?.into_iter().map(|(name, _)| format!("{TAGS}{name}")));
                }
                let pushes = names.iter().map(|text| pushed(repo, text, force)).collect::<Outcome<Vec<_>>>()?;
                let create = repo.refs().head()?.branch().unwrap_or("main").to_owned();
                (peer(repo, &remote, Some(&create))?, pushes)
            };
            let done = push(repo, &*peer, &pushes, "push", progress)?;
            let (moved, refused): (Vec<_>, Vec<_>) = done.refs.into_iter().partition(|(_, outcome)| outcome.is_ok());
            let moved: Vec<RefMove> = moved.into_iter().map(|(m, _)| m).collect();
            if let Some(name) = name {
                // What is there is there, whatever becomes of the note.
                let _ = settle(repo, &name, &moved, progress);
            }
            if !delete {
                push_notes(repo, &*peer, progress)?;
            }
            refused.into_iter().try_for_each(|(_, outcome)| outcome)?;
            Ok((done.sent, done.objects, as_tuples(&moved)))
        };
        watched(py, show, work)
    }

    /// Brings over what a remote has: bytes carried, objects that were new here, refs that moved.
    #[pyo3(signature = (remote, branches, tags, prune, show=None))]
    fn fetch(
        &self,
        py: Python<'_>,
        remote: Option<&str>,
        branches: Vec<String>,
        tags: bool,
        prune: bool,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, Vec<Moved>)> {
        watched(py, show, |progress| {
            let repo = &self.anew()?;
            let (name, remote) = named(repo, remote)?;
            let choice = Choice { branches, tags, prune };
            let (carried, objects, moves) = fetched(repo, (&name, &remote), choice, progress)?;
            Ok((carried, objects, as_tuples(&moves)))
        })
    }

    /// `fetch` of one branch, then moves the present branch forward: as `fetch`, and whether it moved. Where both sides
    /// have new versions they are put on top of the others, if `rebase` (none: the setting) says so.
    #[pyo3(signature = (remote, branch, rebase, rules, show=None))]
    fn pull(
        &self,
        py: Python<'_>,
        remote: Option<&str>,
        branch: Option<String>,
        rebase: Option<bool>,
        rules: Rules,
        show: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, Vec<Moved>, bool)> {
        watched(py, show, |progress| {
            let repo = &self.anew()?;
            mdl_repo::refuse_in_progress(repo)?;
            let (options, (name, remote)) = (options(rules)?, named(repo, remote)?);
            let branch = branch.map_or_else(|| present(repo), Ok)?;
            let choice = Choice { branches: vec![branch.clone()], tags: true, prune: false };
            let (carried, objects, moves) = fetched(repo, (&name, &remote), choice, progress)?;
            let gone = || RepoError::not_found(Missing::Branch, format!("{branch} at {name}"));
            let tip = repo.refs().get(&RefName::remote(&name, &branch)?)?.ok_or_else(gone)?;
            let label = format!("{name}/{branch}");
            let moved = match mdl_repo::parted(repo, &tip, progress)? {
                None => mdl_repo::merge(repo, &tip, &label, progress)? != Merged::UpToDate,
                Some(_) if rebase.unwrap_or_else(|| repo.config().pull_rebase()) => {
                    let outcome = mdl_repo::rebase(repo, &tip, None, &options, progress)?;
                    settled(repo, Operation::Rebase, outcome, progress)?;
                    true
                }
                Some((here, there)) => return Err(RepoError::Parted { label, here, there }),
            };
            Ok((carried, objects, as_tuples(&moves), moved))
        })
    }
}

impl Repo {
    /// The repository, opened anew: what another process noted since must count.
    fn anew(&self) -> Outcome<mdl_repo::Repo> {
        let hint = "work with remotes from a repository in a directory";
        let place = self.inner.work().or(self.inner.dir());
        let place = place.ok_or_else(|| RepoError::user("it lies in a bucket", hint))?;
        mdl_remote::open_at(place, &engine()?).map(mdl_repo::Repo::without_index)
    }
}

/// Forgets a remote, and what was noted of its branches.
fn forget(repo: &mut mdl_repo::Repo, name: &str) -> Outcome<()> {
    let (name, remote) = named(repo, Some(name))?;
    if remote.partial {
        let what = "what this partial repository does not hold: without it, versions would be lost";
        return Err(RepoError::user(format!("{name} has {what}"), "clone the whole of it elsewhere first"));
    }
    let who = repo.config().signature();
    for (branch, id) in repo.refs().list(&format!("{REMOTES}{name}/"))? {
        let full = RefName::remote(&name, &branch)?;
        WriteTransaction::begin(repo)?.update_ref(&full, Some(id), None, &who, "remote: removed")?;
    }
    repo.set_remote(&name, None)
}

/// Makes a repository in `dir` from the one at `url`: the directory, bytes carried, files written.
#[pyfunction]
#[pyo3(signature = (url, dir, branch, bare, files, depth, only, show=None))]
#[expect(clippy::too_many_arguments, reason = "they are the keywords of the Python function")]
pub fn clone_url<'py>(
    py: Python<'py>,
    url: &str,
    dir: Option<PathBuf>,
    branch: Option<&str>,
    bare: bool,
    files: bool,
    depth: Option<u32>,
    only: Vec<String>,
    show: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (dir, carried, written) = watched(py, show, |progress| {
        let url = kept(url)?;
        let dir = dir.map_or_else(|| clone::dir_of(&url), Ok)?;
        mdl_remote::sync::Filter::new(&only)?;
        let peer = mdl_remote::open(&url, engine()?, &env::temp_dir(), None)?;
        let there = peer.refs()?;
        let branch = clone::branch(&there, branch, &url)?;
        let tip = there.get(&format!("{HEADS}{branch}"));
        let single = (depth.is_some() && tip.is_some()).then(|| branch.clone());
        let files = files && !bare && only.is_empty();
        let remote = Remote { partial: depth.is_some() || !only.is_empty(), only, depth, branch: single, url };
        let repo = clone::begin(&dir, bare, &remote, &branch, &engine()?)?;
        let received = clone::fill(&repo, &remote, &*peer, &there, &branch, progress)?;
        let written = match tip.filter(|_| files) {
            Some(tip) => {
                mdl_repo::checkout(&repo, &tip, &Head::Branch(branch), &CheckoutOptions::default(), progress)?.written
            }
            None => {
                mdl_repo::clear_work_tree_base(&repo);
                0
            }
        };
        clone::finish(&repo);
        Ok((dir, received.carried, written))
    })?;
    let out = PyDict::new(py);
    out.set_item("dir", dir)?;
    out.set_item("carried", carried)?;
    out.set_item("written", written)?;
    Ok(out)
}
