//! Segments encoded for the device itself: their parts stay in its memory, with seek points of the streams.

use crate::{
    Encode, Kernel, Result, Session, View,
    layout::places,
    schemes::{
        planes::{Item, encode, exceptions, groups},
        rans::Streams,
    },
};
use mdl_codec::engine_internals::{Coding, Cut, PlaneEncoder, PlanesPlan};
use std::ops::Range;

const ENCODE: Kernel = Kernel::new("weights", "weights_encode");
/// Bytes of a seek point: `POINT` in `weights.cuh`.
pub(crate) const POINT: usize = 4 * 33;
/// Numbers between two of them: `CHUNK` there.
pub(crate) const CHUNK: usize = 8192;

/// How the symbols of a segment are coded.
#[derive(Clone, Debug)]
pub(crate) enum Symbols {
    Const(u8),
    Raw,
    Rans(Box<[u16; 256]>),
}

/// A segment in parts.
#[derive(Debug)]
pub(crate) struct Apart<'v> {
    /// The segment up to the lengths of the blocks, scheme byte first.
    pub header: Vec<u8>,
    pub cut: Cut,
    pub symbols: Symbols,
    pub blocks: Vec<Block<'v>>,
}

/// A block in parts; all begin at multiples of 4.
#[derive(Debug)]
pub(crate) struct Block<'v> {
    pub elements: Range<usize>,
    /// Whether the cut has a window, outside of which keys are listed; place and key of each that is.
    pub windowed: bool,
    pub exceptions: Vec<(usize, u16)>,
    /// The stream, or raw symbols; nothing of a constant.
    pub symbols: View<'v>,
    /// A seek point for each chunk of a stream.
    pub points: View<'v>,
    pub fields: View<'v>,
    /// Low bytes, number by number.
    pub low: View<'v>,
}

/// Streams of all blocks that have one, and their seek points.
struct Coded<'s> {
    streams: Streams<'s>,
    points: crate::Buffer<'s>,
    starts: Vec<usize>,
    /// Which stream is the first one of each item.
    first: Vec<usize>,
}

/// Takes segments, none of them empty, apart by their plans and hands the parts over. None where a part would not be
/// read number by number: codes of Huffman, low bytes that are not as they are.
pub(crate) fn apart<T>(
    session: &Session,
    jobs: &[(Encode<'_>, PlanesPlan)],
    work: impl FnOnce(Vec<Apart<'_>>) -> Result<T>,
) -> Result<Option<T>> {
    encode::with_items(session, jobs, |items, counts| {
        let codings = encode::split(session, items, counts)?;
        if !items.iter().zip(&codings).all(|(i, c)| is_plain(i, c)) {
            return Ok(None);
        }
        let marked = exceptions::mark(session, items, &codings)?;
        let coded = code(session, items, &codings)?;
        let (groups, ranges) = groups::pack(session, items)?;
        let listed = marked.list(session, items)?;
        let mut all = Vec::with_capacity(items.len());
        for (i, (item, coding)) in items.iter().zip(codings).enumerate() {
            let Some((cut, coder)) = item.plan.cut.zip(coding.coders.first()) else { return Ok(None) };
            let symbols = match coder {
                PlaneEncoder::Const(s) => Symbols::Const(*s),
                PlaneEncoder::Rans(freqs, _) => Symbols::Rans(freqs.clone()),
                PlaneEncoder::Raw | PlaneEncoder::Huffman(..) => Symbols::Raw,
            };
            let block = |b: usize| {
                let elements = item.grid.elements(b);
                let (stream, points) = match &symbols {
                    Symbols::Const(_) => Default::default(),
                    Symbols::Raw => (item.plane(0, b), View::default()),
                    Symbols::Rans(_) => coded.get(coded.first[i] + b, elements.len()),
                };
                let low = ranges[i].get(b).map_or(View::default(), |r| groups.view().part(r.clone()));
                let exceptions = match coding.window {
                    Some(_) => listed.in_block(i, b).collect(),
                    None => Vec::new(),
                };
                let (windowed, fields) = (coding.window.is_some(), item.fields(b));
                Block { elements, windowed, exceptions, symbols: stream, points, fields, low }
            };
            let blocks = (0..item.grid.blocks()).map(block).collect();
            all.push(Apart { header: coding.header, cut, symbols, blocks });
        }
        work(all).map(Some)
    })
}

fn is_plain(item: &Item<'_>, coding: &Coding) -> bool {
    let heads = !matches!(coding.coders.first(), None | Some(PlaneEncoder::Huffman(..)));
    let low = !item.plan.grouped(item.size) || matches!(coding.coders.get(1), Some(PlaneEncoder::Const(0)));
    item.plan.cut.is_some() && heads && low && (item.plan.low(item.size) == 0 || item.plan.grouped(item.size))
}

/// Codes the heads of all segments whose table says so.
fn code<'s>(session: &'s Session, items: &[Item<'_>], codings: &[Coding]) -> Result<Coded<'s>> {
    let (mut words, mut symbols, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for (item, coding) in items.iter().zip(codings) {
        first.push(symbols.len());
        if let Some(PlaneEncoder::Rans(_, table)) = coding.coders.first() {
            let at = 8 * words.len();
            words.extend(table.words());
            symbols.extend((0..item.grid.blocks()).map(|b| (item.plane(0, b), at)));
        }
    }
    let tables = session.upload_u64(&words)?;
    let (begins, len) = places(symbols.iter().map(|(s, _)| 2 * s.len() + 4 * 32));
    let (starts, points) = places(symbols.iter().map(|(s, _)| POINT * s.len().div_ceil(CHUNK)));
    let (room, points) = (session.buffer(len)?, session.buffer(points)?);
    let list =
        session.upload_list(symbols.iter().zip(begins.iter().zip(&starts)).map(|((view, table), (at, point))| {
            let (stream, point) = (room.address() + *at as u64, points.address() + *point as u64);
            [view.address(), tables.address() + *table as u64, stream, point, view.len() as u64]
        }))?;
    let lengths = session.buffer(4 * symbols.len())?;
    session.launch(ENCODE, (symbols.len() as u32, 1), 32, &[list.arg(), lengths.arg()])?;
    Ok(Coded { streams: Streams::new(session, room, begins, &lengths)?, points, starts, first })
}

impl Coded<'_> {
    /// A stream of `n` symbols, and its seek points.
    fn get(&self, stream: usize, n: usize) -> (View<'_>, View<'_>) {
        let at = self.starts.get(stream).copied().unwrap_or_default();
        (self.streams.get(stream), self.points.view().part(at..at + POINT * n.div_ceil(CHUNK)))
    }
}
