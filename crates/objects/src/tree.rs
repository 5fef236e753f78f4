//! Trees: one directory of a version.

use crate::{Id, ObjectError, Reader, Writer};

const VERSION: u8 = 1;

/// What an entry is and how it is checked out. The discriminant is the stored code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// A file that is one blob.
    Blob = 1,
    /// A file described by a manifest.
    Manifest = 2,
    /// A directory.
    Tree = 3,
}

impl Mode {
    fn from_code(code: u8) -> Option<Mode> {
        [Mode::Blob, Mode::Manifest, Mode::Tree].into_iter().find(|m| *m as u8 == code)
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A single path component.
    pub name: String,
    /// What it is.
    pub mode: Mode,
    /// Whether the file is executable (always false for directories).
    pub executable: bool,
    /// Bytes of the file; for a directory, of all files below it.
    pub size: u64,
    /// The blob, manifest or tree.
    pub id: Id,
}

/// A directory: entries in strictly ascending byte order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// Refuses what could leave the directory, hide in the repository's own folder, or not exist on common file systems.
pub fn check_name(name: &str) -> Result<(), ObjectError> {
    let reason = if name.is_empty() {
        "empty"
    } else if name == "." || name == ".." {
        "names a directory above or itself"
    } else if name.eq_ignore_ascii_case(".mdl") {
        "the repository's own directory"
    } else if name.len() > 255 {
        "longer than 255 bytes"
    } else if name.contains(['/', '\\']) {
        "holds a path separator"
    } else if name.chars().any(char::is_control) {
        "holds a control character"
    } else {
        return Ok(());
    };
    Err(ObjectError::Name { name: name.to_owned(), reason })
}

impl Tree {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.varint(self.entries.len() as u64);
        for e in &self.entries {
            w.str(&e.name);
            w.u8(e.mode as u8 | u8::from(e.executable) << 7);
            w.varint(e.size);
            w.id(&e.id);
        }
        w.bytes
    }

    /// Parses canonical bytes; whatever `encode` would not write is refused, as are unsafe names.
    pub fn decode(bytes: &[u8]) -> Result<Tree, ObjectError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let n = r.count(36)?;
        let mut entries: Vec<Entry> = Vec::with_capacity(n);
        for _ in 0..n {
            let name = r.str()?;
            check_name(&name)?;
            if entries.last().is_some_and(|last| last.name >= name) {
                return Err(ObjectError::NotCanonical("tree entries out of order"));
            }
            let code = r.u8()?;
            let mode = Mode::from_code(code & 0x7f).ok_or(ObjectError::NotCanonical("unknown tree entry mode"))?;
            let executable = code & 0x80 != 0;
            if executable && mode == Mode::Tree {
                return Err(ObjectError::NotCanonical("executable directory"));
            }
            entries.push(Entry { name, mode, executable, size: r.varint()?, id: r.id()? });
        }
        r.finish()?;
        Ok(Tree { entries })
    }

    /// The entry with this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.binary_search_by(|e| e.name.as_str().cmp(name)).ok().map(|i| &self.entries[i])
    }
}
