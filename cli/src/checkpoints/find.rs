//! Scans the watched directory for checkpoints by names, sizes and times, without reading files.

use super::name::Place;
use crate::commands::shared::is_chosen;
use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Endings of single files that may be checkpoints.
const FILES: [&str; 7] = ["ckpt", "pt", "pth", "bin", "safetensors", "npz", "gguf"];
/// How deep directories are scanned.
const DEPTH: usize = 32;

/// Size and time of change (ns) of every file of a checkpoint by its path in the version.
pub type Stamp = BTreeMap<String, (u64, i128)>;

/// One entry of the directory.
#[derive(Clone, Debug)]
pub struct WatchedEntry {
    pub name: String,
    pub path: PathBuf,
    pub stamp: Stamp,
    /// Device and inode: a rename keeps them.
    pub inode: (u64, u64),
    /// Whether the name says that it is being written.
    pub temporary: bool,
    pub place: Place,
}

impl WatchedEntry {
    /// When its youngest file was changed.
    pub fn changed(&self) -> i128 {
        self.stamp.values().map(|(_, time)| *time).max().unwrap_or_default()
    }

    /// Sort key for the order of training.
    pub fn order(&self) -> (u64, i128) {
        (self.place.rank().unwrap_or(u64::MAX), self.changed())
    }

    /// Path on disk of a file of the version.
    pub fn file(&self, rel: &str) -> PathBuf {
        if self.path.is_dir() { self.path.join(rel) } else { self.path.clone() }
    }
}

/// Everything in the directory.
#[derive(Debug, Default)]
pub struct Look {
    pub entries: Vec<WatchedEntry>,
    /// Entries that a symbolic link of the directory points at.
    pub linked: HashSet<String>,
}

/// Returns whether a name marks a file being written, or one of ours.
pub fn is_temporary(name: &str) -> bool {
    let starts = ["tmp-", ".tmp", ".mdl"].iter().any(|s| name.starts_with(s));
    starts || name.ends_with(".tmp") || name.ends_with(".incomplete") || name.contains(".part")
}

/// Scans the directory. Skips hidden entries and links; the target of a link is an entry itself or is elsewhere.
pub fn look(dir: &Path, patterns: &[String]) -> io::Result<Look> {
    let mut look = Look::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Deleted during the scan: as if it had never been there.
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_symlink() {
            look.linked.extend(target(&path));
            continue;
        }
        let temporary = is_temporary(&name);
        if !temporary && !wanted(&name, meta.is_dir(), patterns) || name.starts_with(".mdl") {
            continue;
        }
        let Ok(Some(stamp)) = stamp(&path) else { continue };
        look.entries.push(WatchedEntry {
            place: Place::of_name(&name),
            inode: (meta.dev(), meta.ino()),
            name,
            path,
            stamp,
            temporary,
        });
    }
    Ok(look)
}

fn target(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    target.file_name()?.to_str().map(str::to_owned)
}

fn wanted(name: &str, is_dir: bool, patterns: &[String]) -> bool {
    let ending = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default();
    let kind = is_dir || FILES.contains(&ending.to_ascii_lowercase().as_str());
    kind && is_chosen(patterns, name) && !name.starts_with('.')
}

/// Returns the stamp of a directory or file; `None` if it is gone. Temporary files count: while one grows, the
/// checkpoint is still being written. Ours do not.
pub fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    let mut stamp = Stamp::new();
    match fs::symlink_metadata(path).and_then(|meta| gather(path, &meta, "", DEPTH, &mut stamp)) {
        Ok(()) => Ok(Some(stamp)),
        Err(e) if e.kind() == io::ErrorKind::NotFound && !path.exists() => Ok(None),
        // A file was deleted during the scan: the next scan decides.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Some(Stamp::new())),
        Err(e) => Err(e),
    }
}

fn gather(path: &Path, meta: &fs::Metadata, rel: &str, depth: usize, stamp: &mut Stamp) -> io::Result<()> {
    if !meta.is_dir() {
        let own = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let name = if rel.is_empty() { own.unwrap_or_default() } else { rel.to_owned() };
        let time = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        stamp.insert(name, (meta.len(), time));
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(".mdl") || name == ".mdlignore" {
            let rel = if rel.is_empty() { name } else { format!("{rel}/{name}") };
            gather(&entry.path(), &fs::symlink_metadata(entry.path())?, &rel, depth - 1, stamp)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_being_written() {
        for name in ["tmp-checkpoint-5", ".tmp_x", "a.ckpt.tmp", "a.part", "a.part.3", "b.incomplete", ".mdl-1-2"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in ["checkpoint-5", "template", "tmp", "department.pt", "a.ckpt"] {
            assert!(!is_temporary(name), "{name}");
        }
    }

    #[test]
    fn entries_that_may_be_checkpoints() {
        let glob = ["step_*".to_owned()];
        assert!(wanted("checkpoint-5", true, &[]) && wanted("A.CKPT", false, &[]) && wanted("step_5", true, &glob));
        assert!(!wanted("events.out", false, &[]) && !wanted(".git", true, &[]) && !wanted("runs", true, &glob));
    }

    #[test]
    fn links_name_what_they_point_at() {
        let dir = tempfile::TempDir::new().expect("temp dir");
        fs::create_dir_all(dir.path().join("step_5/deep")).expect("dirs");
        fs::write(dir.path().join("step_5/deep/w.pt"), b"12").expect("write");
        std::os::unix::fs::symlink("step_5", dir.path().join("latest")).expect("link");
        let look = look(dir.path(), &[]).expect("look");
        assert_eq!(look.entries.len(), 1);
        assert_eq!(look.entries[0].stamp["deep/w.pt"].0, 2);
        assert!(look.linked.contains("step_5"));
        assert_eq!(stamp(&dir.path().join("nothing")).expect("stamp"), None);
    }
}
