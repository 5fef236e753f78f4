//! Writes a version's files as a tar stream: ustar, with pax records where a name or a length does not fit.

use crate::{
    content::Sink,
    problem::{Problem, Result},
};
use mdl_repo::{Files, Odb, Silent};
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// Blocks of nothing at the end.
const END: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];
/// The first length that a ustar header cannot say.
const LONG: u64 = 1 << 33;
/// Longest name that is certain to fit.
const SHORT: usize = 90;

/// An archive to be written.
pub(super) struct Archive {
    files: Files,
    mtime: u64,
    pub(super) len: u64,
}

impl Archive {
    /// Of these files, all with one time, in milliseconds.
    pub(super) fn new(files: Files, time_ms: i64) -> Result<Archive> {
        let mtime = u64::try_from(time_ms.div_euclid(1000)).unwrap_or(0).min(LONG - 1);
        let mut len = END.len() as u64;
        for (path, entry) in &files {
            let head = head(path, entry.size, entry.executable, mtime).len() as u64;
            let whole = entry.size.checked_next_multiple_of(BLOCK).and_then(|n| n.checked_add(head));
            let sum = whole.and_then(|n| n.checked_add(len));
            len = sum.ok_or_else(|| Problem::too_large("the version is longer than an archive can be"))?;
        }
        Ok(Archive { files, mtime, len })
    }

    /// Writes it.
    pub(super) fn stream_files(&self, odb: &Odb, sink: Sink<'_>) -> Result<()> {
        for (path, entry) in &self.files {
            sink(&head(path, entry.size, entry.executable, self.mtime))?;
            odb.stream_files(entry, &Silent, sink)?;
            let over = (entry.size % BLOCK) as usize;
            if over > 0 {
                sink(&END[over..BLOCK as usize])?;
            }
        }
        Ok(sink(&END)?)
    }
}

/// What stands before a file's bytes.
fn head(path: &str, size: u64, executable: bool, mtime: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = plain(size, if executable { 0o755 } else { 0o644 }, mtime, EntryType::Regular);
    let mut records = String::new();
    if !path.is_ascii() || header.set_path(path).is_err() {
        records.push_str(&record("path", path));
        // For readers that know no pax: as much of the name as fits, with no directory of others in it.
        let ascii = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }
        };
        let name: String = path.chars().map(ascii).take(SHORT).collect();
        let _ = header.set_path(name);
    }
    if size >= LONG {
        records.push_str(&record("size", &size.to_string()));
    }
    if !records.is_empty() {
        let mut before = plain(records.len() as u64, 0o644, mtime, EntryType::XHeader);
        let _ = before.set_path("pax");
        before.set_cksum();
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(records.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK as usize), 0);
    }
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out
}

fn plain(size: u64, mode: u32, mtime: u64, kind: EntryType) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(mtime);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + rest.to_string().len();
    if len.to_string().len() + rest != len {
        len = rest + len.to_string().len();
    }
    format!("{len} {key}={value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    #[test]
    fn long_files_say_how_long_they_are() {
        let bytes = head("big.bin", 10_000_000_000, false, 7);
        let mut archive = tar::Archive::new(&bytes[..]);
        let entry = archive.entries().expect("entries").next().expect("one").expect("sound");
        assert_eq!((entry.size(), entry.header().mtime().ok()), (10_000_000_000, Some(7)));
        assert_eq!(&*entry.path_bytes(), b"big.bin");
    }

    proptest! {
        #[test]
        fn names_come_back(path in "[a-zé]{1,120}(/[a-z0-9 .]{1,120}[a-z]){0,3}", executable in any::<bool>()) {
            let mut bytes = head(&path, 3, executable, 1);
            prop_assert_eq!(bytes.len() % 512, 0);
            bytes.extend(b"abc");
            bytes.resize(bytes.len().next_multiple_of(512), 0);
            bytes.extend(END);
            let mut archive = tar::Archive::new(&bytes[..]);
            let mut seen = 0;
            for entry in archive.entries().expect("entries") {
                let mut entry = entry.expect("sound");
                prop_assert_eq!(&*entry.path_bytes(), path.as_bytes());
                prop_assert_eq!(entry.header().mode().ok(), Some(if executable { 0o755 } else { 0o644 }));
                let mut text = String::new();
                entry.read_to_string(&mut text).expect("read");
                prop_assert_eq!(text, "abc");
                seen += 1;
            }
            prop_assert_eq!(seen, 1);
        }

        #[test]
        fn records_count_themselves(value in "[a-z]{0,1200}") {
            let record = record("path", &value);
            let len: usize = record.split(' ').next().and_then(|n| n.parse().ok()).expect("a length");
            prop_assert_eq!(len, record.len());
        }
    }
}
