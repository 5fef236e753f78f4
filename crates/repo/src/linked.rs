//! Links of work trees to the store that they share: a file `.mdl` in place of the directory.
//!
//! What is a work tree's own (where HEAD is and how it came there, its base, its lock, its index) lies in the store, in
//! `worktrees/NAME`, so that whoever opens the store sees every HEAD.

use mdl_store::{RepoError, Result};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Name of the repository's directory in a work tree, and of a link to one.
pub const DIR: &str = ".mdl";
/// Directory in the store with what is each linked work tree's own.
pub const WORKTREES: &str = "worktrees";
/// File there with the work tree's place.
const PLACE: &str = "place";
/// File there that keeps the work tree from being pruned and removed, with the reason.
const LOCKED: &str = "locked";
/// Bytes of these files at most.
const MAX: u64 = 64 << 10;
/// Begin the two lines of a link.
const STORE: &str = "store: ";
const NAME: &str = "worktree: ";

/// What a work tree's file `.mdl` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The repository's own directory.
    pub store: PathBuf,
    /// The work tree's name in it.
    pub name: String,
}

/// A small text file; none: there is none.
fn text_of(path: &Path) -> Result<Option<String>> {
    let mut text = String::new();
    match File::open(path).and_then(|f| f.take(MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(RepoError::io(format!("cannot read {}", path.display()))(e)),
    }
}

/// Writes a small text file, whole or not at all, and durably.
fn write_text(path: &Path, text: &str) -> Result<()> {
    let failed = || RepoError::io(format!("cannot write {}", path.display()));
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()));
    written.and_then(|()| fs::rename(&new, path)).map_err(failed())
}

/// Whether a text can be a linked work tree's name: a part of a ref and of a path.
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

impl Link {
    /// The link in a work tree; none: there is no file of that name.
    ///
    /// # Errors
    /// The file is no link; an I/O error.
    pub fn read(work: &Path) -> Result<Option<Link>> {
        let path = work.join(DIR);
        if !path.is_file() {
            return Ok(None);
        }
        let text = text_of(&path)?.unwrap_or_default();
        let line = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned);
        match (line(STORE), line(NAME)) {
            (Some(store), Some(name)) if is_name(&name) => Ok(Some(Link { store: store.into(), name })),
            _ => Err(RepoError::corrupt(path.display(), "it does not say which store the work tree is of")),
        }
    }

    /// Makes a directory a work tree of the store.
    pub fn write(&self, work: &Path) -> Result<()> {
        let store = self.store.to_str().filter(|s| !s.contains('\n'));
        let store = store.ok_or_else(|| RepoError::user("the repository's path is not text", "move it"))?;
        write_text(&work.join(DIR), &format!("{STORE}{store}\n{NAME}{}\n", self.name))
    }

    /// Where what is the work tree's own lies.
    pub fn state(&self) -> PathBuf {
        self.store.join(WORKTREES).join(&self.name)
    }

    /// Where the work tree was when that was last noted.
    pub fn place(&self) -> Result<Option<PathBuf>> {
        Ok(text_of(&self.state().join(PLACE))?.map(|text| PathBuf::from(text.trim_end_matches('\n'))))
    }

    /// Notes where the work tree is.
    pub fn set_place(&self, work: &Path) -> Result<()> {
        let text = work.to_str().filter(|s| !s.contains('\n'));
        let text = text.ok_or_else(|| RepoError::user("the work tree's path is not text", "choose another"))?;
        write_text(&self.state().join(PLACE), &format!("{text}\n"))
    }

    /// Why it must be neither pruned nor removed; none: it may.
    pub fn locked(&self) -> Result<Option<String>> {
        Ok(text_of(&self.state().join(LOCKED))?.map(|text| text.trim_end().to_owned()))
    }

    /// Locks it with a reason, or unlocks it.
    pub fn set_locked(&self, reason: Option<&str>) -> Result<()> {
        let path = self.state().join(LOCKED);
        match reason {
            Some(reason) => write_text(&path, &format!("{reason}\n")),
            None => fs::remove_file(&path).map_err(RepoError::io(format!("cannot remove {}", path.display()))),
        }
    }

    /// Every linked work tree that a store knows, by name.
    pub fn all(store: &Path) -> Result<Vec<Link>> {
        let dir = store.join(WORKTREES);
        let failed = || RepoError::io(format!("cannot list {}", dir.display()));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed()(e)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed())?.file_name();
            if let Some(name) = name.to_str().filter(|n| is_name(n)) {
                all.push(Link { store: store.to_owned(), name: name.to_owned() });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_as_it_was_written_and_nothing_else_is_one() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Link::read(dir.path()).expect("none"), None);
        let link = Link { store: "/a b/.mdl".into(), name: "one".to_owned() };
        link.write(dir.path()).expect("written");
        assert_eq!(Link::read(dir.path()).expect("a link"), Some(link));
        for text in ["", "store: /x\n", "store: /x\nworktree: ../y\n", "store: /x\nworktree: \n", "\0\n"] {
            fs::write(dir.path().join(DIR), text).expect("written");
            assert!(Link::read(dir.path()).is_err(), "{text:?}");
        }
    }
}
