//! The stat cache: a file that looks as it did need not be hashed again. Nor are files whose times do not tell of
//! writes through memory maps (`pages`).

use crate::{
    RepoError, Result,
    object_db::Odb,
    write::{
        Ingested,
        pages::{WriteOut, expose_writes},
    },
};
use mdl_objects::{Mode, Reader, Writer};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A file must have been left alone for this long before its state says anything: coarser than any clock of a file
/// system in use.
const SETTLED_NS: i128 = 2_000_000_000;
/// Two writes that are no further apart may leave the same time: coarser than the clock of the kernel.
const TICK_NS: i128 = 20_000_000;

/// What tells a changed file from an unchanged one without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    size: u64,
    mtime_ns: i128,
    ctime_ns: i128,
    inode: u64,
    device: u64,
}

impl FileState {
    /// The state of a file now.
    pub fn from_path(path: &Path) -> Result<FileState> {
        let found = fs::metadata(path).map_err(RepoError::io(format!("cannot read {}", path.display())))?;
        Ok(FileState::from(&found))
    }

    /// The state of a file now, after which any write moves it; and whether that holds for writes through memory maps
    /// too.
    pub fn exposed(path: &Path) -> Result<(FileState, bool)> {
        let before = FileState::from_path(path)?;
        let told = expose_writes(path, WriteOut::Wait)?;
        let state = FileState::from_path(path)?.after_tick();
        // A page that was written to again before all were out moves nothing any more.
        Ok((state, told && !state.written_since(&before)))
    }

    /// Waits until a write from now on has another time than the last.
    pub fn after_tick(self) -> FileState {
        let age = self.age_ns();
        if (0..TICK_NS).contains(&age) {
            sleep(Duration::from_nanos((TICK_NS - age) as u64));
        }
        self
    }

    fn age_ns(&self) -> i128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |d| d.as_nanos() as i128) - self.mtime_ns.max(self.ctime_ns)
    }

    /// Whether the file had been left alone long enough, now, for this state to mean something.
    pub fn settled(&self) -> bool {
        self.age_ns() > SETTLED_NS
    }

    /// Whether the file may have been written to between two looks. A link made or removed elsewhere moves the inode's
    /// time and no byte: usual where links to rotated files are committed.
    pub fn written_since(&self, earlier: &FileState) -> bool {
        let linked = FileState { ctime_ns: earlier.ctime_ns, ..*self };
        linked != *earlier
    }

    fn write(&self, w: &mut Writer) {
        w.varint(self.size);
        w.bytes.extend_from_slice(&self.mtime_ns.to_le_bytes());
        w.bytes.extend_from_slice(&self.ctime_ns.to_le_bytes());
        w.varint(self.inode);
        w.varint(self.device);
    }
}

impl From<&fs::Metadata> for FileState {
    fn from(m: &fs::Metadata) -> FileState {
        let ns = |s: i64, n: i64| i128::from(s) * 1_000_000_000 + i128::from(n);
        FileState {
            size: m.size(),
            mtime_ns: ns(m.mtime(), m.mtime_nsec()),
            ctime_ns: ns(m.ctime(), m.ctime_nsec()),
            inode: m.ino(),
            device: m.dev(),
        }
    }
}

/// What the file was when it last looked like this.
pub fn recall(odb: &Odb, path: &Path, state: &FileState) -> Option<Ingested> {
    let value = odb.with_index(|index| index.stat(path.as_os_str().as_encoded_bytes()))?;
    let mut expected = Writer::default();
    state.write(&mut expected);
    let rest = value.strip_prefix(expected.bytes.as_slice())?;
    let mut r = Reader::new(rest);
    let mode = match r.u8().ok()? {
        1 => Mode::Blob,
        2 => Mode::Manifest,
        _ => return None,
    };
    let id = r.id().ok()?;
    r.finish().ok()?;
    Some(Ingested { mode, id, size: state.size })
}

/// Remembers what the file is. The state must have been settled before the file was read.
pub fn remember(odb: &Odb, path: &Path, state: &FileState, file: &Ingested) {
    let mut w = Writer::default();
    state.write(&mut w);
    w.u8(file.mode as u8);
    w.id(&file.id);
    odb.with_index(|index| index.put_stat(path.as_os_str().as_encoded_bytes(), &w.bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Progress, Silent,
        storage::LocalStorage,
        write::{Chains, DiskFile, Hints, Ingest, Policy, Report, Sink, ingest_cached},
    };
    use std::{sync::Arc, thread::sleep, time::Duration};

    struct Slow;

    impl Progress for Slow {
        fn begin(&self, _what: &str, _total: u64) {}
        fn advance(&self, _n: u64) {
            sleep(Duration::from_nanos(SETTLED_NS as u64 + 100_000_000));
        }
        fn end(&self) {}
    }

    fn ingest(odb: &Odb, f: &DiskFile, progress: &dyn Progress) {
        let policy = Policy { chains: Chains::NONE, allow_damaged: false };
        let mut ingest =
            Ingest { odb, sink: Sink::Ids, policy, hints: &Hints::default(), progress, report: Report::default() };
        ingest_cached(&mut ingest, &f.path, &f.rel, None).expect("ingest");
    }

    #[test]
    fn a_file_that_settles_while_it_is_read_is_not_remembered() {
        let dir = tempfile::TempDir::new().expect("temp dir");
        let engine = Arc::new(mdl_codec::CpuEngine::new());
        let storage = Arc::new(LocalStorage::new(dir.path().join("store")));
        let odb = Odb::new(storage, engine, Some(dir.path().join("index")));
        let path = dir.path().join("f");
        fs::write(&path, b"perhaps torn").expect("write");
        let f = DiskFile { rel: "f".to_owned(), path: path.clone(), size: 12, executable: false };
        ingest(&odb, &f, &Slow);
        let (state, told) = FileState::exposed(&path).expect("state");
        if !told {
            // On a file system in memory nothing is remembered.
            return;
        }
        assert!(state.settled() && recall(&odb, &path, &state).is_none());
        ingest(&odb, &f, &Silent);
        assert!(recall(&odb, &path, &state).is_some(), "now it had settled before");
    }

    #[test]
    fn a_link_removed_elsewhere_writes_nothing() {
        let dir = tempfile::TempDir::new().expect("temp dir");
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::write(&one, b"the same").expect("write");
        fs::hard_link(&one, &other).expect("link");
        let before = FileState::from_path(&other).expect("state");
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::remove_file(&one).expect("remove");
        let after = FileState::from_path(&other).expect("state");
        assert!(after != before, "the inode's time moved");
        assert!(!after.written_since(&before));
        fs::write(&other, b"not same").expect("write");
        assert!(FileState::from_path(&other).expect("state").written_since(&after));
    }
}
