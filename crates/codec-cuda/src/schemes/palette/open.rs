//! Parses palette headers with the codec's own reader.

use crate::{Decode, DeviceError, Result};
use mdl_codec::{
    Scheme,
    engine_internals::{
        Numbers,
        lattice::Part,
        palette::{FamilyReader, Reader, Table},
    },
};

/// A segment whose header is read.
#[derive(Debug)]
pub(super) struct Open<'a> {
    pub table: Table,
    /// How many numbers it has.
    pub n: usize,
    /// Low bytes of exceptions that are zero and not there.
    pub zero: u8,
    pub lanes: u32,
    /// A table for each context, and for strangers.
    pub freqs: Vec<[u16; 256]>,
    /// The context of each place, or of each raw context; none of it beyond the tables.
    pub map: Vec<u8>,
    /// The context of strangers; none where exceptions are listed.
    pub leaf: Option<u8>,
    /// Numbers of each block, its stream, and what follows.
    pub parts: Vec<Part<'a>>,
}

/// Reads the header of a segment.
pub(super) fn open<'a>(job: &Decode<'a>) -> Result<Open<'a>> {
    job.bases()?;
    // Complex numbers are pairs of numbers of 8 bytes.
    let n = job.out.len() / job.dtype.size().min(8);
    let open = match job.scheme {
        Scheme::Palette | Scheme::PaletteDelta => {
            let r = Reader::new(Numbers::from_dtype(job.dtype), job.scheme.needs_base(), job.body, n)?;
            Open {
                n,
                parts: r.parts()?,
                zero: r.zero,
                lanes: 32,
                freqs: r.lists,
                map: r.map.to_vec(),
                leaf: None,
                table: r.table,
            }
        }
        Scheme::PaletteDelta2 => {
            let r = FamilyReader::new(Numbers::from_dtype(job.dtype), job.body, n)?;
            let lanes = match r.lanes {
                0 => 1,
                2 => 4,
                5 => 32,
                _ => return Err(DeviceError::Corrupt("bad count of lanes")),
            };
            Open {
                n,
                parts: r.parts()?,
                zero: r.zero,
                lanes,
                freqs: r.lists,
                map: r.map,
                leaf: Some(r.leaves),
                table: r.table,
            }
        }
        _ => return Err(DeviceError::Failed("not a palette".to_owned())),
    };
    if open.map.iter().any(|c| usize::from(*c) >= open.freqs.len()) {
        return Err(DeviceError::Corrupt("unknown context"));
    }
    Ok(open)
}
