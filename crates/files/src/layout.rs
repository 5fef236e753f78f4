//! What a scan returns: formats, extents, views, errors, and the byte source it reads.

use mdl_codec::Dtype;
use std::io;
use thiserror::Error;

/// Random access to the bytes of a file (or of anything else of known length).
pub trait ReadAt: Send + Sync {
    /// Length in bytes.
    fn size(&self) -> u64;
    /// Fills `buf` with the bytes at `offset`; `UnexpectedEof` where the range leaves the source.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|at| self.get(at..at.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buf)
    }
}

/// The container a file was recognised as. The discriminant is the stored code (docs/format.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Format {
    /// No known container: bytes.
    Plain = 0,
    /// safetensors.
    Safetensors = 1,
    /// PyTorch zip archive (`torch.save`, TorchScript).
    TorchZip = 2,
    /// NumPy `.npz` (zip of `.npy`).
    Npz = 3,
    /// NumPy `.npy`.
    Npy = 4,
    /// GGUF.
    Gguf = 5,
    /// PyTorch before its zip archives: a run of pickles, then payloads.
    TorchLegacy = 6,
}

/// A run of bytes of the file that is one tensor's payload (or one shared storage).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Element type; `Opaque` where the bytes are not plain elements.
    pub dtype: Dtype,
    /// Dimensions in elements; empty for a scalar. The product times the element size is the extent's length.
    pub shape: Vec<u64>,
    /// Name by which the delta base is found in the parent; unique within a layout.
    pub name: String,
}

impl Extent {
    /// Length in bytes, if it fits.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(&self.shape)
    }
}

/// A further name for bytes inside an extent: a tied weight, a strided view of a storage, an overlapping tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The tensor's name in the file.
    pub name: String,
    /// Index into [`Layout::extents`].
    pub extent: u32,
    /// Offset of the first element from the start of the extent, in bytes.
    pub offset: u64,
    /// Element type of the view.
    pub dtype: Dtype,
    /// Dimensions in elements.
    pub shape: Vec<u64>,
    /// Strides in elements, one per dimension (never negative).
    pub strides: Vec<u64>,
}

/// The tensors of one file. Extents are sorted by offset, disjoint and inside the file; what no extent covers is the
/// skeleton. Zero-length extents are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The container.
    pub format: Format,
    /// Disjoint payload runs.
    pub extents: Vec<Extent>,
    /// Names beyond the extents' own.
    pub views: Vec<View>,
}

impl Layout {
    /// The layout of a file with no tensors in it.
    pub fn plain() -> Layout {
        Layout { format: Format::Plain, extents: Vec::new(), views: Vec::new() }
    }
}

/// Why a file could not be scanned.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The file says it is this container, but its structure is wrong (truncated, lying lengths, duplicate names).
    #[error("damaged {format:?} file: {reason}")]
    Damaged {
        /// The container it claims to be.
        format: Format,
        /// What is wrong, in a phrase.
        reason: String,
    },
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
}
