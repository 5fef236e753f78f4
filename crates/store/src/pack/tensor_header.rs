//! Stored tensors: the segments the engine encoded, then a header that says what and where they are. Specified in
//! docs/format.md, "Tensor payloads". The header comes last so that a tensor of any length can be written as a stream.

use mdl_codec::{Dtype, SEGMENT_BYTES};
use mdl_objects::{Id, Reader, Writer};

/// Version of a header without a grandparent, and of one with it.
const PLAIN: u8 = 1;
const WITH_GRAND: u8 = 2;
const HAS_BASE: u8 = 1;
const HAS_GRAND: u8 = 2;
/// Bytes at a payload's end to read first when only the header is wanted; a longer header says how long it is.
pub const PROBE: usize = 4096;

/// Decoded length of segment `index` of a tensor of `len` bytes.
pub fn segment_len(len: u64, index: usize) -> usize {
    let start = (index as u64).saturating_mul(SEGMENT_BYTES as u64);
    len.saturating_sub(start).min(SEGMENT_BYTES as u64) as usize
}

/// Number of segments of a tensor of `len` bytes.
pub fn segment_count(len: u64) -> u64 {
    len.div_ceil(SEGMENT_BYTES as u64)
}

/// Header of a stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHeader {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// The base of delta segments.
    pub base: Option<Id>,
    /// The base's own base when this tensor was stored (the grandparent), where segments need it too.
    pub grandparent: Option<Id>,
    /// Offset in the payload and length of each encoded segment.
    pub segments: Vec<(u64, u32)>,
}

impl TensorHeader {
    /// Decoded length in bytes, if it fits.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(&self.shape)
    }

    /// The bytes that follow the segments, which have these lengths.
    /// The bases are base and grandparent, the latter only with the former.
    pub fn encode(dtype: Dtype, shape: &[u64], bases: [Option<Id>; 2], lengths: &[u32]) -> Vec<u8> {
        let [base, grandparent] = bases;
        let mut w = Writer::default();
        w.u8(if grandparent.is_some() { WITH_GRAND } else { PLAIN });
        let flag = |id: Option<Id>, flag| if id.is_some() { flag } else { 0 };
        w.u8(flag(base, HAS_BASE) | flag(grandparent, HAS_GRAND));
        w.u8(dtype.code());
        w.dims(shape);
        for id in [base, grandparent].iter().flatten() {
            w.id(id);
        }
        for len in lengths {
            w.bytes.extend_from_slice(&len.to_le_bytes());
        }
        let len = w.bytes.len() as u32;
        w.bytes.extend_from_slice(&len.to_le_bytes());
        w.bytes
    }

    /// Parses the header from the last bytes of a payload of `payload_len` bytes.
    pub(crate) fn decode(tail: &[u8], payload_len: u64) -> Parsed {
        let Some((before, len)) = tail.split_last_chunk::<4>() else {
            return Parsed::Bad("truncated tensor payload");
        };
        let len = u32::from_le_bytes(*len);
        let whole = u64::from(len) + 4;
        if whole > payload_len {
            return Parsed::Bad("its header is longer than the payload");
        }
        match before.len().checked_sub(len as usize) {
            None => Parsed::NeedBytes(whole),
            Some(at) => match parse(&before[at..], payload_len - whole) {
                Ok(header) => Parsed::Header(header),
                Err(reason) => Parsed::Bad(reason),
            },
        }
    }
}

/// Outcome of parsing a header.
#[derive(Debug)]
pub enum Parsed {
    /// The header.
    Header(TensorHeader),
    /// This many bytes of the payload's end are needed.
    NeedBytes(u64),
    /// No header.
    Bad(&'static str),
}

fn parse(bytes: &[u8], segment_bytes: u64) -> Result<TensorHeader, &'static str> {
    let short = |_| "truncated tensor header";
    let mut r = Reader::new(bytes);
    let version = r.u8().map_err(short)?;
    let flags = r.u8().map_err(short)?;
    match version {
        PLAIN if flags & !HAS_BASE == 0 => {}
        // Written only where there is a grandparent: one spelling for everything.
        WITH_GRAND if flags == HAS_BASE | HAS_GRAND => {}
        PLAIN | WITH_GRAND => return Err("unknown tensor payload flags"),
        _ => return Err("unknown tensor payload version"),
    }
    let dtype = Dtype::from_code(r.u8().map_err(short)?).ok_or("unknown dtype")?;
    let shape = r.dims().map_err(short)?;
    let mut id = |flag| match flags & flag {
        0 => Ok(None),
        _ => r.id().map(Some).map_err(short),
    };
    let (base, grandparent) = (id(HAS_BASE)?, id(HAS_GRAND)?);
    let len = dtype.byte_len(&shape).ok_or("tensor larger than 64 bits")?;
    if segment_count(len).checked_mul(4) != Some(r.remaining() as u64) {
        return Err("number of segments and shape disagree");
    }
    let mut at = 0;
    let mut segments = Vec::with_capacity(r.remaining() / 4);
    while r.remaining() > 0 {
        let len = r.array().map(u32::from_le_bytes).map_err(short)?;
        segments.push((at, len));
        at += u64::from(len);
    }
    if at != segment_bytes {
        return Err("segments do not fill the payload");
    }
    Ok(TensorHeader { dtype, shape, base, grandparent, segments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_objects::Kind;

    #[test]
    fn headers_round_trip_and_probes_ask_for_more() {
        let base = Id::from_content(Kind::Blob, b"x");
        let elements = SEGMENT_BYTES as u64 / 4 * 2 + 1;
        let h = TensorHeader::encode(Dtype::F32, &[elements], [Some(base), None], &[10, 20, 5]);
        let total = h.len() as u64 + 35;
        let Parsed::Header(parsed) = TensorHeader::decode(&h, total) else { panic!("own bytes") };
        assert_eq!(parsed.segments, [(0, 10), (10, 20), (30, 5)]);
        assert_eq!((parsed.base, parsed.byte_len()), (Some(base), Some(elements * 4)));
        assert_eq!([0, 1, 2].map(|i| segment_len(elements * 4, i)), [SEGMENT_BYTES, SEGMENT_BYTES, 4]);
        for n in 1..h.len() - 3 {
            let tail = TensorHeader::decode(&h[n..], total);
            assert!(matches!(tail, Parsed::NeedBytes(want) if want == h.len() as u64), "{n}");
        }
        assert!(matches!(TensorHeader::decode(&h, total + 1), Parsed::Bad(_)));
        let grandparent = Id::from_content(Kind::Blob, b"y");
        let mut h = TensorHeader::encode(Dtype::F32, &[elements], [Some(base), Some(grandparent)], &[10, 20, 5]);
        let Parsed::Header(parsed) = TensorHeader::decode(&h, h.len() as u64 + 35) else { panic!("own bytes") };
        assert_eq!((parsed.base, parsed.grandparent), (Some(base), Some(grandparent)));
        for (version, flags) in [(1, 3), (2, 1), (2, 2), (2, 7), (3, 3)] {
            (h[0], h[1]) = (version, flags);
            assert!(matches!(TensorHeader::decode(&h, h.len() as u64 + 35), Parsed::Bad(_)));
        }
        assert!(matches!(TensorHeader::decode(&h[..3], 3), Parsed::Bad(_)));
    }

    #[test]
    fn a_lying_shape_earns_no_memory() {
        for shape in [vec![u64::MAX / 8], vec![u64::MAX / 2, 3], vec![1 << 40]] {
            let h = TensorHeader::encode(Dtype::F32, &shape, [None; 2], &[]);
            assert!(matches!(TensorHeader::decode(&h, h.len() as u64), Parsed::Bad(_)), "{shape:?}");
        }
    }
}
