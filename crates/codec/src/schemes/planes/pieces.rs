//! Locates the parts of a "planes" block without decoding them.

use crate::{
    CodecError, Result,
    entropy::{Cursor, PlaneDecoder},
    schemes::{Cut, PlanesPlan, bitplane},
};

/// The parts of a block.
#[derive(Debug, Default)]
pub struct Pieces<'a> {
    /// Places in the block, rising, and keys.
    pub exceptions: Vec<(usize, u16)>,
    /// The body of each plane, without the length before it.
    pub planes: Vec<&'a [u8]>,
    /// The bit planes of the fields.
    pub fields: &'a [u8],
    /// Low bytes in groups: to the end of the block.
    pub groups: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// Finds them in a block of `n` elements.
    pub(super) fn get(
        plan: PlanesPlan,
        size: usize,
        coders: &[PlaneDecoder],
        data: &'a [u8],
        n: usize,
    ) -> Result<Self> {
        let mut cursor = Cursor::new(data);
        let mut pieces = Pieces::default();
        for (p, (coder, m)) in coders.iter().zip(plan.plane_sizes(size, n)).enumerate() {
            let head = plan.cut.filter(|_| p == 0);
            if let Some(cut) = head.filter(|c| c.windowed()) {
                pieces.exceptions = get_exceptions(&mut cursor, cut, n)?;
            }
            pieces.planes.push(coder.take(&mut cursor, m)?);
            if let Some(cut) = head {
                pieces.fields = cursor.take(bitplane::size(n, cut.field_bits()))?;
            }
        }
        if plan.grouped(size) {
            pieces.groups = cursor.take(cursor.rest().len())?;
        }
        cursor.done()?;
        Ok(pieces)
    }
}

fn get_exceptions(cursor: &mut Cursor<'_>, cut: Cut, n: usize) -> Result<Vec<(usize, u16)>> {
    const BAD: CodecError = CodecError::Corrupt("bad exception");
    let count = cursor.varint()?;
    if count > n {
        return Err(BAD);
    }
    let mut list = Vec::with_capacity(count.min(cursor.rest().len() / 3));
    let mut next = 0;
    for _ in 0..count {
        let (i, key) = (next + cursor.varint()?, cursor.u16()?);
        if i >= n || u32::from(key) >> (cut.shape.exponent + cut.k) != 0 {
            return Err(BAD);
        }
        list.push((i, key));
        next = i + 1;
    }
    Ok(list)
}
