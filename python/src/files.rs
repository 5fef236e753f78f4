//! Files to commit, as Python passes them, and the snapshot that keeps them as they were.

use crate::{
    buffer::{Lent, There},
    engine,
    errors::free,
    pools::{Priority, on},
};
use mdl_codec::Span;
use mdl_files::ReadAt;
use mdl_repo::{Content, NewFile, RepoError};
use pyo3::{exceptions::PyValueError, prelude::*};
use rayon::prelude::*;
use std::{
    io,
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes that one thread copies at a time.
const CHUNK: usize = 4 << 20;

/// Some of a file's bytes.
#[derive(Debug)]
enum Piece {
    Own(Vec<u8>),
    Lent(Lent),
    /// A part of a snapshot.
    Kept(Arc<Buffer>, Range<usize>),
    /// On a GPU, and not written to any more.
    There(There),
}

impl Piece {
    /// The bytes, or where on a GPU they are.
    fn bytes(&self) -> Result<&[u8], Span> {
        match self {
            Piece::Own(bytes) => Ok(bytes),
            Piece::Lent(lent) => Ok(lent.bytes()),
            Piece::Kept(buffer, range) => Ok(buffer.bytes.get(range.clone()).unwrap_or_default()),
            Piece::There(there) => Err(there.span()),
        }
    }

    /// Fills `out` with the bytes from `from` on, all of which are there.
    fn read(&self, from: usize, out: &mut [u8]) -> io::Result<()> {
        let end = io::ErrorKind::UnexpectedEof;
        match self.bytes() {
            Ok(bytes) => out.copy_from_slice(bytes.get(from..from + out.len()).ok_or(end)?),
            Err(span) => engine::read(span.part(from, out.len()).ok_or(end)?, out).map_err(io::Error::other)?,
        }
        Ok(())
    }

    fn len(&self) -> usize {
        self.bytes().map_or_else(|span| span.len(), <[u8]>::len)
    }
}

/// Pieces end to end, read as a file.
#[derive(Debug)]
struct Pieces {
    pieces: Vec<Arc<Piece>>,
    /// Where each piece begins, and where the last one ends.
    starts: Vec<u64>,
}

impl Pieces {
    fn new(pieces: Vec<Arc<Piece>>) -> Arc<Pieces> {
        let ends = pieces.iter().scan(0, |at, piece| {
            *at += piece.len() as u64;
            Some(*at)
        });
        let starts = std::iter::once(0).chain(ends).collect();
        Arc::new(Pieces { pieces, starts })
    }
}

impl ReadAt for Pieces {
    fn size(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (offset, buf);
        let mut index = self.starts.partition_point(|&start| start <= at).saturating_sub(1);
        while !rest.is_empty() {
            let (Some(piece), Some(start)) = (self.pieces.get(index), self.starts.get(index)) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let from = (at - start) as usize;
            let n = (piece.len() - from).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            piece.read(from, now)?;
            (at, rest, index) = (at + n as u64, later, index + 1);
        }
        Ok(())
    }
}

impl mdl_repo::Source for Pieces {
    fn on_device(&self, offset: u64, len: u64) -> Option<Span> {
        let index = self.starts.partition_point(|&start| start <= offset).checked_sub(1)?;
        let span = self.pieces.get(index)?.bytes().err()?;
        span.part((offset - self.starts.get(index)?) as usize, usize::try_from(len).ok()?)
    }
}

#[derive(Clone, Debug)]
enum Source {
    Disk(PathBuf),
    Memory(Arc<Pieces>),
    Stored(String),
}

/// A file of a version that is to be made.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug)]
pub struct File {
    rel: String,
    source: Source,
}

/// Address, length in bytes, what keeps the memory, and the GPU it is of, if it is.
type Address = (usize, usize, Py<PyAny>, Option<u32>);

#[pymethods]
impl File {
    /// A file on disk.
    #[staticmethod]
    fn disk(rel: String, path: PathBuf) -> File {
        File { rel, source: Source::Disk(path) }
    }

    /// A file of these bytes.
    #[staticmethod]
    fn bytes(rel: String, content: Vec<u8>) -> File {
        File { rel, source: Source::Memory(Pieces::new(vec![Arc::new(Piece::Own(content))])) }
    }

    /// A file of a header and, behind it, runs of memory: address, length in bytes, owner, number of the GPU or None.
    #[staticmethod]
    fn memory(rel: String, header: Vec<u8>, runs: Vec<Address>) -> PyResult<File> {
        if runs.iter().any(|(start, len, ..)| *start == 0 && *len > 0) {
            return Err(PyValueError::new_err("a tensor without memory"));
        }
        let piece = |(start, len, owner, device): Address| match device {
            None => Piece::Lent(Lent::new(start, len, owner)),
            Some(device) => Piece::There(There::new(device, start, len, owner)),
        };
        let pieces = std::iter::once(Piece::Own(header)).chain(runs.into_iter().map(piece));
        Ok(File { rel, source: Source::Memory(Pieces::new(pieces.map(Arc::new).collect())) })
    }

    /// A file that `Repo.stage` stored, in its words.
    #[staticmethod]
    fn stored(rel: String, text: String) -> File {
        File { rel, source: Source::Stored(text) }
    }

    #[getter]
    fn rel(&self) -> &str {
        &self.rel
    }
}

impl File {
    /// As the repository takes it.
    pub fn to_new(&self) -> PyResult<NewFile> {
        let content = match &self.source {
            Source::Disk(path) => Content::Disk(path.clone()),
            Source::Memory(pieces) => Content::Memory(pieces.clone()),
            Source::Stored(text) => Content::Stored(
                serde_json::from_str(text).map_err(|e| PyValueError::new_err(format!("no staged file: {e}")))?,
            ),
        };
        let executable = match &content {
            Content::Disk(path) => path.metadata().is_ok_and(|m| m.permissions().mode() & 0o100 != 0),
            Content::Stored(stored) => stored.executable(),
            Content::Memory(_) => false,
        };
        Ok(NewFile { rel: self.rel.clone(), executable, content })
    }

    fn lent(&self) -> impl Iterator<Item = &Lent> {
        let pieces = match &self.source {
            Source::Memory(pieces) => pieces.pieces.as_slice(),
            _ => &[],
        };
        pieces.iter().filter_map(|p| match &**p {
            Piece::Lent(lent) => Some(lent),
            _ => None,
        })
    }

    /// The same file with the bytes that a snapshot holds from `at` on; moves `at` behind them.
    fn kept(&self, buffer: &Arc<Buffer>, at: &mut usize) -> File {
        let source = match &self.source {
            Source::Memory(pieces) => {
                let pieces = pieces.pieces.iter().map(|p| match &**p {
                    Piece::Lent(lent) => {
                        let start = *at;
                        *at += lent.len();
                        Arc::new(Piece::Kept(buffer.clone(), start..*at))
                    }
                    _ => p.clone(),
                });
                Source::Memory(Pieces::new(pieces.collect()))
            }
            other => other.clone(),
        };
        File { rel: self.rel.clone(), source }
    }
}

/// A snapshot's memory. It goes back to its arena when the last file that is read from it goes.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        // The next state is as large as the last one: what is smaller is of no more use.
        home.retain(|b| b.capacity() >= bytes.capacity());
        home.push(bytes);
    }
}

/// Memory for snapshots, used again and again: fresh memory costs more than copying into it.
#[pyclass(frozen, module = "mdl._native")]
#[derive(Debug, Default)]
pub struct Arena {
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

#[pymethods]
impl Arena {
    #[new]
    fn new() -> Arena {
        Arena::default()
    }

    /// Copies what files lend from Python objects; the files that come back are independent of these.
    fn snapshot(&self, py: Python<'_>, files: Vec<Py<File>>) -> PyResult<Vec<File>> {
        let files: Vec<&File> = files.iter().map(Py::get).collect();
        let total = files.iter().flat_map(|f| f.lent()).map(Lent::len).sum();
        let work = || {
            let mut bytes = self.take(total)?;
            copy(&files, &mut bytes)?;
            Ok(bytes)
        };
        let buffer = Arc::new(Buffer { bytes: free(py, work)?, home: self.spare.clone() });
        let mut at = 0;
        Ok(files.iter().map(|f| f.kept(&buffer, &mut at)).collect())
    }

    /// Bytes of memory that wait for the next snapshot.
    #[getter]
    fn spare_bytes(&self) -> usize {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.iter().map(Vec::capacity).sum()
    }

    /// Gives memory that waits for the next snapshot back to the system.
    fn clear(&self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Arena {
    /// Memory of this length, its contents left as they are.
    fn take(&self, len: usize) -> Result<Vec<u8>, RepoError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = spare.filter(|b| b.capacity() >= len).unwrap_or_default();
        if bytes.len() < len {
            let full = |e| RepoError::io(format!("no memory for a snapshot of {len} bytes"))(io::Error::other(e));
            bytes.clear();
            bytes.try_reserve_exact(len).map_err(full)?;
        }
        bytes.resize(len, 0);
        Ok(bytes)
    }
}

fn copy(files: &[&File], out: &mut [u8]) -> Result<(), RepoError> {
    let mut parts = Vec::new();
    let mut rest = out;
    for lent in files.iter().flat_map(|f| f.lent()) {
        for from in lent.bytes().chunks(CHUNK) {
            let (to, later) = rest.split_at_mut(from.len());
            parts.push((to, from));
            rest = later;
        }
    }
    on(Priority::Waiting, || {
        parts.into_par_iter().for_each(|(to, from)| to.copy_from_slice(from));
        Ok(())
    })
}
