//! The tensor table at the head of a frame.

use mdl_codec::{
    CodecError, Dtype, Result,
    engine_internals::{Cursor, put_varint},
};

/// Longest table, decoded: names and shapes of a hundred thousand tensors.
const TABLE_MAX: usize = 32 << 20;
const BAD: CodecError = CodecError::Corrupt("bad table of tensors");

/// How a tensor's body came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Segments of the engine, against the parent's where it has such a tensor.
    Lossless,
    /// The system's own, alone.
    Alone,
    /// The system's own, against the parent.
    Against,
}

/// What is known of a tensor before its body is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) how: How,
    /// Length of its body.
    pub(super) len: usize,
}

impl Entry {
    /// Bytes of the tensor; none where no machine could hold them.
    pub(super) fn bytes(&self) -> Option<usize> {
        let n = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        n.checked_mul(self.dtype.size())
    }
}

/// Appends the table, compressed by zstd, after its two lengths.
pub(super) fn put(out: &mut Vec<u8>, entries: &[Entry]) -> Result<()> {
    let mut raw = Vec::new();
    put_varint(&mut raw, entries.len() as u64);
    for e in entries {
        put_varint(&mut raw, e.name.len() as u64);
        raw.extend_from_slice(e.name.as_bytes());
        raw.extend_from_slice(&[e.dtype.code(), e.how as u8]);
        put_varint(&mut raw, e.shape.len() as u64);
        e.shape.iter().for_each(|&d| put_varint(&mut raw, d as u64));
        put_varint(&mut raw, e.len as u64);
    }
    let packed = zstd::bulk::compress(&raw, 19).map_err(|_| CodecError::BadInput("zstd refused the table"))?;
    put_varint(out, raw.len() as u64);
    put_varint(out, packed.len() as u64);
    out.extend_from_slice(&packed);
    Ok(())
}

/// Reads what [`put`] wrote.
pub(super) fn get(cursor: &mut Cursor<'_>) -> Result<Vec<Entry>> {
    let (len, packed) = (cursor.varint()?, cursor.varint()?);
    if len > TABLE_MAX {
        return Err(BAD);
    }
    let raw = zstd::bulk::decompress(cursor.take(packed)?, len).map_err(|_| BAD)?;
    let mut c = Cursor::new(&raw);
    let n = c.varint()?;
    let mut entries = Vec::new();
    for _ in 0..n {
        let len = c.varint()?;
        let name = std::str::from_utf8(c.take(len)?).map_err(|_| BAD)?.to_owned();
        let dtype = Dtype::from_code(c.u8()?).ok_or(BAD)?;
        let how = match c.u8()? {
            0 => How::Lossless,
            1 => How::Alone,
            2 => How::Against,
            _ => return Err(BAD),
        };
        let axes = c.varint()?;
        let shape = (0..axes).map(|_| c.varint()).collect::<Result<_, _>>()?;
        let len = c.varint()?;
        entries.push(Entry { name, dtype, shape, how, len });
    }
    c.done()?;
    Ok(entries)
}
