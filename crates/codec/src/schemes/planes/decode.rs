//! Decoder of the scheme "planes".

use crate::{
    Dtype, Result,
    entropy::{Cursor, Grid, PlaneDecoder},
    schemes::{Cut, PlanesPlan, bitplane, head_at, low, planes::Pieces},
    scratch::with_scratch,
    simd::{CHUNK, Simd},
};
use std::ops::Range;

/// A segment whose header is read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// What the header says besides coders.
    pub plan: PlanesPlan,
    size: usize,
    /// The blocks.
    pub grid: Grid,
    /// How each plane is coded.
    pub coders: Vec<PlaneDecoder>,
    blocks: Vec<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `body` (what follows the scheme byte) of a segment of `n` elements of `size` bytes.
    pub fn new(dtype: Dtype, size: usize, body: &'a [u8], n: usize) -> Result<Self> {
        let mut cursor = Cursor::new(body);
        let grid = Grid::get(&mut cursor, n)?;
        let plan = PlanesPlan::get(&mut cursor, dtype)?;
        let planes = usize::from(plan.cut.is_some()) + if plan.grouped(size) { 1 } else { plan.low(size) };
        let coders = (0..planes).map(|_| PlaneDecoder::get_header(&mut cursor)).collect::<Result<_, _>>()?;
        let blocks = grid.get_blocks(&mut cursor)?;
        Ok(Reader { plan, size, grid, coders, blocks })
    }

    /// Decodes the elements of `range` into `out`.
    pub(crate) fn decode(&self, simd: Simd, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        self.grid.decode_range(&self.blocks, self.size, range, out, |data, _, out| self.block(simd, data, out))
    }

    /// The parts of block `b`.
    pub fn pieces(&self, b: usize) -> Result<Pieces<'a>> {
        let data = self.blocks.get(b).copied().unwrap_or_default();
        Pieces::get(self.plan, self.size, &self.coders, data, self.grid.elements(b).len())
    }

    fn block(&self, simd: Simd, data: &[u8], out: &mut [u8]) -> Result<()> {
        let (plan, size) = (self.plan, self.size);
        let n = out.len() / size;
        let pieces = Pieces::get(plan, size, &self.coders, data, n)?;
        let planes = self.coders.iter().zip(&pieces.planes);
        with_scratch(n, |symbols| {
            if let Some((cut, (coder, body))) = plan.cut.zip(planes.clone().next()) {
                coder.decode_body(simd, body, symbols)?;
                self.join(simd, cut, symbols, &pieces, out)?;
                for &(i, key) in &pieces.exceptions {
                    let field = cut.field(head_at(out, size, i));
                    out[(i + 1) * size - 2..(i + 1) * size].copy_from_slice(&cut.head_of_key(key, field).to_le_bytes());
                }
            }
            if plan.low_planes {
                for (b, (coder, body)) in planes.skip(usize::from(plan.cut.is_some())).enumerate() {
                    coder.decode_body(simd, body, symbols)?;
                    out.iter_mut().skip(b).step_by(size).zip(symbols.iter()).for_each(|(o, s)| *o = *s);
                }
            }
            Ok(())
        })
    }

    /// Puts heads together, and with the low bytes where those come in groups, a cacheful at a time.
    fn join(&self, simd: Simd, cut: Cut, symbols: &[u8], pieces: &Pieces<'_>, out: &mut [u8]) -> Result<()> {
        let (size, low) = (self.size, self.plan.low(self.size));
        let mut counts = Vec::new();
        let mut groups = Cursor::new(pieces.groups);
        if self.plan.grouped(size) {
            counts.resize(symbols.len().div_ceil(low::GROUP), 0);
            let plane = self.coders.get(1).zip(pieces.planes.get(1));
            plane.map_or(Ok(()), |(c, body)| c.decode_body(simd, body, &mut counts))?;
        }
        let mut heads = [0u8; 2 * CHUNK];
        for (c, (symbols, out)) in symbols.chunks(CHUNK).zip(out.chunks_mut(CHUNK * size)).enumerate() {
            let planes = &pieces.fields[bitplane::size(c * CHUNK, cut.field_bits())..];
            if size == 2 {
                simd.heads(cut, symbols, planes, out);
                continue;
            }
            let heads = &mut heads[..2 * symbols.len()];
            simd.heads(cut, symbols, planes, heads);
            if self.plan.grouped(size) {
                low::get(simd, &mut groups, size, low, &counts[c * CHUNK / low::GROUP..], heads, out)?;
                continue;
            }
            let bytes = size.min(2);
            for (e, h) in out.chunks_exact_mut(size).zip(heads.chunks_exact(2)) {
                e[size - bytes..].copy_from_slice(&h[..bytes]);
            }
        }
        groups.done()
    }
}
