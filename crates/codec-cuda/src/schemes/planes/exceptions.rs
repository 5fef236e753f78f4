//! Exceptions: keys outside the window, marked, counted and listed. Few as a rule: only runs that have one are listed,
//! and only their lists come to the host.

use crate::{
    Arg, Buffer, Kernel, Result, Session,
    layout::pair,
    schemes::planes::{Item, cut_words, launch, tiles},
};
use mdl_codec::engine_internals::Coding;

const MARK: Kernel = Kernel::new("exceptions", "exceptions_mark");
const LIST: Kernel = Kernel::new("exceptions", "exceptions_list");
/// `LISTED` in `exceptions.cu`: numbers of a run.
const RUN: usize = 4096;
/// Warps of a block of threads.
const WARPS: usize = 8;

/// Segments whose exceptions are marked.
#[derive(Debug)]
pub(super) struct Marked<'s> {
    /// Of `RareJob`.
    jobs: Buffer<'s>,
    counts: Buffer<'s>,
    /// The item of each job, and where its runs begin.
    items: Vec<(usize, usize)>,
}

/// Marks what the windows leave out.
pub(super) fn mark<'s>(session: &'s Session, items: &[Item<'_>], codings: &[Coding]) -> Result<Marked<'s>> {
    let windows = items.iter().zip(codings).enumerate();
    let windows: Vec<_> = windows.filter_map(|(i, (item, c))| c.window.map(|w| (i, item, w))).collect();
    let mut runs = 0;
    let mut places = Vec::new();
    for (i, item, _) in &windows {
        places.push((*i, runs));
        runs += item.grid.n.div_ceil(RUN);
    }
    let counts = session.buffer(4 * runs)?;
    let jobs = session.upload_list(windows.iter().zip(&places).map(|((_, item, window), (_, run))| {
        let [cut, lo] = cut_words(item.plan.cut);
        [
            item.raw.address(),
            item.symbols.address(),
            counts.address() + 4 * *run as u64,
            cut,
            lo,
            pair(item.grid.n, item.size),
            pair(window.first.into(), window.kept.into()),
        ]
    }))?;
    let lengths = windows.iter().enumerate().map(|(j, (_, item, _))| (j, item.grid.n));
    launch(session, MARK, jobs.view(), &tiles(lengths, RUN * WARPS))?;
    Ok(Marked { jobs, counts, items: places })
}

impl Marked<'_> {
    /// Lists the exceptions of all.
    pub(super) fn list(&self, session: &Session, items: &[Item<'_>]) -> Result<Listed> {
        let counts = session.download_u32(self.counts.view())?;
        let mut listed = Listed {
            entries: Vec::new(),
            runs: vec![Vec::new(); items.len()],
            blocks: items.iter().map(|i| (1 << i.grid.log) / RUN).collect(),
        };
        let (mut work, mut at) = (Vec::new(), 0);
        for (j, &(i, first)) in self.items.iter().enumerate() {
            let counts = counts.iter().skip(first).take(items[i].grid.n.div_ceil(RUN));
            for (run, &count) in counts.enumerate() {
                listed.runs[i].push(at..at + count as usize);
                if count > 0 {
                    work.extend([j as u32, run as u32, at as u32]);
                }
                at += count as usize;
            }
        }
        if at > 0 {
            let out = session.buffer(4 * at)?;
            let count = work.len() / 3;
            let work = session.upload_u32(&work)?;
            let args = [self.jobs.arg(), work.arg(), Arg::U32(count as u32), out.arg()];
            session.launch(LIST, (count.div_ceil(WARPS) as u32, 1), 32 * WARPS as u32, &args)?;
            listed.entries = session.download_u32(out.view())?;
        }
        Ok(listed)
    }
}

/// The exceptions of all items, as they came from the device.
#[derive(Debug)]
pub(super) struct Listed {
    /// Place in the run << 16 | key.
    entries: Vec<u32>,
    /// Those of each run of each item.
    runs: Vec<Vec<std::ops::Range<usize>>>,
    /// Runs of a block of each item.
    blocks: Vec<usize>,
}

impl Listed {
    /// Places in the block, and keys, in order.
    pub(super) fn in_block(&self, item: usize, block: usize) -> impl Iterator<Item = (usize, u16)> {
        let runs = self.runs[item].iter().skip(block * self.blocks[item]).take(self.blocks[item]);
        runs.enumerate().flat_map(|(r, range)| {
            let entries = &self.entries[range.clone()];
            entries.iter().map(move |e| (r * RUN + (e >> 16) as usize, *e as u16))
        })
    }
}
