//! Manifests: one checkpoint file as a skeleton (its bytes without the tensors) and the tensors pasted into it.

use crate::{Id, Kind, ObjectError, Reader, Writer};
use mdl_codec::Dtype;

const VERSION: u8 = 1;

/// A run of skeleton bytes that is one blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The blob.
    pub id: Id,
    /// Its length in bytes.
    pub len: u64,
}

/// A tensor's place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRef {
    /// Name, by which the next version finds its delta base.
    pub name: String,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions in elements; empty for a scalar.
    pub shape: Vec<u64>,
    /// The tensor object.
    pub id: Id,
}

impl TensorRef {
    /// Length in bytes, if it fits.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(&self.shape)
    }
}

/// A further name for elements inside a tensor of the same file (tied weight, strided view).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRef {
    /// Name.
    pub name: String,
    /// Index into [`Manifest::tensors`].
    pub tensor: u32,
    /// Bytes from the tensor's start to the first element.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions in elements.
    pub shape: Vec<u64>,
    /// Strides in elements, one per dimension.
    pub strides: Vec<u64>,
}

impl ViewRef {
    /// Where the last of its elements ends, in bytes from the tensor's start; none where that is beyond any tensor.
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.dtype.span(&self.shape, &self.strides)?)
    }
}

/// One file. The tensors are sorted by offset and disjoint; the skeleton's chunks, end to end, fill what they leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Code of the container (docs/format.md, "Canonical objects"); 0 is plain bytes.
    pub format: u8,
    /// Length of the file in bytes.
    pub size: u64,
    /// The skeleton's blobs, in order.
    pub skeleton: Vec<Chunk>,
    /// The tensors.
    pub tensors: Vec<TensorRef>,
    /// Further names.
    pub views: Vec<ViewRef>,
}

impl Manifest {
    /// What the file is made of: the blobs of its skeleton, then its tensors.
    pub fn parts(&self) -> impl Iterator<Item = (Id, Kind)> {
        let blobs = self.skeleton.iter().map(|c| (c.id, Kind::Blob));
        blobs.chain(self.tensors.iter().map(|t| (t.id, Kind::Tensor)))
    }

    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(self.format);
        w.varint(self.size);
        w.varint(self.skeleton.len() as u64);
        for c in &self.skeleton {
            w.varint(c.len);
            w.id(&c.id);
        }
        w.varint(self.tensors.len() as u64);
        let mut end = 0;
        for t in &self.tensors {
            w.str(&t.name);
            w.varint(t.offset.wrapping_sub(end));
            w.u8(t.dtype.code());
            w.dims(&t.shape);
            w.id(&t.id);
            end = t.offset.wrapping_add(t.byte_len().unwrap_or(0));
        }
        w.varint(self.views.len() as u64);
        for v in &self.views {
            w.str(&v.name);
            w.varint(u64::from(v.tensor));
            w.varint(v.offset);
            w.u8(v.dtype.code());
            w.dims(&v.shape);
            w.dims(&v.strides);
        }
        w.bytes
    }

    /// Parses canonical bytes and checks that tensors and skeleton fill the file exactly.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ObjectError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let (format, size) = (r.u8()?, r.varint()?);
        let n = r.count(33)?;
        let skeleton =
            (0..n).map(|_| Ok(Chunk { len: r.varint()?, id: r.id()? })).collect::<Result<Vec<_>, ObjectError>>()?;
        let n = r.count(36)?;
        let mut tensors = Vec::with_capacity(n);
        let mut end = 0u64;
        for _ in 0..n {
            let (t, next) = read_tensor(&mut r, end)?;
            tensors.push(t);
            end = next;
        }
        let n = r.count(6)?;
        let views = (0..n).map(|_| read_view(&mut r)).collect::<Result<Vec<_>, _>>()?;
        r.finish()?;
        let manifest = Manifest { format, size, skeleton, tensors, views };
        manifest.check(end)?;
        Ok(manifest)
    }

    fn check(&self, last_end: u64) -> Result<(), ObjectError> {
        let bad = |what| Err(ObjectError::NotCanonical(what));
        if last_end > self.size {
            return bad("a tensor leaves the file");
        }
        let in_tensors: u64 = self.tensors.iter().filter_map(TensorRef::byte_len).sum();
        let in_skeleton = self.skeleton.iter().try_fold(0u64, |n, c| n.checked_add(c.len));
        if in_skeleton != Some(self.size - in_tensors) || self.skeleton.iter().any(|c| c.len == 0) {
            return bad("the skeleton does not fill the file");
        }
        let owner = |v: &ViewRef| self.tensors.get(v.tensor as usize).filter(|_| v.shape.len() == v.strides.len());
        if self.views.iter().any(|v| owner(v).is_none()) {
            return bad("a view points nowhere");
        }
        let inside = |v: &ViewRef| {
            let len = owner(v).and_then(TensorRef::byte_len);
            v.end().zip(len).is_some_and(|(end, len)| end <= len)
        };
        if !self.views.iter().all(inside) {
            return bad("a view leaves its tensor");
        }
        Ok(())
    }
}

fn read_dtype(r: &mut Reader<'_>) -> Result<Dtype, ObjectError> {
    Dtype::from_code(r.u8()?).ok_or(ObjectError::NotCanonical("unknown dtype"))
}

fn read_tensor(r: &mut Reader<'_>, end: u64) -> Result<(TensorRef, u64), ObjectError> {
    let name = r.str()?;
    let offset = end.checked_add(r.varint()?).ok_or(ObjectError::NotCanonical("a tensor leaves the file"))?;
    let t = TensorRef { name, offset, dtype: read_dtype(r)?, shape: r.dims()?, id: r.id()? };
    let end = t
        .byte_len()
        .and_then(|n| offset.checked_add(n))
        .ok_or(ObjectError::NotCanonical("a tensor is larger than 64 bits"))?;
    Ok((t, end))
}

fn read_view(r: &mut Reader<'_>) -> Result<ViewRef, ObjectError> {
    Ok(ViewRef {
        name: r.str()?,
        tensor: u32::try_from(r.varint()?).map_err(|_| ObjectError::NotCanonical("a view points nowhere"))?,
        offset: r.varint()?,
        dtype: read_dtype(r)?,
        shape: r.dims()?,
        strides: r.dims()?,
    })
}
