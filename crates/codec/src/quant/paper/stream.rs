//! The stream of one set of levels: header, then blocks of tokens. The format is in the parent module's documentation.

use crate::{
    CodecError, Result,
    entropy::{BitReader, BitWriter, Cursor},
    quant::paper::{
        Variant,
        delta::{Levels, MAX_BINS, Ring, cyclic_delta},
        huffman::{Decoder, put_block},
        rearrange::{rearrange, restore, sizes},
        runs::{expand, run_tokens},
    },
};

/// The version byte of this format.
pub const VERSION: u8 = 1;
/// Most elements of a stream: a run length is a positive 32-bit token.
pub const MAX_ELEMENTS: usize = i32::MAX as usize;

/// Encodes `levels`: against the parent's if there is one, else on their own (the same for all variants).
///
/// # Errors
/// [`CodecError::BadInput`] where the parent has another number of elements, or there are more than [`MAX_ELEMENTS`].
pub fn encode(variant: Variant, levels: Levels<'_>, parent: Option<Levels<'_>>) -> Result<Vec<u8>> {
    if levels.len() > MAX_ELEMENTS {
        return Err(CodecError::BadInput("more than 2^31 - 1 elements"));
    }
    let kind = if parent.is_some() { 1 + variant as u8 } else { 0 };
    let mut out = vec![VERSION, kind];
    out.extend_from_slice(&levels.bins().to_le_bytes());
    let mut w = BitWriter::default();
    match parent {
        None => put_block(&mut w, &plain(levels.as_slice())),
        Some(parent) => put_delta(&mut w, variant, levels, parent)?,
    }
    out.extend_from_slice(&w.finish());
    Ok(out)
}

fn put_delta(w: &mut BitWriter, variant: Variant, child: Levels<'_>, parent: Levels<'_>) -> Result<()> {
    let delta = cyclic_delta(child, parent)?;
    match variant {
        Variant::He => put_block(w, &plain(&delta)),
        Variant::Rle => put_block(w, &run_tokens(&delta)),
        Variant::Pe => {
            let ring = Ring::from_bins(child.bins(), parent.bins());
            let places: Vec<u16> = ring.places(parent).collect();
            for group in rearrange(&delta, &places, ring.size())? {
                put_block(w, &run_tokens(&group));
            }
        }
    }
    Ok(())
}

/// One token per value.
fn plain(values: &[u16]) -> Vec<i32> {
    values.iter().map(|&v| i32::from(v)).collect()
}

/// The bin count of the levels in a stream.
///
/// # Errors
/// [`CodecError::Corrupt`] where this is no stream of this version.
pub fn bins_of(bytes: &[u8]) -> Result<u16> {
    header(&mut Cursor::new(bytes)).map(|(_, bins)| bins)
}

/// How the levels are coded against the parent's, if they are, and their bin count.
fn header(cursor: &mut Cursor<'_>) -> Result<(Option<Variant>, u16)> {
    if cursor.u8()? != VERSION {
        return Err(CodecError::Corrupt("unknown version of level stream"));
    }
    let kind = match cursor.u8()? {
        0 => None,
        kind => {
            Some(*Variant::ALL.get(usize::from(kind) - 1).ok_or(CodecError::Corrupt("unknown kind of level stream"))?)
        }
    };
    let bins = cursor.u16()?;
    if bins > MAX_BINS {
        return Err(CodecError::Corrupt("more than 256 bins"));
    }
    Ok((kind, bins))
}

/// Decodes the levels of `count` elements (at most [`MAX_ELEMENTS`]); their bin count is [`bins_of`] the stream.
/// `parent` is what the encoder had; a stream without a parent ignores it.
///
/// The levels fit their bin count whatever the bytes are, but another parent of the same size is not noticed: a caller
/// that stores such streams checks what they decode to.
///
/// # Errors
/// [`CodecError::Corrupt`] for bytes that [`encode`] does not write for so many elements, [`CodecError::MissingBase`]
/// where a parent is needed, [`CodecError::BadInput`] where it has not `count` elements.
pub fn decode(bytes: &[u8], count: usize, parent: Option<Levels<'_>>) -> Result<Vec<u16>> {
    if count > MAX_ELEMENTS {
        return Err(CodecError::BadInput("more than 2^31 - 1 elements"));
    }
    let mut cursor = Cursor::new(bytes);
    let (kind, bins) = header(&mut cursor)?;
    let mut r = BitReader::new(cursor.rest());
    let levels = match kind {
        None => get_plain(&mut r, count, bins + 2)?,
        Some(variant) => get_delta(&mut r, variant, count, bins, parent.ok_or(CodecError::MissingBase)?)?,
    };
    if r.ended_well() { Ok(levels) } else { Err(CodecError::Corrupt("the stream does not end where it should")) }
}

fn get_delta(r: &mut BitReader<'_>, variant: Variant, count: usize, bins: u16, parent: Levels<'_>) -> Result<Vec<u16>> {
    if parent.len() != count {
        return Err(CodecError::BadInput("the parent has another number of elements"));
    }
    let ring = Ring::from_bins(bins, parent.bins());
    let places: Vec<u16> = ring.places(parent).collect();
    let delta = match variant {
        Variant::He => get_plain(r, count, ring.size())?,
        Variant::Rle => get_runs(r, count, ring.size())?,
        Variant::Pe => {
            let sizes = sizes(&places, ring.size())?;
            let groups = sizes.into_iter().map(|n| get_runs(r, n, ring.size()));
            restore(&groups.collect::<Result<Vec<_>, _>>()?, &places)?
        }
    };
    let children = places.iter().zip(&delta).map(|(&p, &d)| ring.undo(p, d));
    children.map(|place| ring.level(place, bins)).collect()
}

/// A block of one token per value.
fn get_plain(r: &mut BitReader<'_>, count: usize, limit: u16) -> Result<Vec<u16>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let decoder = Decoder::new(r, count)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let value = u16::try_from(decoder.next(r)?).ok().filter(|&v| v < limit);
        values.push(value.ok_or(CodecError::Corrupt("a symbol beyond its alphabet"))?);
    }
    Ok(values)
}

/// A block of runs. Runs have at most one token per value.
fn get_runs(r: &mut BitReader<'_>, count: usize, limit: u16) -> Result<Vec<u16>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let decoder = Decoder::new(r, count)?;
    expand(count, limit, || decoder.next(r))
}
