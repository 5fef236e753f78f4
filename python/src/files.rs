//! Files to commit, as Python passes them, and the snapshot that keeps them as they were.

use crate::{
    buffer::{Lent, There},
    engine,
    errors::free,
    nn::{CompressedWeight, Contents},
    pools::{Priority, on},
};
use mdl_codec::{Coding, CompressedTensor, CpuEngine, Encoded, Span, scheme_of};
use mdl_files::{Extent, ReadAt};
use mdl_objects::Id;
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
    /// A compressed weight as it was: decoded when it is read.
    Encoded(Contents),
}

impl Piece {
    /// The bytes, where they lie in the host's memory.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Piece::Own(bytes) => Some(bytes),
            Piece::Lent(lent) => Some(lent.bytes()),
            Piece::Kept(buffer, range) => Some(buffer.bytes.get(range.clone()).unwrap_or_default()),
            Piece::There(_) | Piece::Encoded(_) => None,
        }
    }

    /// Where on a GPU the bytes are.
    fn span(&self) -> Option<Span> {
        match self {
            Piece::There(there) => Some(there.span()),
            _ => None,
        }
    }

    /// Fills `out` with the bytes from `from` on, all of which are there.
    fn read(&self, from: usize, out: &mut [u8]) -> io::Result<()> {
        let end = io::ErrorKind::UnexpectedEof;
        match self {
            Piece::There(there) => {
                engine::read(there.span().part(from, out.len()).ok_or(end)?, out).map_err(io::Error::other)?;
            }
            Piece::Encoded(weight) => decode_bytes(&weight.tensor, from, out)?,
            _ => {
                let bytes = self.bytes().and_then(|bytes| bytes.get(from..from + out.len()));
                out.copy_from_slice(bytes.ok_or(end)?);
            }
        }
        Ok(())
    }

    fn len(&self) -> usize {
        match self {
            Piece::There(there) => there.span().len(),
            Piece::Encoded(weight) => weight.tensor.len(),
            _ => self.bytes().map_or(0, <[u8]>::len),
        }
    }
}

/// Decodes the bytes from `from` on, which need not be whole elements.
fn decode_bytes(tensor: &CompressedTensor, from: usize, out: &mut [u8]) -> io::Result<()> {
    let (engine, size) = (CpuEngine::new(), tensor.dtype().size());
    let range = from / size..(from + out.len()).div_ceil(size);
    if from.is_multiple_of(size) && out.len().is_multiple_of(size) {
        return tensor.decode_range(&engine, range, out).map_err(io::Error::other);
    }
    let mut whole = vec![0; range.len() * size];
    tensor.decode_range(&engine, range, &mut whole).map_err(io::Error::other)?;
    let inside = from % size;
    out.copy_from_slice(&whole[inside..inside + out.len()]);
    Ok(())
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

    /// The compressed weight that is all of a tensor.
    fn weight(&self, e: &Extent) -> Option<&Contents> {
        let Piece::Encoded(weight) = &**self.pieces.get(self.starts.binary_search(&e.offset).ok()?)? else {
            return None;
        };
        let shape = weight.tensor.shape().iter().map(|&d| d as u64);
        (weight.tensor.dtype() == e.dtype && shape.eq(e.shape.iter().copied())).then_some(weight)
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
        let span = self.pieces.get(index)?.span()?;
        span.part((offset - self.starts.get(index)?) as usize, usize::try_from(len).ok()?)
    }

    fn known_id(&self, e: &Extent) -> Option<Id> {
        self.weight(e)?.id.get().copied()
    }

    fn hashed(&self, e: &Extent, id: Id) {
        if let Some(weight) = self.weight(e) {
            weight.id.get_or_init(|| id);
        }
    }

    fn encoded(&self, e: &Extent) -> Option<Vec<Encoded>> {
        let tensor = &self.weight(e)?.tensor;
        // Others are cut elsewhere.
        let segments = (tensor.coding() == Coding::Lossless).then(|| tensor.segments()).flatten()?.into_iter();
        let encoded = |bytes: Arc<[u8]>| Some(Encoded { scheme: scheme_of(&bytes).ok()?, bytes: bytes.to_vec() });
        segments.map(encoded).collect()
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
    /// A compressed weight is a run without an address.
    #[staticmethod]
    fn memory(py: Python<'_>, rel: String, header: Vec<u8>, runs: Vec<Address>) -> PyResult<File> {
        let piece = |(start, len, owner, device): Address| match (owner.bind(py).cast::<CompressedWeight>(), device) {
            (Ok(weight), _) => Ok(Piece::Encoded(weight.get().snapshot())),
            _ if start == 0 && len > 0 => Err(PyValueError::new_err("a tensor without memory")),
            (_, None) => Ok(Piece::Lent(Lent::new(start, len, owner))),
            (_, Some(device)) => Ok(Piece::There(There::new(device, start, len, owner))),
        };
        let runs: Vec<Piece> = runs.into_iter().map(piece).collect::<PyResult<_>>()?;
        let pieces = std::iter::once(Piece::Own(header)).chain(runs);
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
