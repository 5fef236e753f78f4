//! Reads segments of the scheme "planes". Neighbours: `coder`, `bitplane` and `low` read the parts, `simd` joins them, `blocks`
//! finds the blocks. It must not trust a byte of what it reads.

use super::Plan;
use crate::bits::Cursor;
use crate::blocks::Grid;
use crate::coder::PlaneDecoder;
use crate::float::{Cut, head_at};
use crate::scratch::with_scratch;
use crate::simd::{CHUNK, Simd};
use crate::{CodecError, Dtype, bitplane, low};
use std::ops::Range;

/// A segment whose header is read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    plan: Plan,
    size: usize,
    grid: Grid,
    coders: Vec<PlaneDecoder>,
    blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` elements.
    pub(crate) fn new(dtype: Dtype, size: usize, body: &'a [u8], n: usize) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let plan = Plan::get(&mut cursor, dtype)?;
        let planes = usize::from(plan.cut.is_some()) + if plan.grouped(size) { 1 } else { plan.low(size) };
        let coders = (0..planes)
            .map(|_| PlaneDecoder::get_header(&mut cursor))
            .collect::<Result<_, _>>()?;
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Reader {
            plan,
            size,
            grid,
            coders,
            blocks,
        })
    }

    /// Decodes the elements of `range` into `out`.
    pub(crate) fn decode(&self, simd: Simd, range: Range<usize>, out: &mut [u8]) -> Result<(), CodecError> {
        self.grid
            .decode_range(&self.blocks, self.size, range, out, |data, _, out| {
                self.block(simd, data, out)
            })
    }

    fn block(&self, simd: Simd, data: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let (plan, size) = (self.plan, self.size);
        let n = out.len() / size;
        let mut cursor = Cursor::new(data);
        let (heads, coders) = self.coders.split_at(usize::from(plan.cut.is_some()));
        with_scratch(n, |symbols| {
            let mut exceptions = Vec::new();
            if let Some((cut, coder)) = plan.cut.zip(heads.first()) {
                if cut.windowed() {
                    exceptions = get_exceptions(&mut cursor, cut, n)?;
                }
                coder.decode(simd, &mut cursor, symbols)?;
                let planes = cursor.take(bitplane::size(n, cut.field_bits()))?;
                self.join(simd, cut, symbols, planes, &mut cursor, out)?;
                for (i, key) in exceptions {
                    let field = cut.field(head_at(out, size, i));
                    out[(i + 1) * size - 2..(i + 1) * size].copy_from_slice(&cut.head_of_key(key, field).to_le_bytes());
                }
            }
            if plan.low_planes {
                for (b, coder) in coders.iter().enumerate() {
                    coder.decode(simd, &mut cursor, symbols)?;
                    out.iter_mut()
                        .skip(b)
                        .step_by(size)
                        .zip(symbols.iter())
                        .for_each(|(o, s)| *o = *s);
                }
            }
            Ok(())
        })?;
        cursor.done()
    }

    /// Puts heads together, and with the low bytes where those come in groups, a cacheful at a time.
    fn join(
        &self,
        simd: Simd,
        cut: Cut,
        symbols: &[u8],
        planes: &[u8],
        cursor: &mut Cursor<'_>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let (size, low) = (self.size, self.plan.low(self.size));
        let mut counts = Vec::new();
        if self.plan.grouped(size) {
            counts.resize(symbols.len().div_ceil(low::GROUP), 0);
            self.coders
                .get(1)
                .map_or(Ok(()), |c| c.decode(simd, cursor, &mut counts))?;
        }
        let mut heads = [0u8; 2 * CHUNK];
        for (c, (symbols, out)) in symbols.chunks(CHUNK).zip(out.chunks_mut(CHUNK * size)).enumerate() {
            let planes = &planes[bitplane::size(c * CHUNK, cut.field_bits())..];
            if size == 2 {
                simd.heads(cut, symbols, planes, out);
                continue;
            }
            let heads = &mut heads[..2 * symbols.len()];
            simd.heads(cut, symbols, planes, heads);
            if self.plan.grouped(size) {
                low::get(simd, cursor, size, low, &counts[c * CHUNK / low::GROUP..], heads, out)?;
                continue;
            }
            let bytes = size.min(2);
            for (e, h) in out.chunks_exact_mut(size).zip(heads.chunks_exact(2)) {
                e[size - bytes..].copy_from_slice(&h[..bytes]);
            }
        }
        Ok(())
    }
}

fn get_exceptions(cursor: &mut Cursor<'_>, cut: Cut, n: usize) -> Result<Vec<(usize, u16)>, CodecError> {
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
