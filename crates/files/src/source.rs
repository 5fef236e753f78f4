//! A file as a byte source.

use crate::layout::ReadAt;
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// An open file whose length was taken when it was opened.
///
/// A file that shrinks afterwards gives `UnexpectedEof`; one that grows is read as it was.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    size: u64,
}

impl FileSource {
    /// Opens the file at `path` for reading.
    pub fn open(path: &Path) -> io::Result<FileSource> {
        FileSource::new(File::open(path)?)
    }

    /// Wraps a file that is already open.
    pub fn new(file: File) -> io::Result<FileSource> {
        let size = file.metadata()?.len();
        Ok(FileSource { file, size })
    }
}

impl ReadAt for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}
