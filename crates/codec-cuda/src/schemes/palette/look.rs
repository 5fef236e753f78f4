//! The counting pass over elements: symbols, palette indices, raw contexts and their counts.

use crate::{
    Buffer, Kernel, Result, Session, View,
    layout::{Layout, pair},
    schemes::palette::{FLOAT, Tiles, device_table, levels},
};
use mdl_codec::engine_internals::{palette, palette::Table};
use std::ops::Range;

const LOOK: [Kernel; 3] = [
    Kernel::new("palette", "palette_look_2"),
    Kernel::new("palette", "palette_look_4"),
    Kernel::new("palette", "palette_look_8"),
];
/// Counters in shared memory, and most copies of them, as `palette.cu` has them.
const HIST: usize = 8192;
const COPIES: usize = 32;
/// All counters are in shared memory, not only those of symbol 0.
const FULL: u64 = 2;

/// A segment that has a table.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    pub table: Table,
    pub raw: View<'a>,
    pub base: Option<View<'a>>,
    /// None without a base.
    pub grandparent: Option<View<'a>>,
}

impl Segment<'_> {
    /// How many numbers it has.
    pub(super) fn n(&self) -> usize {
        self.raw.len() / self.table.numbers.size
    }

    /// Numbers of each of its blocks.
    pub(super) fn blocks(&self) -> Vec<Range<usize>> {
        palette::blocks(self.n()).collect()
    }
}

/// Rows of counters: by place, and by raw context.
#[derive(Clone, Copy, Debug)]
struct Rows {
    near: usize,
    far: usize,
}

impl Rows {
    fn from_segment(s: &Segment<'_>) -> Rows {
        let (values, axes) = (s.table.values.len(), s.table.axes());
        let far = if s.grandparent.is_some() { axes.iter().product() } else { 0 };
        let near = match (s.base, far) {
            (None, _) => 1,
            (Some(_), 0) => values,
            // Raw contexts that tell places apart say how often each occurs.
            (Some(_), _) if axes[0] == values => 0,
            (Some(_), _) => values,
        };
        Rows { near, far }
    }

    /// Counters of a copy in shared memory, copies, and whether these are all that there are.
    fn shared(self, values: usize) -> (usize, usize, bool) {
        let rows = self.near + self.far;
        let all = rows * (values + 1);
        let full = (self.near == 0 || self.far == 0) && (all | 1) <= HIST;
        let cells = if full { all } else { rows };
        let copies = (HIST / (cells | 1)).max(1);
        (cells, (1 << copies.ilog2()).min(COPIES), full)
    }
}

/// Where what was found about a segment is.
#[derive(Debug)]
struct Place {
    symbols: Range<usize>,
    places: Range<usize>,
    contexts: Range<usize>,
    near: Range<usize>,
    far: Range<usize>,
    marks: usize,
}

/// What was found about segments.
#[derive(Debug)]
pub(super) struct Looked<'s> {
    room: Buffer<'s>,
    counts: Buffer<'s>,
    places: Vec<Place>,
    /// Of each segment: the or of its exceptions, and how many of them there are in each block.
    pub marks: Vec<(u64, Vec<usize>)>,
}

impl Looked<'_> {
    /// Segment i's symbols, a byte a number, up to a multiple of 16.
    pub(super) fn symbols(&self, i: usize) -> View<'_> {
        self.part(i, |p| &p.symbols)
    }

    /// Segment i's places, likewise; empty without a base.
    pub(super) fn places(&self, i: usize) -> View<'_> {
        self.part(i, |p| &p.places)
    }

    /// Segment i's raw contexts, two bytes a number; empty without a grandparent.
    pub(super) fn contexts(&self, i: usize) -> View<'_> {
        self.part(i, |p| &p.contexts)
    }

    fn part(&self, i: usize, of: impl Fn(&Place) -> &Range<usize>) -> View<'_> {
        let range = self.places.get(i).map(|p| of(p).clone()).unwrap_or_default();
        self.room.view().part(range)
    }

    /// Counts of each segment: by place (or nothing, where those by raw context say the same), and by raw context.
    pub(super) fn counts(&self, session: &Session) -> Result<Vec<[Vec<u32>; 2]>> {
        let all = session.download_u32(self.counts.view())?;
        let of = |range: &Range<usize>| all[range.start / 4..range.end / 4].to_vec();
        Ok(self.places.iter().map(|p| [of(&p.near), of(&p.far)]).collect())
    }
}

/// Looks at segments.
pub(super) fn look<'s>(session: &'s Session, segments: &[Segment<'_>]) -> Result<Looked<'s>> {
    let (mut room, mut counts, mut marks) = <(Layout, Layout, Layout)>::default();
    let mut tables = Vec::new();
    let mut starts = Vec::with_capacity(segments.len());
    let places: Vec<Place> = segments
        .iter()
        .map(|s| {
            let (n, width, rows) = (s.n(), s.table.values.len() + 1, Rows::from_segment(s));
            starts.push(tables.len());
            device_table(&s.table, &mut tables);
            Place {
                symbols: room.range(n),
                places: room.range(if s.base.is_some() { n } else { 0 }),
                contexts: room.range(if s.grandparent.is_some() { 2 * n } else { 0 }),
                near: counts.range(4 * width * rows.near),
                far: counts.range(4 * width * rows.far),
                marks: marks.take(8 + 4 * s.blocks().len()),
            }
        })
        .collect();
    let (room, counts, marks) =
        (session.buffer(room.len())?, session.zeroed(counts.len())?, session.zeroed(marks.len())?);
    let tables = session.upload(&tables)?;
    let jobs = session.upload_list(segments.iter().zip(&places).zip(starts).map(|((s, p), start)| {
        let values = s.table.values.len();
        let (cells, copies, full) = Rows::from_segment(s).shared(values);
        let flags = if s.table.numbers.is_float() { FLOAT } else { 0 } | if full { FULL } else { 0 };
        let at = |base: u64, r: &Range<usize>| if r.is_empty() { 0 } else { base + r.start as u64 };
        [
            s.raw.address(),
            s.base.map_or(0, |v| v.address()),
            s.grandparent.map_or(0, |v| v.address()),
            tables.address() + start as u64,
            at(room.address(), &p.symbols),
            at(room.address(), &p.places),
            at(room.address(), &p.contexts),
            at(counts.address(), &p.near),
            at(counts.address(), &p.far),
            marks.address() + p.marks as u64 + 8,
            marks.address() + p.marks as u64,
            pair(s.n(), values),
            u64::from(levels(values)) | flags << 32,
            pair(cells, copies),
        ]
    }))?;
    let cut: Vec<(usize, usize)> = segments.iter().map(|s| (s.n(), s.table.numbers.size)).collect();
    Tiles::new(&cut).launch(session, LOOK, &jobs)?;
    let found = session.download_u32(marks.view())?;
    let read = |(s, p): (&Segment<'_>, &Place)| {
        let at = |i: usize| found.get(p.marks / 4 + i).copied().unwrap_or_default();
        let bits = u64::from(at(0)) | u64::from(at(1)) << 32;
        (bits, (0..s.blocks().len()).map(|b| at(2 + b) as usize).collect())
    };
    let marks = segments.iter().zip(&places).map(read).collect();
    Ok(Looked { room, counts, places, marks })
}
