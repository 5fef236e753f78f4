//! Mends payloads of tensors: the header at the end, and tensors that can be its bases.

use crate::codec;
use mdl_codec::{Dtype, SEGMENT_BYTES};
use mdl_objects::{Id, Kind, Reader, Writer};
use mdl_repo::pack::{NewObject, PackWriter};

/// What a header says, whether or not it is true.
#[derive(Clone, Debug)]
pub struct Header {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Base and grandparent.
    pub bases: [Option<Id>; 2],
    /// Lengths of the segments.
    pub lengths: Vec<u32>,
    /// Where it begins in the payload.
    pub at: usize,
}

impl Header {
    /// Reads it from the end of a payload.
    pub fn parse(payload: &[u8]) -> Option<Header> {
        let (before, len) = payload.split_last_chunk::<4>()?;
        let at = before.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
        Header::read(&before[at..], at)
    }

    fn read(bytes: &[u8], at: usize) -> Option<Header> {
        let mut r = Reader::new(bytes);
        let (_version, flags) = (r.u8().ok()?, r.u8().ok()?);
        let dtype = Dtype::ALL[usize::from(r.u8().ok()?) % Dtype::ALL.len()];
        let shape = r.dims().ok()?;
        let mut id = |flag| {
            if flags & flag != 0 { r.id().ok().map(Some) } else { Some(None) }
        };
        let bases = [id(1)?, id(2)?];
        let mut lengths = Vec::new();
        while let Ok(four) = r.take(4) {
            lengths.push(u32::from_le_bytes(*four.first_chunk()?));
        }
        Some(Header { dtype, shape, bases, lengths, at })
    }

    /// Decoded length in bytes, if it fits.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(&self.shape)
    }

    /// As it is written behind the segments.
    pub fn encode(&self) -> Vec<u8> {
        let [base, grandparent] = self.bases;
        let grandparent = grandparent.filter(|_| base.is_some());
        let mut w = Writer::default();
        w.u8(1 + u8::from(grandparent.is_some()));
        w.u8(u8::from(base.is_some()) | u8::from(grandparent.is_some()) << 1);
        w.u8(self.dtype.code());
        w.dims(&self.shape);
        [base, grandparent].iter().flatten().for_each(|id| w.id(id));
        self.lengths.iter().for_each(|len| w.bytes.extend(len.to_le_bytes()));
        let len = w.bytes.len() as u32;
        w.bytes.extend(len.to_le_bytes());
        w.bytes
    }
}

/// One length for each segment that the shape needs, which add up to the bytes before the header.
pub fn tensor(data: &mut Vec<u8>) {
    let Some(mut header) = Header::parse(data).filter(|h| h.shape.len() <= 64) else {
        return;
    };
    let Some(len) = header.byte_len() else { return };
    let count = len.div_ceil(SEGMENT_BYTES as u64).min(64) as usize;
    header.lengths.resize(count, 1);
    let mut left = header.at as u32;
    let last = count.saturating_sub(1);
    for (i, length) in header.lengths.iter_mut().enumerate() {
        *length = if i == last { left } else { (*length).min(left) };
        left -= *length;
    }
    data.truncate(if count == 0 { 0 } else { header.at });
    data.extend(header.encode());
}

/// Stores tensors under the ids of the bases: not what the ids say, which is never checked of a base.
pub fn put_bases(pack: &mut PackWriter, header: &Header) {
    let Some(len) = header.byte_len().and_then(|n| usize::try_from(n).ok()) else {
        return;
    };
    let contents = codec::bases(header.dtype, len, 0);
    for (i, (id, bytes)) in header.bases.iter().zip(contents).enumerate() {
        let Some(id) = id else { continue };
        let mut payload = Vec::new();
        let mut lengths = Vec::new();
        for segment in bytes.chunks(SEGMENT_BYTES) {
            payload.push(0);
            payload.extend(segment);
            lengths.push(segment.len() as u32 + 1);
        }
        let alone = Header { bases: [None; 2], lengths, ..header.clone() };
        payload.extend(alone.encode());
        let object =
            NewObject { id: *id, kind: Kind::Tensor, depth: 0, base: None, grandparent: None, logical: len as u64 };
        if i == 0 || header.bases[0] != Some(*id) {
            pack.add(object, &payload).expect("memory");
        }
    }
}
