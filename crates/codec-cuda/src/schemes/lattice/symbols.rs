//! Symbols of lattice segments in their raw contexts, and the counts of them.

use crate::{
    Buffer, Kernel, Result, Session, View,
    layout::{Load, pair},
    schemes::{
        lattice::{FOUR, GROUP, Lines, PIECE, Placed, ROWS, THREADS, columns},
        rans::Part,
    },
};
use mdl_codec::{
    Result as CodecResult,
    engine_internals::lattice::{BLOCK_LOG, LatticePlan, Piece, axes, period},
    quant::lattice::Hint,
};
use rayon::prelude::*;
use std::rc::Rc;

const SYMBOLS: Kernel = Kernel::new("lattice", "lattice_symbols");
const BEFORE: Kernel = Kernel::new("lattice", "lattice_before");
const STEPS: Kernel = Kernel::new("lattice", "lattice_steps");
const COUNT: Kernel = Kernel::new("lattice", "lattice_count");
/// Blocks of threads to a row of `lattice_steps`, and threads of each.
const TILES: (u32, u32) = (16, 128);
/// Elements that a block of threads counts: so many that its counters are a small part of the work.
const COUNTED: usize = 1 << 16;
/// Words of `LatticeEncode`.
const WORDS: usize = PIECE + 20;

/// A segment, and the bases that it is to be looked at with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub job: usize,
    pub hint: &'a Hint,
    pub n: usize,
    pub raw: View<'a>,
    pub bases: [Option<View<'a>>; 2],
}

/// A segment as symbols, and what their counts decide.
#[derive(Debug)]
pub(super) struct Coded<'s> {
    pub n: usize,
    /// Raw bits of each block.
    pub bits: Vec<u32>,
    pub plan: LatticePlan,
    words: [u64; WORDS],
    /// What the words point to.
    _rooms: Rc<[Buffer<'s>; 2]>,
}

impl Coded<'_> {
    /// Its blocks.
    pub(super) fn blocks(&self) -> usize {
        self.bits.len()
    }

    /// Words of `LatticeEncode`.
    pub(super) fn words(&self) -> [u64; WORDS] {
        self.words
    }

    /// Where the map of contexts is, the words of raw bits before each block, and the room for these.
    pub(super) fn place(&mut self, map: u64, before: u64, low: u64) {
        self.words[PIECE + 13..PIECE + 16].copy_from_slice(&[map, low, before]);
    }

    /// Symbols and contexts of each block.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let [symbols, ctx] = [PIECE + 3, PIECE + 6].map(|i| self.words[i]);
        (0..self.n).step_by(1 << BLOCK_LOG).map(move |at| {
            let view = |list: u64| View::at(list + at as u64, (self.n - at).min(1 << BLOCK_LOG));
            Part { symbols: view(symbols), ctx: Some(view(ctx)) }
        })
    }
}

/// What the counts of a segment go by.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// Numbers before it, among all counts.
    at: usize,
    axes: [usize; 3],
    alphabet: usize,
}

impl Table {
    fn len(self) -> usize {
        self.axes.iter().product::<usize>() * self.alphabet
    }
}

/// Looks at segments: at most so many that there is a row of a grid for each. None where a value is not on the lattice.
pub(super) fn look<'s>(session: &'s Session, subjects: &[Subject<'_>]) -> Result<Vec<Option<Coded<'s>>>> {
    if subjects.is_empty() {
        return Ok(Vec::new());
    }
    let mut load = Load::default();
    let placed = subjects
        .iter()
        .map(|s| Piece::from_hint(s.hint, s.raw.len()).map(|p| Placed::new(p, &mut load)))
        .collect::<CodecResult<Vec<_>>>()?;
    let load = load.send(session)?;
    let (mut layout, mut facts) = (Lines::default(), 0);
    let places: Vec<Places> = subjects.iter().map(|s| Places::new(s.n, &mut layout, &mut facts)).collect();
    let room = session.buffer(layout.len())?;
    let facts = session.zeroed(facts)?;
    let mut words: Vec<[u64; WORDS]> = subjects
        .iter()
        .zip(&placed)
        .zip(&places)
        .map(|((s, piece), places)| places.words(s, piece, &load, &room, &facts))
        .collect();
    passes(session, subjects, &words)?;
    let facts = session.download_u32(facts.view())?;
    let fact = |places: &Places, i: usize| facts.get(places.facts as usize / 4 + i).copied().unwrap_or(1);
    let bits: Vec<Vec<u32>> = subjects
        .iter()
        .zip(&places)
        .map(|(s, places)| (0..blocks(s.n)).map(|b| fact(places, 2 + b)).collect())
        .collect();
    // Counts of those that are on their lattice lie side by side.
    let mut at = 0;
    let tables: Vec<Option<Table>> = subjects
        .iter()
        .zip(&places)
        .map(|(s, places)| {
            let (axes, alphabet) = (axes(s.bases[0].is_some()), fact(places, 1) as usize + 1);
            (fact(places, 0) == 0).then(|| {
                let table = Table { at, axes, alphabet };
                at += table.len();
                table
            })
        })
        .collect();
    let counts = count(session, &mut words, &tables, at)?;
    let plans: Vec<Option<LatticePlan>> = tables
        .par_iter()
        .zip(&bits)
        .map(|(table, bits)| {
            let table = (*table)?;
            let low = bits.iter().map(|b| u64::from(b.div_ceil(8))).sum();
            let counts = counts.get(table.at..table.at + table.len())?.to_vec();
            Some(LatticePlan::new(table.axes, table.alphabet, counts, low))
        })
        .collect();
    let rooms = Rc::new([room, load]);
    let all = subjects.iter().zip(plans).zip(bits).zip(words);
    let coded = all
        .map(|(((s, plan), bits), words)| plan.map(|plan| Coded { n: s.n, bits, plan, words, _rooms: rooms.clone() }));
    Ok(coded.collect())
}

/// Blocks of `n` elements.
fn blocks(n: usize) -> usize {
    n.div_ceil(1 << BLOCK_LOG)
}

/// Makes symbols, classes and steps of activity, and finds out what is a matter of facts.
fn passes(session: &Session, subjects: &[Subject<'_>], words: &[[u64; WORDS]]) -> Result<()> {
    let longest = subjects.iter().map(|s| s.n).max().unwrap_or(0);
    let rows = subjects.len() as u32;
    let list = session.upload_u64(words.as_flattened())?;
    let everything = (columns(longest, THREADS as usize * FOUR, rows), rows);
    session.launch(SYMBOLS, everything, THREADS, &[list.arg()])?;
    session.launch(BEFORE, (columns(blocks(longest), 4, rows), rows), 128, &[list.arg()])?;
    let each: Vec<u32> =
        subjects.iter().zip(0u32..).flat_map(|(s, j)| (0..blocks(s.n) as u32).flat_map(move |b| [j, b])).collect();
    for each in each.chunks(2 * ROWS) {
        let there = session.upload_u32(each)?;
        let grid = (TILES.0, each.len() as u32 / 2);
        session.launch(STEPS, grid, TILES.1, &[list.arg(), there.arg()])?;
    }
    Ok(())
}

/// Counts the symbols of the segments that have tables, `len` numbers in all, and tells their words where.
fn count(session: &Session, words: &mut [[u64; WORDS]], tables: &[Option<Table>], len: usize) -> Result<Vec<u32>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let counts = session.zeroed(4 * len)?;
    let (mut good, mut longest) = (Vec::new(), 0);
    for (words, table) in words.iter_mut().zip(tables) {
        if let Some(table) = table {
            words[PIECE + 12] = counts.address() + 4 * table.at as u64;
            words[PIECE + 19] = table.alphabet as u64;
            good.extend_from_slice(words);
            longest = longest.max(words[PIECE + 16] as u32);
        }
    }
    let rows = (good.len() / WORDS) as u32;
    let grid = (columns(longest as usize, COUNTED, rows), rows);
    let list = session.upload_u64(&good)?;
    session.launch(COUNT, grid, THREADS, &[list.arg()])?;
    session.download_u32(counts.view())
}

/// Where the lists of a segment are: in the room, and (`facts`) among the facts.
struct Places {
    /// Symbols, far, classes, contexts; groups; activity and raw bits before them.
    lists: [u64; 7],
    facts: u64,
}

impl Places {
    fn new(n: usize, layout: &mut Lines, facts: &mut usize) -> Places {
        let groups = n.div_ceil(GROUP);
        let lists = [n, n, n, n, 4 * groups, 2 * groups, 4 * groups].map(|len| layout.take(len) as u64);
        let at = *facts as u64;
        *facts += 4 * (2 + n.div_ceil(1 << BLOCK_LOG));
        Places { lists, facts: at }
    }

    fn words(
        &self,
        s: &Subject<'_>,
        piece: &Placed,
        load: &Buffer<'_>,
        room: &Buffer<'_>,
        facts: &Buffer<'_>,
    ) -> [u64; WORDS] {
        let address = |v: Option<View<'_>>| v.map_or(0, |v| v.address());
        let axes = axes(s.bases[0].is_some());
        let cols = piece.piece().cols;
        let block = 1usize << BLOCK_LOG;
        let kept = [block, (s.n - 1) % block + 1].map(|n| period(cols, n));
        let facts = facts.address() + self.facts;
        let mut words = [0; WORDS];
        let lists = self.lists.map(|at| room.address() + at);
        let tail = [pair(s.n, BLOCK_LOG.into()), pair(kept[0], kept[1]), pair(axes[1] * axes[2], axes[0] - 1)];
        words[..PIECE].copy_from_slice(&piece.words(load.address(), 0, s.n));
        words[PIECE..PIECE + 3].copy_from_slice(&[s.raw.address(), address(s.bases[0]), address(s.bases[1])]);
        words[PIECE + 3..PIECE + 10].copy_from_slice(&lists);
        words[PIECE + 10..PIECE + 12].copy_from_slice(&[facts + 8, facts]);
        words[PIECE + 16..PIECE + 19].copy_from_slice(&tail);
        words
    }
}
