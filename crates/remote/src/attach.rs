//! Opens the repository at a given path or around the current directory, wherever its bytes are: a work tree may keep
//! them in a bucket.
//!
//! Such a work tree has a directory `.mdl` as any other, in it the file `storage`: the URL, and a line feed. What is
//! there besides is the work tree's own HEAD, which version its files are of, its name in the shared storage, and
//! caches.

use crate::{
    open::{name_place, open_repo},
    partial_pack::failed,
    place::Place,
    promisor::completed,
};
use mdl_codec::Engine;
use mdl_repo::{
    DIR, Head, Missing, Refs, Repo, RepoError, Result, check_ref_name,
    storage::{LocalStorage, Split},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Names the storage, in a work tree's `.mdl`.
const STORAGE: &str = "storage";
/// Beside it: the work tree's name in that storage.
const WORKTREE: &str = "worktree";

/// The storage that a repository's directory names, if it does.
fn named(dir: &Path) -> Result<Option<Place>> {
    let path = dir.join(STORAGE);
    match fs::read_to_string(&path) {
        Ok(text) => Place::parse(text.trim()).map(Some),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(failed("read", &path)(e)),
    }
}

fn is_attached(path: &Path) -> bool {
    path.join(DIR).join(STORAGE).is_file()
}

fn attached(work: &Path, engine: &Arc<dyn Engine>) -> Result<Repo> {
    let work = fs::canonicalize(work).map_err(failed("open", work))?;
    let dir = work.join(DIR);
    let place = named(&dir)?.ok_or_else(|| RepoError::not_found(Missing::Repository, work.display()))?;
    let storage = Arc::new(Split::new(place.storage()?, &dir));
    let (index, id) = (dir.join("index"), id_of(&dir)?);
    let opened = Repo::with_storage(storage, engine.clone(), Some(index), Some(dir), Some(work));
    opened.and_then(|repo| repo.holding_head_by(&id)).map_err(|e| name_place(e, &place))
}

/// What a work tree is called in the storage that it shares. Made when it is first wanted.
fn id_of(dir: &Path) -> Result<String> {
    let path = dir.join(WORKTREE);
    let known = |text: &String| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(id) = fs::read_to_string(&path).ok().map(|t| t.trim_end().to_owned()).filter(known) {
        return Ok(id);
    }
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|e| failed("make a name for", dir)(io::Error::other(e)))?;
    let id = format!("{:016x}", u64::from_le_bytes(random));
    fs::write(&path, format!("{id}\n")).map_err(failed("write", &path))?;
    Ok(id)
}

/// Opens what a user names: a directory (a work tree or a repository's own), or the URL of a bucket.
pub fn open_at(name: &Path, engine: &Arc<dyn Engine>) -> Result<Repo> {
    if let Some(url) = name.to_str().filter(|n| n.contains("://")) {
        return open_repo(&Place::parse(url)?, engine.clone());
    }
    let inside = name.file_name().is_some_and(|n| n == DIR).then(|| name.parent()).flatten();
    match inside.unwrap_or(name) {
        work if is_attached(work) => attached(work, engine),
        _ => Repo::open(name, engine.clone()).map(|repo| completed(repo, engine)),
    }
}

/// Opens the repository whose work tree holds `start`.
pub fn discover(start: &Path, engine: &Arc<dyn Engine>) -> Result<Repo> {
    let start = fs::canonicalize(start).map_err(failed("open", start))?;
    let near = start.ancestors().find(|p| is_attached(p) || Repo::is_at(p));
    match near {
        Some(work) if is_attached(work) => attached(work, engine),
        _ => Repo::discover(&start, engine.clone()).map(|repo| completed(repo, engine)),
    }
}

/// Makes a work tree whose repository keeps its bytes at `url`; one that is there already is joined. Returns whether it
/// was made.
///
/// # Errors
/// A URL of a server; another repository is in the directory; the storage cannot be reached.
pub fn attach(work: &Path, url: &str, branch: &str, engine: &Arc<dyn Engine>) -> Result<(Repo, bool)> {
    check_ref_name(branch)?;
    let place = Place::parse(url)?;
    if !matches!(place, Place::Bucket { .. }) {
        let hint = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";
        return Err(RepoError::user(format!("{place} is no bucket"), hint));
    }
    let dir: PathBuf = work.join(DIR);
    let joined = named(&dir)?;
    let refused = |held: String| {
        let message = format!("{} has a repository already: its bytes are {held}, not at {place}", work.display());
        Err(RepoError::user(message, "choose another directory; a push takes what is here there"))
    };
    match &joined {
        Some(other) if *other != place => return refused(format!("at {other}")),
        None if dir.join("format").is_file() => return refused("in the directory itself".to_owned()),
        _ => {}
    }
    let made = match open_repo(&place, engine.clone()) {
        Ok(_) => false,
        Err(RepoError::NotFound { .. }) => {
            Repo::init_storage(place.storage()?, branch, engine.clone())?;
            true
        }
        Err(e) => return Err(e),
    };
    fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
    let refs = Refs::new(Arc::new(LocalStorage::new(&dir)));
    if !matches!(refs.head(), Ok(Head::Branch(_) | Head::Detached(_))) {
        refs.init_head(branch)?;
    }
    let path = dir.join(STORAGE);
    fs::write(&path, format!("{place}\n")).map_err(failed("write", &path))?;
    let repo = attached(work, engine)?;
    if joined.is_none() {
        mdl_repo::clear_work_tree_base(&repo);
    }
    Ok((repo, made))
}
