//! Encoder of the scheme "planes".

use crate::{
    Dtype, Result, Scheme,
    entropy::{Counts, Grid, Histogram, PlaneEncoder, put_varint},
    schemes::{Cut, EXCEPTION, PlanesPlan, head_at, low},
    scratch::with_scratch,
    simd::{CHUNK, Simd},
    threads::share_out,
};

/// From twice so many elements on, the heads of every second chunk are counted, from four times on of every fourth, and
/// so on.
const COUNTED: usize = 1 << 18;
/// At least one chunk in so many is counted.
const SPARSEST: usize = 8;

/// How many chunks there are to one whose heads are counted. A table from 2^18 counts costs 0.007 % more than an exact
/// one, and counting is a sixth of encoding bf16. Only where there is a window: a symbol that was not seen must have a
/// place.
pub fn stride(plan: PlanesPlan, n: usize) -> usize {
    if plan.cut.is_some_and(Cut::windowed) { (n / COUNTED).clamp(1, SPARSEST) } else { 1 }
}

/// The symbols of a block, plane after plane, their counts, and the exceptions as the block lists them.
struct Parts<'a> {
    planes: Vec<&'a mut [u8]>,
    counts: Vec<Counts>,
    exceptions: Vec<u8>,
}

impl Parts<'_> {
    /// Makes the planes of a block and counts them, of the heads one chunk in `stride`.
    fn fill(&mut self, simd: Simd, plan: PlanesPlan, raw: &[u8], size: usize, stride: usize) {
        let (heads, rest) = self.planes.split_at_mut(usize::from(plan.cut.is_some()));
        if let Some((cut, symbols)) = plan.cut.zip(heads.first_mut()) {
            let mut counts = Histogram::new();
            // A cacheful at a time, counted while it is there.
            for (i, (raw, symbols)) in raw.chunks(CHUNK * size).zip(symbols.chunks_mut(CHUNK)).enumerate() {
                simd.symbols(cut, raw, symbols);
                if i % stride == 0 {
                    counts.add(symbols);
                }
            }
            self.counts.push(counts.total());
        }
        for (b, plane) in rest.iter_mut().enumerate() {
            if plan.grouped(size) {
                low::put_counts(raw, size, plan.low(size), plane);
            } else if size == 1 {
                plane.copy_from_slice(raw);
            } else {
                plane.iter_mut().zip(raw.iter().skip(b).step_by(size)).for_each(|(o, v)| *o = *v);
            }
            let mut counts = Histogram::new();
            counts.add(plane);
            self.counts.push(counts.total());
        }
    }

    /// Makes everything outside the window an exception, and lists the exceptions.
    fn list_exceptions(&mut self, cut: Cut, window: Window, raw: &[u8]) {
        let mut list = Exceptions::default();
        for (c, chunk) in self.planes[0].chunks_mut(256).enumerate() {
            // All of a chunk without a branch, so that the compiler makes vectors of it: most have no exception.
            if chunk.iter().fold(true, |all, &s| all & window.keeps(s)) {
                continue;
            }
            for (i, s) in chunk.iter_mut().enumerate().filter(|(_, s)| !window.keeps(**s)) {
                *s = EXCEPTION;
                let i = c * 256 + i;
                list.push(i, cut.key(head_at(raw, cut.shape.size, i)));
            }
        }
        list.put(&mut self.exceptions);
    }
}

/// The exceptions of a block, as it lists them.
#[derive(Debug, Default)]
pub struct Exceptions {
    count: u64,
    list: Vec<u8>,
    next: usize,
}

impl Exceptions {
    /// The next one: its place in the block, after those before it, and its key.
    pub fn push(&mut self, i: usize, key: u16) {
        put_varint(&mut self.list, (i - self.next) as u64);
        self.list.extend_from_slice(&key.to_le_bytes());
        self.next = i + 1;
        self.count += 1;
    }

    /// Appends the list.
    pub fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        out.extend_from_slice(&self.list);
    }
}

/// The symbols that stay: 0 and one range.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First symbol of the range, at least 1.
    pub first: u8,
    /// How many it has.
    pub kept: u8,
}

impl Window {
    /// Leaves out the rarest symbols at both ends: below one in 57,344 (4096 * 14) elements, the 1/4096 of probability
    /// that a symbol takes at least costs all others more than listing it. Moves their counts to the exceptions'.
    fn trim(counts: &mut Counts) -> Self {
        let n: u64 = counts.iter().map(|&c| u64::from(c)).sum();
        let rare = |s: &usize| u64::from(counts[*s]) * 57_344 < n;
        let mut low = (1..255).take_while(rare).count();
        let mut high = (1..255).rev().take_while(rare).count();
        if low == 254 {
            (low, high) = (0, 0);
        }
        for s in (1..=low).chain(255 - high..255) {
            counts[usize::from(EXCEPTION)] += std::mem::take(&mut counts[s]);
        }
        Window { first: low as u8 + 1, kept: (254 - low - high) as u8 }
    }

    /// Turns what was counted in one chunk of `stride` into counts for all, in which everything that may occur does.
    fn scale(self, counts: &mut Counts, stride: usize) {
        for (s, c) in counts.iter_mut().enumerate() {
            *c *= stride as u32;
            if stride > 1 && (self.keeps(s as u8) || s == usize::from(EXCEPTION)) {
                *c = (*c).max(1);
            }
        }
    }

    #[inline(always)]
    fn keeps(self, s: u8) -> bool {
        (s == 0) | (s.wrapping_sub(self.first) < self.kept)
    }
}

/// What counts decide.
#[derive(Debug)]
pub struct Coding {
    /// The symbols that stay, where there is a window: all others become exceptions.
    pub window: Option<Window>,
    /// How each plane is coded.
    pub coders: Vec<PlaneEncoder>,
    /// The segment up to the lengths of the blocks, scheme byte first.
    pub header: Vec<u8>,
}

impl Coding {
    /// Decides from the counts of each plane, of the heads those of one chunk in [`stride`].
    pub fn new(plan: PlanesPlan, grid: Grid, mut counts: Vec<Counts>) -> Result<Self> {
        let mut window = None;
        if let Some(counts) = plan.cut.filter(|c| c.windowed()).and(counts.first_mut()) {
            let kept = Window::trim(counts);
            kept.scale(counts, stride(plan, grid.n));
            window = Some(kept);
        }
        let coders = counts.iter().map(|c| PlaneEncoder::choose(c, grid.blocks())).collect::<Result<Vec<_>, _>>()?;
        let mut header = vec![Scheme::Planes as u8, grid.log];
        plan.put(&mut header);
        coders.iter().for_each(|c| c.put_header(&mut header));
        Ok(Coding { window, coders, header })
    }
}

/// The encoding that every engine must give for elements of `dtype`, made with plain instructions.
pub fn reference(plan: PlanesPlan, dtype: Dtype, raw: &[u8]) -> Result<Vec<u8>> {
    let size = crate::schemes::diff::number_size(dtype);
    encode(Simd::scalar(), plan, Grid::new(raw.len() / size), size, raw)
}

/// Encodes `raw` (elements of `size` bytes, cut as `grid` says) by `plan`, scheme byte first.
pub(crate) fn encode(simd: Simd, plan: PlanesPlan, grid: Grid, size: usize, raw: &[u8]) -> Result<Vec<u8>> {
    let sizes: Vec<Vec<usize>> = (0..grid.blocks()).map(|b| plan.plane_sizes(size, grid.elements(b).len())).collect();
    with_scratch(sizes.iter().flatten().sum(), |mut room| {
        let mut all = Vec::with_capacity(sizes.len());
        for block in &sizes {
            let mut planes = Vec::with_capacity(block.len());
            for &n in block {
                let (plane, rest) = std::mem::take(&mut room).split_at_mut(n);
                planes.push(plane);
                room = rest;
            }
            all.push(Parts { planes, counts: Vec::new(), exceptions: Vec::new() });
        }
        encode_parts(simd, plan, size, raw, grid, all)
    })
}

fn encode_parts(
    simd: Simd,
    plan: PlanesPlan,
    size: usize,
    raw: &[u8],
    grid: Grid,
    mut all: Vec<Parts<'_>>,
) -> Result<Vec<u8>> {
    let slice = |b: usize| &raw[grid.bytes(b, size)];
    let stride = stride(plan, grid.n);
    each(&mut all, |b, parts| parts.fill(simd, plan, slice(b), size, stride));
    let planes = all.first().map_or(0, |a| a.planes.len());
    let sum = |p: usize| std::array::from_fn(|s| all.iter().map(|a| a.counts[p][s]).sum());
    let counts: Vec<Counts> = (0..planes).map(sum).collect();
    let Coding { window, coders, header } = Coding::new(plan, grid, counts)?;
    if let Some((cut, window)) = plan.cut.zip(window) {
        each(&mut all, |b, parts| parts.list_exceptions(cut, window, slice(b)));
    }
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 16 + 1024);
    out.extend_from_slice(&header);
    grid.put_blocks(&mut out, |b, out| encode_block(simd, plan, size, slice(b), &all[b], &coders, out));
    out.shrink_to_fit();
    Ok(out)
}

/// Runs `f` on every item and its place, side by side where there are threads for it.
fn each<T: Send>(items: &mut [T], f: impl Fn(usize, &mut T) + Sync + Send) {
    share_out(items.iter_mut().enumerate().collect(), |(i, item)| f(i, item));
}

fn encode_block(
    simd: Simd,
    plan: PlanesPlan,
    size: usize,
    raw: &[u8],
    parts: &Parts<'_>,
    coders: &[PlaneEncoder],
    out: &mut Vec<u8>,
) {
    let mut planes = parts.planes.iter().zip(coders);
    if let Some(cut) = plan.cut {
        out.extend_from_slice(&parts.exceptions);
        if let Some((symbols, coder)) = planes.next() {
            coder.encode(simd, symbols, out);
        }
        simd.put_fields(cut, raw, out);
    }
    for (symbols, coder) in planes {
        coder.encode(simd, symbols, out);
        if plan.grouped(size) {
            low::put(simd, raw, size, plan.low(size), symbols, out);
        }
    }
}
