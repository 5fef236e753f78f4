//! Reads the header of a safetensors file.

use crate::{
    bytes::{Trouble, array_at, bad, head, take},
    check::short,
    layout::{Format, Layout, ReadAt},
    resolve::{Piece, resolve},
};
use mdl_codec::Dtype;
use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, Visitor},
};
use std::{collections::HashSet, fmt};

/// The longest header the reference implementation reads, and therefore the longest there is.
const MAX_HEADER: u64 = 100_000_000;
/// The format's names of element types. A type that is not among them stays opaque bytes.
pub static SAFETENSORS_TYPES: [(&str, Dtype); 16] = [
    ("F64", Dtype::F64),
    ("F32", Dtype::F32),
    ("F16", Dtype::F16),
    ("BF16", Dtype::BF16),
    ("F8_E4M3", Dtype::F8E4M3),
    ("F8_E5M2", Dtype::F8E5M2),
    ("I8", Dtype::I8),
    ("I16", Dtype::I16),
    ("I32", Dtype::I32),
    ("I64", Dtype::I64),
    ("U8", Dtype::U8),
    ("U16", Dtype::U16),
    ("U32", Dtype::U32),
    ("U64", Dtype::U64),
    ("BOOL", Dtype::Bool),
    ("C64", Dtype::C64),
];
/// The length field before the header.
const PREFIX: u64 = 8;

/// The layout of a safetensors file, or `None` where the file does not look like one. `named` says that its extension
/// claims the format: then what does not parse is damaged rather than something else.
pub(crate) fn scan(src: &dyn ReadAt, named: bool) -> Result<Option<Layout>, Trouble> {
    let (header, data_at) = match read_header(src)? {
        Ok(found) => found,
        Err(reason) if named => return bad(reason),
        Err(_) => return Ok(None),
    };
    let entries = match serde_json::from_slice::<Header>(&header) {
        Ok(Header { repeated: Some(name), .. }) => return bad(format!("header: {:?} is listed twice", short(&name))),
        Ok(header) => header.entries,
        Err(e) if named => return bad(format!("header: {e}")),
        Err(_) => return Ok(None),
    };
    drop(header);
    let room = src.size().saturating_sub(data_at);
    let pieces = entries.into_iter().map(|(name, entry)| piece(name, entry, data_at, room));
    let (extents, views) = resolve(pieces.collect::<Result<_, _>>()?);
    Ok(Some(Layout { format: Format::Safetensors, extents, views }))
}

/// The header's bytes and where the data begin, or why there is no header.
#[allow(clippy::type_complexity, reason = "one caller, two kinds of failure")]
fn read_header(src: &dyn ReadAt) -> Result<Result<(Vec<u8>, u64), String>, Trouble> {
    let first = head(src, PREFIX + 1)?;
    let Some(len) = array_at(&first, 0).map(u64::from_le_bytes) else {
        return Ok(Err("shorter than a header length (incompletely written?)".into()));
    };
    if len > MAX_HEADER {
        return Ok(Err(format!("a header of {len} bytes is longer than the format allows")));
    }
    if first.last() != Some(&b'{') || first.len() as u64 <= PREFIX {
        return Ok(Err("no JSON object where the header should begin".into()));
    }
    match take(src, PREFIX, len)? {
        Some(header) => Ok(Ok((header, PREFIX + len))),
        None => Ok(Err(format!("the header of {len} bytes is cut short (incompletely written?)"))),
    }
}

fn piece(name: String, entry: Entry, data_at: u64, room: u64) -> Result<Piece, Trouble> {
    let [begin, end] = entry.data_offsets;
    if begin > end || end > room {
        let name = short(&name);
        return bad(format!(
            "tensor {name:?} at {begin}..{end} leaves the {room} bytes of data (incompletely written?)"
        ));
    }
    let (dtype, shape) = match SAFETENSORS_TYPES.iter().find(|(name, _)| *name == entry.dtype) {
        Some((_, dtype)) => (*dtype, entry.shape),
        None => (Dtype::Opaque, vec![end - begin]),
    };
    if dtype.byte_len(&shape) != Some(end - begin) {
        return bad(format!("tensor {:?}: its shape does not fill {begin}..{end}", short(&name)));
    }
    Ok(Piece { name, begin: data_at + begin, end: data_at + end, dtype, shape })
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header's tensors in the order of the file. A map type would keep one of two equal names in silence.
struct Header {
    entries: Vec<(String, Entry)>,
    /// The first name that is there twice.
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let (mut entries, mut repeated) = (Vec::new(), None);
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let is_new = seen.insert(name.clone());
            if !is_new {
                map.next_value::<IgnoredAny>()?;
                repeated.get_or_insert(name);
            } else if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Header { entries, repeated })
    }
}
