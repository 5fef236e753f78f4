//! Reads the header of a GGUF file.

use crate::{
    bytes::{Cursor, Trouble, bad},
    check::short,
    ggml::{Kind, kind},
    layout::{Format, Layout, ReadAt},
    resolve::{Piece, count, resolve},
};
use mdl_codec::Dtype;
use std::collections::HashSet;

/// The first bytes of every file.
pub(crate) const MAGIC: &[u8] = b"GGUF";
/// The longest header that is walked: a hundred times the largest vocabulary.
const MAX_HEADER: u64 = 1 << 30;
/// Longest name or key that is believed.
const MAX_NAME: u64 = 64 << 10;
/// The format has four; a little slack costs nothing.
const MAX_DIMS: u32 = 8;
/// How deep arrays of arrays may nest.
const MAX_NESTING: u32 = 4;
const ALIGNMENT_KEY: &[u8] = b"general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// The layout of a file whose magic has been seen; `None` for versions we do not know (the first one, big-endian ones).
pub(crate) fn scan(src: &dyn ReadAt) -> Result<Option<Layout>, Trouble> {
    let mut cursor = Cursor::new(src, MAX_HEADER);
    cursor.skip(MAGIC.len() as u64)?;
    if !matches!(cursor.u32()?, 2 | 3) {
        return Ok(None);
    }
    let (tensors, pairs) = (cursor.u64()?, cursor.u64()?);
    let alignment = metadata(&mut cursor, pairs)?;
    let infos = infos(&mut cursor, tensors)?;
    let Some(data_at) = cursor.at().checked_next_multiple_of(alignment) else {
        return bad("the alignment overflows");
    };
    let (extents, views) = resolve(pieces(infos, data_at, src.size())?);
    Ok(Some(Layout { format: Format::Gguf, extents, views }))
}

/// Passes over the metadata and returns the alignment they ask for.
fn metadata(cursor: &mut Cursor<'_>, pairs: u64) -> Result<u64, Trouble> {
    let mut alignment = DEFAULT_ALIGNMENT;
    // A lying count ends at the end of the file, at the latest.
    for _ in 0..pairs {
        let key = name(cursor)?;
        let of = cursor.u32()?;
        if key == ALIGNMENT_KEY && of == 4 {
            alignment = cursor.u32()?.into();
        } else {
            skip_value(cursor, of, 0)?;
        }
    }
    if alignment == 0 { bad("the alignment is zero") } else { Ok(alignment) }
}

fn name(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Trouble> {
    match cursor.u64()? {
        len if len <= MAX_NAME => cursor.bytes(len),
        _ => bad("a name is longer than any real one"),
    }
}

/// Bytes of a metadata value of fixed size.
fn value_size(of: u32) -> Option<u64> {
    Some(match of {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

fn skip_value(cursor: &mut Cursor<'_>, of: u32, nesting: u32) -> Result<(), Trouble> {
    match (of, value_size(of)) {
        (_, Some(size)) => cursor.skip(size),
        (8, _) => {
            let len = cursor.u64()?;
            cursor.skip(len)
        }
        (9, _) if nesting < MAX_NESTING => skip_array(cursor, nesting),
        _ => bad(format!("metadata type {of} is unknown")),
    }
}

fn skip_array(cursor: &mut Cursor<'_>, nesting: u32) -> Result<(), Trouble> {
    let (of, len) = (cursor.u32()?, cursor.u64()?);
    if let Some(size) = value_size(of) {
        return match len.checked_mul(size) {
            Some(bytes) => cursor.skip(bytes),
            None => bad("an array's length overflows"),
        };
    }
    (0..len).try_for_each(|_| skip_value(cursor, of, nesting + 1))
}

/// One tensor as the header lists it; the offset counts from the start of the data.
struct Info {
    name: String,
    shape: Vec<u64>,
    of: u32,
    offset: u64,
}

fn infos(cursor: &mut Cursor<'_>, tensors: u64) -> Result<Vec<Info>, Trouble> {
    let mut infos = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..tensors {
        let info = info(cursor)?;
        if !seen.insert(info.name.clone()) {
            return bad(format!("two tensors are named {:?}", short(&info.name)));
        }
        infos.push(info);
    }
    Ok(infos)
}

fn info(cursor: &mut Cursor<'_>) -> Result<Info, Trouble> {
    let name = String::from_utf8_lossy(&name(cursor)?).into_owned();
    let dims = cursor.u32()?;
    if dims > MAX_DIMS {
        return bad(format!("tensor {:?} has {dims} dimensions", short(&name)));
    }
    let mut shape = (0..dims).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
    // The file lists the fastest dimension first.
    shape.reverse();
    Ok(Info { name, shape, of: cursor.u32()?, offset: cursor.u64()? })
}

/// Gives every tensor its end. One of unknown type reaches to the next one's start.
fn pieces(infos: Vec<Info>, data_at: u64, file_len: u64) -> Result<Vec<Piece>, Trouble> {
    let mut starts: Vec<u64> = infos.iter().map(|i| i.offset).collect();
    starts.sort_unstable();
    let room = file_len.saturating_sub(data_at);
    let mut pieces = Vec::with_capacity(infos.len());
    for info in infos {
        let next = starts.get(starts.partition_point(|&s| s <= info.offset)).copied();
        let Some((dtype, shape, len)) = extent_of(&info, next.unwrap_or(room)) else {
            return bad(format!("tensor {:?}: its shape fits no whole number of blocks", short(&info.name)));
        };
        match info.offset.checked_add(len).filter(|&end| end <= room) {
            Some(end) => {
                pieces.push(Piece { name: info.name, begin: data_at + info.offset, end: data_at + end, dtype, shape })
            }
            None => {
                let name = short(&info.name);
                return bad(format!("tensor {name:?} leaves the {room} bytes of data (incompletely written?)"));
            }
        }
    }
    Ok(pieces)
}

/// Element type, shape and bytes of a tensor; `None` where the numbers do not work out.
fn extent_of(info: &Info, next: u64) -> Option<(Dtype, Vec<u64>, u64)> {
    let opaque = |len: u64| (Dtype::Opaque, vec![len], len);
    match kind(info.of) {
        Kind::Plain(dtype) => Some((dtype, info.shape.clone(), dtype.byte_len(&info.shape)?)),
        Kind::Blocks { elements, bytes } => {
            let row = info.shape.last().copied().unwrap_or(1);
            let whole = row.is_multiple_of(elements);
            let blocks = count(&info.shape)? / elements;
            whole.then_some(opaque(blocks.checked_mul(bytes)?))
        }
        Kind::Unknown => Some(opaque(next.saturating_sub(info.offset))),
    }
}
