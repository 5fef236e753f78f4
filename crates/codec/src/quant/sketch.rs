//! How often each key occurs: the quantile sketch. Neighbours: `partition` takes thresholds from it, `points` clusters
//! its cells. It must not know what a tensor is for.
//!
//! Stands in for the paper's DDSketch (section 4.3, Algorithm 1): the same relative error guarantee, but with the
//! float's own exponent and top mantissa bits as the logarithm, so that a key costs no arithmetic and the error is 2^-8
//! and not 1 %.

use super::numbers::{Grid, KEYS, MAGNITUDES, Values, from_f16};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

/// Elements that one set of 32-bit counters takes: enough to make clearing and adding it up cheap.
const CHUNK: usize = 1 << 21;
/// Below this many elements the counters are not worth clearing.
const SMALL: usize = 1 << 15;

/// Counts of keys. Merging is exact, commutative and associative, whatever the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// By key, non-finite ones included.
    counts: Vec<u64>,
    /// `None` before the first number: then any grid fits.
    grid: Option<Grid>,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch {
            counts: vec![0; KEYS],
            grid: None,
        }
    }
}

impl Sketch {
    /// A sketch of these numbers.
    pub fn of(values: Values<'_>) -> Sketch {
        let mut sketch = Sketch::default();
        sketch.add(values);
        sketch
    }

    /// A sketch of keys counted elsewhere.
    pub(crate) fn from_counts(grid: Grid, counts: Vec<u64>) -> Sketch {
        let grid = counts.iter().any(|&c| c > 0).then_some(grid);
        Sketch { counts, grid }
    }

    /// Counts these numbers; on all threads of the current pool, with the same result for any number of them.
    pub fn add(&mut self, values: Values<'_>) {
        if values.is_empty() {
            return;
        }
        if self.grid.is_some_and(|g| g != values.grid()) {
            return self.merge(&Sketch::of(values));
        }
        self.grid = Some(values.grid());
        if values.len() < SMALL {
            let counts = Cell::from_mut(self.counts.as_mut_slice()).as_slice_of_cells();
            let one = |k: u16| counts[usize::from(k)].set(counts[usize::from(k)].get() + 1);
            return values.each_key(|four| four.into_iter().for_each(one), one);
        }
        let part = (0..values.len().div_ceil(CHUNK))
            .into_par_iter()
            .fold(Vec::new, |counts, i| count(values.part(i * CHUNK, CHUNK), counts))
            .reduce(Vec::new, sum);
        add_to(&mut self.counts, &part);
    }

    /// Adds another sketch's counts. Sketches of different grids meet on [`Grid::F32`].
    pub fn merge(&mut self, other: &Sketch) {
        match (self.grid, other.grid) {
            (_, None) => {}
            (None, _) => *self = other.clone(),
            (Some(a), Some(b)) if a == b => add_to(&mut self.counts, &other.counts),
            (Some(_), Some(_)) => {
                let merged = sum(self.on_f32(), other.on_f32());
                *self = Sketch::from_counts(Grid::F32, merged);
            }
        }
    }

    /// The counts by key of [`Grid::F32`]. A bf16 is such a key already.
    fn on_f32(&self) -> Vec<u64> {
        if self.grid != Some(Grid::F16) {
            return self.counts.clone();
        }
        let mut counts = vec![0; KEYS];
        for (key, &n) in (0..=u16::MAX).zip(&self.counts) {
            counts[(from_f16(key).to_bits() >> 16) as usize] += n;
        }
        counts
    }

    /// The grid of the keys; `None` where nothing was counted.
    pub fn grid(&self) -> Option<Grid> {
        self.grid
    }

    /// How many finite numbers were counted. Only these have ranks, quantiles and cells.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.non_finite()
    }

    /// Whether no finite number was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many NaNs and infinities were counted.
    pub fn non_finite(&self) -> u64 {
        let first = usize::from(self.grid.map_or(0, Grid::infinity));
        let halves = self.counts.chunks_exact(KEYS / 2);
        halves.map(|sign| sign[first..].iter().sum::<u64>()).sum()
    }

    /// (key without sign, count of both signs) of finite numbers, ascending, occupied or not.
    fn magnitudes(&self) -> impl DoubleEndedIterator<Item = (u16, u64)> + '_ {
        (0..self.grid.map_or(0, Grid::infinity)).map(|m| {
            (
                m,
                self.counts[usize::from(m)] + self.counts[usize::from(m | MAGNITUDES)],
            )
        })
    }

    /// The `q`-quantile of |x|, `q` in [0, 1]: with n finite numbers, the representative of the key that holds the r-th
    /// smallest |x|, r = ceil(q n) but at least 1 and at most n. The rank is exact; the value is within 2^-8 (relative)
    /// of that |x| and exact on a 16-bit grid (for subnormal f32 see [`Grid::value`]). `None` where there is no number.
    pub fn quantile_abs(&self, q: f64) -> Option<f32> {
        let n = self.len();
        let rank = ((q * n as f64).ceil() as u64).clamp(1, n.max(1));
        let mut below = 0;
        let key = self.magnitudes().find(|&(_, c)| {
            below += c;
            below >= rank
        })?;
        Some(self.grid?.value(key.0))
    }

    /// The smallest magnitude such that at most `limit` numbers have it or more; whole keys only, so a key of many
    /// equal numbers is in or out as one. Infinity where not even the largest key fits.
    pub fn top(&self, limit: u64) -> f32 {
        self.cut(self.magnitudes().rev(), limit).0
    }

    /// The magnitude below which at most `limit` numbers lie; whole keys only. 0 where not even the smallest key fits,
    /// infinity where everything does.
    pub fn bottom(&self, limit: u64) -> f32 {
        self.cut(self.magnitudes(), limit).1.unwrap_or(f32::INFINITY)
    }

    /// (low end of the last occupied key that still fits the limit, low end of the first that does not).
    fn cut(&self, keys: impl Iterator<Item = (u16, u64)>, limit: u64) -> (f32, Option<f32>) {
        let low = |key| self.grid.map_or(f32::INFINITY, |g| g.low(key));
        let (mut taken, mut last) = (0, f32::INFINITY);
        for (key, n) in keys.filter(|&(_, n)| n > 0) {
            taken += n;
            if taken > limit {
                return (last, Some(low(key)));
            }
            last = low(key);
        }
        (last, None)
    }

    /// (representative, count) of the occupied finite keys, ascending; both zeros are one cell.
    pub fn cells(&self) -> Vec<(f32, u64)> {
        let Some(grid) = self.grid else { return Vec::new() };
        let zeros = self.counts[0] + self.counts[usize::from(MAGNITUDES)];
        let cell = |key: usize| (grid.value(key as u16), self.counts[key]);
        let (first, last) = (1, usize::from(grid.infinity()));
        let sign = usize::from(MAGNITUDES);
        let mut cells: Vec<(f32, u64)> = self.occupied(sign + first..sign + last).map(cell).collect();
        cells.reverse();
        cells.extend((zeros > 0).then_some((0.0, zeros)));
        cells.extend(self.occupied(first..last).map(cell));
        cells
    }

    /// The keys of a range that occur, ascending. Most do not: they are passed over a cache line at a time.
    fn occupied(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        const LINE: usize = 8;
        let lines = range.clone().step_by(LINE).map(move |at| at..range.end.min(at + LINE));
        lines
            .filter(|line| self.counts[line.clone()].iter().fold(0, |all, n| all | n) != 0)
            .flatten()
            .filter(|&key| self.counts[key] != 0)
    }

    /// The numbers whose key's low end (its smallest magnitude) passes the test.
    pub(crate) fn retain(&self, keep: impl Fn(f32) -> bool) -> Sketch {
        let mut kept = Sketch::default();
        let Some(grid) = self.grid else { return kept };
        for key in self.occupied(0..KEYS) {
            if keep(grid.low(key as u16)) {
                kept.counts[key] = self.counts[key];
                kept.grid = Some(grid);
            }
        }
        kept
    }
}

thread_local! {
    /// Counters of a thread, all zero between two uses.
    static LANES: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// Counts a chunk and adds it to `counts`, which is empty or full size.
fn count(values: Values<'_>, mut counts: Vec<u64>) -> Vec<u64> {
    counts.resize(KEYS, 0);
    let mut lanes = LANES.take();
    lanes.resize(2 * KEYS, 0);
    // Two counters a key: a run of equal numbers waits less on one memory cell.
    if let ([a, b], _) = lanes.as_chunks_mut::<KEYS>() {
        let first = Cell::from_mut(a).as_array_of_cells();
        let second = Cell::from_mut(b).as_array_of_cells();
        let up = |lane: &[Cell<u32>; KEYS], key: u16| {
            let cell = &lane[usize::from(key)];
            cell.set(cell.get() + 1);
        };
        let four = |[p, q, r, s]: [u16; 4]| {
            up(first, p);
            up(second, q);
            up(first, r);
            up(second, s);
        };
        values.each_key(four, |p| up(first, p));
        for ((n, a), b) in counts.iter_mut().zip(first).zip(second) {
            *n += u64::from(a.take()) + u64::from(b.take());
        }
    }
    LANES.set(lanes);
    counts
}

fn add_to(counts: &mut [u64], more: &[u64]) {
    counts.iter_mut().zip(more).for_each(|(n, m)| *n += m);
}

/// Either may be empty.
fn sum(mut a: Vec<u64>, b: Vec<u64>) -> Vec<u64> {
    if a.is_empty() {
        a.resize(KEYS, 0);
    }
    add_to(&mut a, &b);
    a
}
