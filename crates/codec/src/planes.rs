//! Scheme "planes": a segment on its own. Floats are cut into symbol, raw field and low bytes; anything else into its
//! bytes. Neighbours: `float`, `bitplane`, `low` make the parts, `coder` codes them, `blocks` cuts; `estimate` decides.
//! It must not know of a base.

use crate::bits::{Cursor, put_varint};
use crate::blocks::Grid;
use crate::coder::{Counts, PlaneDecoder, PlaneEncoder, count};
use crate::float::{Cut, EXCEPTION, Shape, head_at};
use crate::scratch::with_scratch;
use crate::simd::{CHUNK, Simd};
use crate::{CodecError, Dtype, Scheme, bitplane, low};
use rayon::prelude::*;
use std::ops::Range;

/// What the header says besides the planes' coders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How heads are cut; without it there is no head and every byte of an element is a plane of its own.
    pub(crate) cut: Option<Cut>,
    /// Whether low bytes are planes of their own rather than groups with shared trailing zeros.
    pub(crate) low_planes: bool,
}

/// Value of the header's `k` that says "no head".
const NO_HEAD: u8 = 255;

impl Plan {
    /// Every byte a plane.
    pub(crate) const BYTES: Plan = Plan {
        cut: None,
        low_planes: true,
    };

    fn low(self, size: usize) -> usize {
        self.cut.map_or(size, |c| c.shape.low_bytes())
    }

    fn grouped(self, size: usize) -> bool {
        self.low(size) > 0 && !self.low_planes
    }

    fn put(self, out: &mut Vec<u8>) {
        match self.cut {
            None => out.push(NO_HEAD),
            Some(c) => {
                out.extend_from_slice(&[c.k as u8, u8::from(self.low_planes)]);
                if c.windowed() {
                    out.extend_from_slice(&c.lo.to_le_bytes());
                }
            }
        }
    }

    fn get(cursor: &mut Cursor<'_>, dtype: Dtype) -> Result<Self, CodecError> {
        let k = cursor.u8()?;
        if k == NO_HEAD {
            return Ok(Plan::BYTES);
        }
        let shape = Shape::of(dtype).ok_or(CodecError::Corrupt("heads in a type that has none"))?;
        if k > 8 {
            return Err(CodecError::Corrupt("bad cut"));
        }
        let low_planes = match cursor.u8()? {
            0 => false,
            1 => true,
            _ => return Err(CodecError::Corrupt("bad low mode")),
        };
        let mut cut = Cut {
            shape,
            k: k.into(),
            lo: 1,
        };
        if cut.windowed() {
            cut.lo = cursor.u16()?;
        }
        if cut.valid() {
            Ok(Plan {
                cut: Some(cut),
                low_planes,
            })
        } else {
            Err(CodecError::Corrupt("bad cut"))
        }
    }
}

/// The symbols of a block, plane after plane, and their counts.
struct Parts<'a> {
    planes: Vec<&'a mut [u8]>,
    counts: Vec<Counts>,
}

impl Plan {
    /// Symbols of every plane in a block of `m` elements.
    fn plane_sizes(self, size: usize, m: usize) -> Vec<usize> {
        let mut sizes = vec![m; usize::from(self.cut.is_some())];
        if self.grouped(size) {
            sizes.push(m.div_ceil(low::GROUP));
        } else {
            sizes.extend(std::iter::repeat_n(m, self.low(size)));
        }
        sizes
    }

    /// Fills and counts the planes of a block.
    fn fill(self, simd: Simd, raw: &[u8], size: usize, parts: &mut Parts<'_>) {
        let (heads, rest) = parts.planes.split_at_mut(usize::from(self.cut.is_some()));
        if let Some((cut, symbols)) = self.cut.zip(heads.first_mut()) {
            simd.symbols(cut, raw, symbols);
        }
        for (b, plane) in rest.iter_mut().enumerate() {
            if self.grouped(size) {
                low::put_counts(raw, size, self.low(size), plane);
            } else {
                plane
                    .iter_mut()
                    .zip(raw.iter().skip(b).step_by(size))
                    .for_each(|(o, v)| *o = *v);
            }
        }
        parts.counts.resize(parts.planes.len(), [0; 256]);
        parts
            .planes
            .iter()
            .zip(&mut parts.counts)
            .for_each(|(p, c)| count(p, c));
    }
}

/// Encodes `raw` (elements of `size` bytes) by `plan`, scheme byte first.
pub(crate) fn encode(simd: Simd, plan: Plan, size: usize, raw: &[u8]) -> Result<Vec<u8>, CodecError> {
    let grid = Grid::new(raw.len() / size);
    let sizes: Vec<Vec<usize>> = (0..grid.blocks())
        .map(|b| plan.plane_sizes(size, grid.elements(b).len()))
        .collect();
    with_scratch(sizes.iter().flatten().sum(), |mut room| {
        let mut all = Vec::with_capacity(sizes.len());
        for block in &sizes {
            let mut planes = Vec::with_capacity(block.len());
            for &n in block {
                let (plane, rest) = std::mem::take(&mut room).split_at_mut(n);
                planes.push(plane);
                room = rest;
            }
            all.push(Parts {
                planes,
                counts: Vec::new(),
            });
        }
        encode_parts(simd, plan, size, raw, grid, all)
    })
}

fn encode_parts(
    simd: Simd,
    plan: Plan,
    size: usize,
    raw: &[u8],
    grid: Grid,
    mut all: Vec<Parts<'_>>,
) -> Result<Vec<u8>, CodecError> {
    let slice = |b: usize| {
        let e = grid.elements(b);
        &raw[e.start * size..e.end * size]
    };
    each(&mut all, |b, parts| plan.fill(simd, slice(b), size, parts));
    if plan.cut.is_some_and(Cut::windowed) {
        trim(&mut all);
    }
    let mut coders = Vec::new();
    for p in 0..all.first().map_or(0, |a| a.planes.len()) {
        let mut sum = [0u32; 256];
        all.iter()
            .for_each(|a| sum.iter_mut().zip(&a.counts[p]).for_each(|(s, c)| *s += c));
        coders.push(PlaneEncoder::choose(&sum, grid.blocks())?);
    }
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 16 + 1024);
    out.extend_from_slice(&[Scheme::Planes as u8, grid.log]);
    plan.put(&mut out);
    coders.iter().for_each(|c| c.put_header(&mut out));
    grid.put_blocks(&mut out, |b, out| {
        encode_block(simd, plan, size, slice(b), &all[b], &coders, out)
    });
    out.shrink_to_fit();
    Ok(out)
}

/// Runs `f` on every item and its place, side by side where there are threads for it.
fn each<T: Send>(items: &mut [T], f: impl Fn(usize, &mut T) + Sync + Send) {
    if items.len() <= 1 || rayon::current_num_threads() == 1 {
        items.iter_mut().enumerate().for_each(|(i, t)| f(i, t));
    } else {
        items.par_iter_mut().enumerate().for_each(|(i, t)| f(i, t));
    }
}

/// Turns the rarest symbols at both ends of the window into exceptions: below one in 57,344 (4096 * 14) elements, the
/// 1/4096 of probability that a symbol takes at least costs all others more than listing it.
fn trim(all: &mut [Parts<'_>]) {
    let total = |s: usize| all.iter().map(|a| u64::from(a.counts[0][s])).sum::<u64>();
    let n: u64 = all.iter().map(|a| a.planes[0].len() as u64).sum();
    let rare = |s: &usize| total(*s) * 57_344 < n;
    let low = (1..255).take_while(rare).count();
    let high = (1..255).rev().take_while(rare).count();
    if low == 254 || (1..=low).chain(255 - high..255).all(|s| total(s) == 0) {
        return;
    }
    // Kept symbols but 0 are one range: in bytes throughout, so that the compiler makes vectors of it.
    let (first, kept) = (low as u8 + 1, (254 - low - high) as u8);
    each(all, |_, a| {
        for s in a.planes[0].iter_mut() {
            *s = if (*s == 0) | (s.wrapping_sub(first) < kept) {
                *s
            } else {
                EXCEPTION
            };
        }
        for s in (1..=low).chain(255 - high..255) {
            a.counts[0][usize::from(EXCEPTION)] += std::mem::take(&mut a.counts[0][s]);
        }
    });
}

fn encode_block(
    simd: Simd,
    plan: Plan,
    size: usize,
    raw: &[u8],
    parts: &Parts<'_>,
    coders: &[PlaneEncoder],
    out: &mut Vec<u8>,
) {
    let heads = usize::from(plan.cut.is_some());
    let mut planes = parts.planes.iter().zip(coders);
    if let Some((cut, (symbols, coder))) = plan.cut.zip(planes.by_ref().take(heads).next()) {
        if cut.windowed() {
            put_exceptions(cut, raw, symbols, out);
        }
        coder.encode(simd, symbols, out);
        simd.put_fields(cut, raw, out);
    }
    for (symbols, coder) in planes {
        coder.encode(simd, symbols, out);
        if plan.grouped(size) {
            low::put(simd, raw, size, plan.low(size), symbols, out);
        }
    }
}

fn put_exceptions(cut: Cut, raw: &[u8], symbols: &[u8], out: &mut Vec<u8>) {
    let mut at: Vec<u32> = Vec::new();
    for (c, chunk) in symbols.chunks(256).enumerate() {
        if chunk.contains(&EXCEPTION) {
            at.extend(
                (0..chunk.len())
                    .filter(|&i| chunk[i] == EXCEPTION)
                    .map(|i| (c * 256 + i) as u32),
            );
        }
    }
    put_varint(out, at.len() as u64);
    let mut next = 0;
    for i in at {
        put_varint(out, u64::from(i - next));
        out.extend_from_slice(&cut.key(head_at(raw, cut.shape.size, i as usize)).to_le_bytes());
        next = i + 1;
    }
}

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
        let mut heads = [0u16; CHUNK];
        for (c, (symbols, out)) in symbols.chunks(CHUNK).zip(out.chunks_mut(CHUNK * size)).enumerate() {
            let heads = &mut heads[..symbols.len()];
            simd.heads(
                cut,
                symbols,
                &planes[bitplane::size(c * CHUNK, cut.field_bits())..],
                heads,
            );
            if self.plan.grouped(size) {
                low::get(simd, cursor, size, low, &counts[c * CHUNK / low::GROUP..], heads, out)?;
            } else if size == 1 {
                out.iter_mut().zip(heads.iter()).for_each(|(o, h)| *o = *h as u8);
            } else if size == 2 {
                out.as_chunks_mut()
                    .0
                    .iter_mut()
                    .zip(heads.iter())
                    .for_each(|(e, h)| *e = h.to_le_bytes());
            } else {
                for (e, h) in out.chunks_exact_mut(size).zip(heads.iter()) {
                    e[size - 2..].copy_from_slice(&h.to_le_bytes());
                }
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
