//! Decoder of the scheme "planes".

use crate::{
    Dtype, Result,
    entropy::{
        Cursor, Grid, Job, Next, PlaneDecoder,
        rans::{self, Lanes},
    },
    schemes::{Cut, PlanesPlan, bitplane, head_at, low, planes::Pieces},
    scratch::with_scratch,
    simd::{CHUNK, Simd, TURN},
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
        let most = simd.streams_at_once();
        let decode = |jobs: &mut [Job<'_>]| self.blocks(simd, jobs);
        self.grid.decode_together(&self.blocks, self.size, range, out, most, decode)
    }

    /// The parts of block `b`.
    pub fn pieces(&self, b: usize) -> Result<Pieces<'a>> {
        let data = self.blocks.get(b).copied().unwrap_or_default();
        Pieces::get(self.plan, self.size, &self.coders, data, self.grid.elements(b).len())
    }

    fn blocks(&self, simd: Simd, jobs: &mut [Job<'_>]) -> Result<()> {
        let (plan, size) = (self.plan, self.size);
        let mut all = Vec::with_capacity(jobs.len());
        for job in jobs.iter() {
            all.push(Pieces::get(plan, size, &self.coders, job.data, job.elements.len())?);
        }
        if let Some((cut, coder)) = plan.cut.zip(self.coders.first()) {
            self.heads(simd, cut, coder, &all, jobs)?;
        } else if let (true, 1, [coder]) = (plan.low_planes, size, &self.coders[..]) {
            return bytes(simd, coder, &all, jobs);
        }
        for (job, pieces) in jobs.iter_mut().zip(&all) {
            let planes = self.coders.iter().zip(&pieces.planes);
            let (n, out) = (job.elements.len(), &mut *job.out);
            for (i, key, cut) in plan.cut.iter().flat_map(|c| pieces.exceptions.iter().map(move |&(i, k)| (i, k, c))) {
                let field = cut.field(head_at(out, size, i));
                out[(i + 1) * size - 2..(i + 1) * size].copy_from_slice(&cut.head_of_key(key, field).to_le_bytes());
            }
            if plan.low_planes {
                with_scratch(n, |symbols| {
                    for (b, (coder, body)) in planes.skip(usize::from(plan.cut.is_some())).enumerate() {
                        coder.decode_body(simd, body, symbols)?;
                        out.iter_mut().skip(b).step_by(size).zip(symbols.iter()).for_each(|(o, s)| *o = *s);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Decodes the heads of blocks side by side, and the low bytes where those come in groups.
    fn heads(
        &self,
        simd: Simd,
        cut: Cut,
        coder: &PlaneDecoder,
        all: &[Pieces<'_>],
        jobs: &mut [Job<'_>],
    ) -> Result<()> {
        let bodies = all.iter().map(|pieces| pieces.planes.first().copied().unwrap_or_default());
        let mut joins = Vec::with_capacity(all.len());
        for (pieces, job) in all.iter().zip(jobs) {
            joins.push((Join::new(self, simd, cut, pieces, job.elements.len())?, job.out.chunks_mut(TURN * self.size)));
        }
        if let PlaneDecoder::Rans(table) = coder {
            let mut streams = bodies.map(Lanes::new).collect::<Result<Vec<_>>>()?;
            with_scratch(TURN * joins.len(), |scratch| {
                // A part of each block at a time: what one step leaves is in a cache for the next.
                loop {
                    let (mut next, mut rest) = (Vec::with_capacity(joins.len()), Vec::with_capacity(joins.len()));
                    let mut room = &mut *scratch;
                    for (stream, (join, chunks)) in streams.iter_mut().zip(&mut joins) {
                        let Some(out) = chunks.next() else { continue };
                        let symbols;
                        (symbols, room) = std::mem::take(&mut room).split_at_mut(out.len() / self.size);
                        next.push(Next { stream, ctx: None, out: symbols });
                        rest.push((join, out));
                    }
                    if next.is_empty() {
                        return Ok(());
                    }
                    rans::take(simd, table, &mut next)?;
                    for (Next { out: symbols, .. }, (join, out)) in next.into_iter().zip(rest) {
                        join.next(symbols, out)?;
                    }
                }
            })?;
            streams.iter().try_for_each(Lanes::done)?;
        } else {
            for ((join, chunks), body) in joins.iter_mut().zip(bodies) {
                with_scratch(join.n, |symbols| {
                    coder.decode_body(simd, body, symbols)?;
                    symbols.chunks(TURN).zip(chunks).try_for_each(|(symbols, out)| join.next(symbols, out))
                })?;
            }
        }
        joins.iter().try_for_each(|(join, _)| join.groups.done())
    }
}

/// Decodes blocks of elements of one byte side by side, to where they belong.
fn bytes(simd: Simd, coder: &PlaneDecoder, all: &[Pieces<'_>], jobs: &mut [Job<'_>]) -> Result<()> {
    let bodies = all.iter().map(|pieces| pieces.planes.first().copied().unwrap_or_default());
    let PlaneDecoder::Rans(table) = coder else {
        return jobs.iter_mut().zip(bodies).try_for_each(|(job, body)| coder.decode_body(simd, body, job.out));
    };
    let mut streams = bodies.map(Lanes::new).collect::<Result<Vec<_>>>()?;
    let mut outs: Vec<_> = jobs.iter_mut().map(|job| job.out.chunks_mut(TURN)).collect();
    loop {
        let parts = streams.iter_mut().zip(&mut outs);
        let mut next: Vec<_> =
            parts.filter_map(|(stream, out)| Some(Next { stream, ctx: None, out: out.next()? })).collect();
        if next.is_empty() {
            return streams.iter().try_for_each(Lanes::done);
        }
        rans::take(simd, table, &mut next)?;
    }
}

/// Puts heads together, and with the low bytes where those come in groups.
struct Join<'r, 'a> {
    reader: &'r Reader<'a>,
    simd: Simd,
    cut: Cut,
    /// Elements of the block, and those that are done.
    n: usize,
    done: usize,
    fields: &'r [u8],
    counts: Vec<u8>,
    groups: Cursor<'r>,
}

impl<'r, 'a> Join<'r, 'a> {
    fn new(reader: &'r Reader<'a>, simd: Simd, cut: Cut, pieces: &'r Pieces<'r>, n: usize) -> Result<Self> {
        let mut counts = Vec::new();
        if reader.plan.grouped(reader.size) {
            counts.resize(n.div_ceil(low::GROUP), 0);
            let plane = reader.coders.get(1).zip(pieces.planes.get(1));
            plane.map_or(Ok(()), |(c, body)| c.decode_body(simd, body, &mut counts))?;
        }
        let groups = Cursor::new(pieces.groups);
        Ok(Join { reader, simd, cut, n, done: 0, fields: pieces.fields, counts, groups })
    }

    /// The elements of the next symbols.
    fn next(&mut self, symbols: &[u8], out: &mut [u8]) -> Result<()> {
        let size = self.reader.size;
        symbols.chunks(CHUNK).zip(out.chunks_mut(CHUNK * size)).try_for_each(|(s, out)| self.chunk(s, out))
    }

    fn chunk(&mut self, symbols: &[u8], out: &mut [u8]) -> Result<()> {
        let (simd, cut, size) = (self.simd, self.cut, self.reader.size);
        let planes = &self.fields[bitplane::size(self.done, cut.field_bits())..];
        let counts = self.counts.get(self.done / low::GROUP..).unwrap_or_default();
        self.done += symbols.len();
        if size == 2 {
            simd.heads(cut, symbols, planes, out);
            return Ok(());
        }
        let mut heads = [0u8; 2 * CHUNK];
        let heads = &mut heads[..2 * symbols.len()];
        simd.heads(cut, symbols, planes, heads);
        if self.reader.plan.grouped(size) {
            return low::get(simd, &mut self.groups, size, self.reader.plan.low(size), counts, heads, out);
        }
        let bytes = size.min(2);
        for (e, h) in out.chunks_exact_mut(size).zip(heads.chunks_exact(2)) {
            e[size - bytes..].copy_from_slice(&h[..bytes]);
        }
        Ok(())
    }
}
