//! A partial pack: a bundle that is received in parts, as a file of its full length and a list beside it of how much of
//! each part is there.
//!
//! The bytes of each part are written in order, as they come. Bytes count once they are in the file and then in the
//! list, both handed to the system: a process that is killed loses none that it counted. After a power cut the file may
//! be wrong where the list says it is right; the checksums of every object tell, before anything of it is stored.

use crate::sync::Arrived;
use mdl_codec::locks::Mutex;
use mdl_repo::{Repo, RepoError, Result, pack::PackId};
use serde::Deserialize;
use std::{
    env,
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Bytes of every part but the last.
pub const PART: u64 = 8 << 20;

/// How long an abandoned partial pack is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes that are in memory at once where a part is read back.
const BLOCK: usize = 256 << 10;
/// Bytes that say how much of a part is there.
const SLOT: u64 = 8;

/// A partial pack, open.
#[derive(Debug)]
pub struct PartialPack {
    id: PackId,
    size: u64,
    path: PathBuf,
    file: File,
    list: Mutex<List>,
}

/// How many bytes of each part are there, from its start: a `u64` each.
#[derive(Debug)]
struct List {
    file: File,
    there: Vec<u64>,
}

/// A part that is not all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Gap {
    /// Its number.
    pub part: u64,
    /// How many of its bytes are there, from its start.
    pub from: u64,
}

pub(crate) fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> RepoError + use<> {
    RepoError::io(format!("cannot {what} {}", path.display()))
}

fn place(dir: &Path, id: PackId, size: u64) -> PathBuf {
    dir.join(format!("{id}-{size}.part"))
}

/// Where a repository keeps its partial packs. A bucket cannot hold any.
pub(crate) fn dir(repo: &Repo) -> Result<PathBuf> {
    dir_below(&repo.dir().map_or_else(cache_dir, Path::to_owned))
}

/// This user's: in a directory that all users write to, the first one's files would be closed to the others.
fn cache_dir() -> PathBuf {
    let some = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let caches = some("XDG_CACHE_HOME").or_else(|| some("HOME").map(|home| home.join(".cache")));
    caches.unwrap_or_else(env::temp_dir).join("mdl")
}

/// The directory of partial packs below another directory. Old ones in it are removed.
pub(crate) fn dir_below(parent: &Path) -> Result<PathBuf> {
    let dir = parent.join("incoming");
    fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
    sweep(&dir, KEPT)?;
    Ok(dir)
}

/// Number of parts of a bundle of this length.
pub fn parts(size: u64) -> u64 {
    size.div_ceil(PART)
}

/// Where a part of a bundle of this length begins and ends.
pub fn range(size: u64, part: u64) -> Range<u64> {
    let start = part.saturating_mul(PART).min(size);
    start..start.saturating_add(PART).min(size)
}

impl PartialPack {
    /// Whether part of a bundle may be there already.
    pub fn is_begun(dir: &Path, id: PackId, size: u64) -> bool {
        place(dir, id, size).exists()
    }

    /// Begins a partial pack, or resumes it. One process at a time may have it open: another one is refused.
    pub fn open(dir: &Path, id: PackId, size: u64) -> Result<PartialPack> {
        fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let path = place(dir, id, size);
        let noted = path.with_extension("list");
        let open = |path: &Path| {
            let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
            options.map_err(failed("open", path))
        };
        let (file, list) = (open(&path)?, open(&noted)?);
        if list.try_lock().is_err() {
            let hint = "wait for it to end, then try again";
            return Err(RepoError::user("another process is receiving the same bytes", hint));
        }
        // A list whose bytes are gone (a process was killed while it stored them) says nothing.
        let found = file.metadata().map_err(failed("look at", &path))?.len();
        if found != size {
            list.set_len(0).map_err(failed("write", &noted))?;
        }
        file.set_len(size).map_err(failed("make room for", &path))?;
        let there = noted_there(&list, size).map_err(failed("read", &noted))?;
        let list = Mutex::new(List { file: list, there });
        Ok(PartialPack { id, size, path, file, list })
    }

    /// Where its bytes are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Parts that are not all there yet.
    pub fn missing(&self) -> Vec<Gap> {
        let list = self.list.lock();
        let gaps = (0..).zip(&list.there).map(|(part, from)| Gap { part, from: *from });
        gaps.filter(|gap| self.lacks(*gap) > 0).collect()
    }

    /// How many bytes of a part are missing.
    pub fn lacks(&self, gap: Gap) -> u64 {
        let range = self.range(gap.part);
        (range.end - range.start).saturating_sub(gap.from)
    }

    /// Where a part begins and ends.
    pub fn range(&self, part: u64) -> Range<u64> {
        range(self.size, part)
    }

    /// Puts bytes of a part in their place, `at` from its start. What is there already stays. Refused where there is no
    /// such part, or it is shorter, or what comes before is not there.
    pub fn put(&self, part: u64, at: u64, bytes: &[u8]) -> Result<()> {
        let range = self.range(part);
        let end = at.saturating_add(bytes.len() as u64);
        if range.is_empty() || end > range.end - range.start {
            return Err(RepoError::user(format!("part {part} has no {} bytes at {at}", bytes.len()), ""));
        }
        let slot = usize::try_from(part).unwrap_or(usize::MAX);
        let there = self.list.lock().there.get(slot).copied().unwrap_or_default();
        if at > there {
            let message = format!("of part {part} the first {there} bytes have come, and not yet {at}");
            return Err(RepoError::user(message, "ask what is missing, then send it"));
        }
        if end <= there {
            return Ok(());
        }
        self.file.write_all_at(bytes, range.start + at).map_err(failed("write", &self.path))?;
        self.note(part, |there| there.max(end))
    }

    /// Notes how much of a part is there.
    fn note(&self, part: u64, change: impl FnOnce(u64) -> u64) -> Result<()> {
        let mut list = self.list.lock();
        let List { file, there } = &mut *list;
        if let Some(slot) = usize::try_from(part).ok().and_then(|n| there.get_mut(n)) {
            let now = change(*slot);
            file.write_all_at(&now.to_le_bytes(), part * SLOT).map_err(failed("write", &self.path))?;
            *slot = now;
        }
        Ok(())
    }

    /// Checks the BLAKE3 of a part that is complete. A wrong one begins anew.
    pub fn check(&self, part: u64, blake3: &[u8; 32]) -> Result<bool> {
        let Range { mut start, end } = self.range(part);
        // A block at a time: many senders at once must not cost a part each.
        let (mut hash, mut block) = (blake3::Hasher::new(), vec![0; BLOCK]);
        while start < end {
            let len = BLOCK.min(usize::try_from(end - start).unwrap_or(BLOCK));
            let bytes = &mut block[..len];
            self.file.read_exact_at(bytes, start).map_err(failed("read", &self.path))?;
            hash.update(bytes);
            start += len as u64;
        }
        let same = hash.finalize().as_bytes() == blake3;
        if !same {
            self.note(part, |_| 0)?;
        }
        Ok(same)
    }

    /// The received pack, once every part is there.
    pub fn arrived(&self) -> Option<Arrived> {
        self.missing().is_empty().then(|| Arrived { id: self.id, path: self.path.clone() })
    }

    /// Deletes it: it was stored, or is useless.
    pub fn clear(self) {
        // What stays behind is swept when it is old.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension("list"));
    }
}

/// What a list says; a new or a torn one says nothing.
fn noted_there(list: &File, size: u64) -> io::Result<Vec<u64>> {
    let parts = parts(size);
    if list.metadata()?.len() != parts * SLOT {
        list.set_len(0)?;
        list.set_len(parts * SLOT)?;
    }
    let mut bytes = vec![0; usize::try_from(parts * SLOT).map_err(io::Error::other)?];
    list.read_exact_at(&mut bytes, 0)?;
    let (slots, _) = bytes.as_chunks::<8>();
    let noted = slots.iter().map(|slot| u64::from_le_bytes(*slot));
    // More than all of a part cannot be there.
    let most = (0..).map(|part| range(size, part)).map(|r| r.end - r.start);
    Ok(noted.zip(most).map(|(there, most)| there.min(most)).collect())
}

/// Removes lists whose bytes were stored: what a kill between the two leaves.
pub(crate) fn tidy(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let noted = entry.path();
        let is_left = noted.extension().is_some_and(|e| e == "list") && !noted.with_extension("part").exists();
        // A process that uses it has made the bytes' file first, and holds the list.
        if is_left && File::open(&noted).is_ok_and(|f| f.try_lock().is_ok()) {
            let _ = fs::remove_file(&noted);
        }
    }
}

/// Removes partial packs this old or older that were never stored.
pub fn sweep(dir: &Path, age: Duration) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list", dir))?,
    };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|m| m.modified());
        let old = modified.is_ok_and(|m| SystemTime::now().duration_since(m).is_ok_and(|past| past >= age));
        if old {
            // Tensors that were encoded for a push are in a directory of their own.
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> PackId {
        PackId::from_bytes([3; 32])
    }

    fn gaps(pack: &PartialPack) -> Vec<(u64, u64)> {
        pack.missing().iter().map(|g| (g.part, g.from)).collect()
    }

    #[test]
    fn parts_come_in_any_order_and_what_was_counted_is_still_there_after_a_kill() {
        let dir = tempfile::tempdir().expect("dir");
        let size = 2 * PART + 5;
        let pack = PartialPack::open(dir.path(), id(), size).expect("open");
        assert_eq!(gaps(&pack), [(0, 0), (1, 0), (2, 0)]);
        pack.put(2, 0, &[2; 5]).expect("put");
        pack.put(0, 0, &vec![0; PART as usize]).expect("put");
        pack.put(1, 0, &[1, 1]).expect("how it begins");
        pack.put(1, 3, &[1]).expect_err("something before it is missing");
        pack.put(2, 5, &[1]).expect_err("beyond the end");
        pack.put(3, 0, &[1]).expect_err("no such part");
        PartialPack::open(dir.path(), id(), size).expect_err("somebody is at it");
        drop(pack);
        let pack = PartialPack::open(dir.path(), id(), size).expect("again");
        assert_eq!(gaps(&pack), [(1, 2)]);
        assert!(pack.arrived().is_none());
        // Once more, and some more: what is there stays.
        pack.put(1, 0, &[9]).expect("it is there");
        pack.put(1, 1, &vec![1; PART as usize - 1]).expect("the rest");
        let bytes = fs::read(pack.arrived().expect("whole").path).expect("read");
        let of_one = &bytes[PART as usize..2 * PART as usize];
        assert!(bytes.len() as u64 == size && of_one.iter().all(|b| *b == 1) && bytes[2 * PART as usize] == 2);
        fs::remove_file(pack.arrived().expect("whole").path).expect("taken away");
        drop(pack);
        let pack = PartialPack::open(dir.path(), id(), size).expect("begun anew");
        assert_eq!(gaps(&pack), [(0, 0), (1, 0), (2, 0)]);
        pack.clear();
        assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
    }

    #[test]
    fn a_list_that_cannot_be_says_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        drop(PartialPack::open(dir.path(), id(), PART + 5).expect("open"));
        let list = dir.path().join(format!("{}-{}.list", id(), PART + 5));
        for (bytes, told) in
            [(vec![1, 0, 0], vec![(0, 0), (1, 0)]), (vec![0xff; 16], vec![]), (vec![0; 24], vec![(0, 0), (1, 0)])]
        {
            fs::write(&list, &bytes).expect("written");
            let pack = PartialPack::open(dir.path(), id(), PART + 5).expect("open");
            assert_eq!(gaps(&pack), told, "{bytes:?}");
        }
    }

    #[test]
    fn a_part_that_is_another_begins_anew() {
        let dir = tempfile::tempdir().expect("dir");
        let pack = PartialPack::open(dir.path(), id(), 5).expect("open");
        pack.put(0, 0, b"hallo").expect("put");
        assert!(!pack.check(0, blake3::hash(b"hello").as_bytes()).expect("read"));
        assert_eq!(gaps(&pack), [(0, 0)]);
        pack.put(0, 0, b"hello").expect("put");
        assert!(pack.check(0, blake3::hash(b"hello").as_bytes()).expect("read"));
        assert_eq!(gaps(&pack), []);
    }
}
