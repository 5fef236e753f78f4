//! The quantile sketch: how often each key occurs.
//!
//! Stands in for the paper's DDSketch (section 4.3, Algorithm 1): the same relative error guarantee, but with the
//! float's own exponent and top mantissa bits as the logarithm, so that a key costs no arithmetic and the error is 2^-8
//! and not 1 %.

use crate::quant::{Grid, KEYS, MAGNITUDES, Values, from_f16};
use rayon::prelude::*;
use std::cell::Cell;

/// Elements that one set of 32-bit counters takes: enough to make clearing and adding it up cheap.
const CHUNK: usize = 1 << 21;
/// Below this many elements keys are sorted rather than counted.
const SMALL: usize = 1 << 11;
/// Keys whose counters are passed over together where none of them occurs.
const LINE: usize = 16;

/// Counts of keys. Merging is exact, commutative and associative, whatever the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Keys that occur, ascending, non-finite ones included, and how often: a few thousand for weights.
    counts: Counts,
    /// `None` before the first number: then any grid fits.
    grid: Option<Grid>,
}

type Counts = Vec<(u16, u64)>;

impl Sketch {
    /// A sketch of these numbers.
    pub fn from_values(values: Values<'_>) -> Sketch {
        let mut sketch = Sketch::default();
        sketch.add(values);
        sketch
    }

    /// A sketch of keys counted elsewhere: one count for each of 65,536 keys.
    pub(crate) fn from_counts(grid: Grid, counts: Vec<u64>) -> Sketch {
        let all = (0..=u16::MAX).zip(counts).filter(|&(_, n)| n > 0);
        Sketch::of_pairs(grid, all.collect())
    }

    /// A sketch of keys that were counted elsewhere: those that occur, ascending, and how often.
    #[doc(hidden)]
    pub fn of_pairs(grid: Grid, counts: Vec<(u16, u64)>) -> Sketch {
        let grid = (!counts.is_empty()).then_some(grid);
        Sketch { counts, grid }
    }

    /// Counts these numbers; on all threads of the current pool, with the same result for any number of them.
    pub fn add(&mut self, values: Values<'_>) {
        let counts = if values.len() < SMALL {
            let mut keys = Vec::with_capacity(values.len());
            values.push_keys(&mut keys);
            keys.sort_unstable();
            gather(keys.into_iter().map(|key| (key, 1)))
        } else {
            (0..values.len().div_ceil(CHUNK))
                .into_par_iter()
                .map(|i| count(values.part(i * CHUNK, CHUNK)))
                .reduce(Vec::new, |a, b| sum(&a, &b))
        };
        self.merge(&Sketch::of_pairs(values.grid(), counts));
    }

    /// Adds another sketch's counts. Sketches of different grids meet on [`Grid::F32`].
    pub fn merge(&mut self, other: &Sketch) {
        match (self.grid, other.grid) {
            (_, None) => {}
            (None, _) => *self = other.clone(),
            (Some(a), Some(b)) if a == b => self.counts = sum(&self.counts, &other.counts),
            (Some(_), Some(_)) => *self = Sketch::of_pairs(Grid::F32, sum(&self.on_f32(), &other.on_f32())),
        }
    }

    /// The counts by key of [`Grid::F32`]. A bf16 is such a key already.
    fn on_f32(&self) -> Counts {
        if self.grid != Some(Grid::F16) {
            return self.counts.clone();
        }
        let wide = |&(key, n): &(u16, u64)| ((from_f16(key).to_bits() >> 16) as u16, n);
        gather(self.counts.iter().map(wide))
    }

    /// The grid of the keys; `None` where nothing was counted.
    pub fn grid(&self) -> Option<Grid> {
        self.grid
    }

    /// How many finite numbers were counted. Only these have ranks, quantiles and cells.
    pub fn len(&self) -> u64 {
        self.signs().iter().flat_map(|sign| sign.iter()).map(|c| c.1).sum()
    }

    /// Whether no finite number was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many NaNs and infinities were counted.
    pub fn non_finite(&self) -> u64 {
        self.counts.iter().map(|c| c.1).sum::<u64>() - self.len()
    }

    /// The finite keys that occur: those without sign and those with.
    fn signs(&self) -> [&[(u16, u64)]; 2] {
        let infinity = self.grid.map_or(0, Grid::infinity);
        [0, MAGNITUDES].map(|sign| {
            let at = |key| self.counts.partition_point(|c| c.0 < key);
            &self.counts[at(sign)..at(sign | infinity)]
        })
    }

    /// (key without sign, count of both signs) of the finite numbers that occur, ascending.
    fn magnitudes(&self) -> Counts {
        let [positive, negative] = self.signs();
        let bare: Counts = negative.iter().map(|&(key, n)| (key ^ MAGNITUDES, n)).collect();
        sum(positive, &bare)
    }

    /// The `q`-quantile of |x|, `q` in [0, 1]: with n finite numbers, the representative of the key that holds the r-th
    /// smallest |x|, r = ceil(q n) but at least 1 and at most n. The rank is exact; the value is within 2^-8 (relative)
    /// of that |x| and exact on a 16-bit grid (for subnormal f32 see [`Grid::value`]). `None` where there is no number.
    pub fn quantile_abs(&self, q: f64) -> Option<f32> {
        let n = self.len();
        let rank = ((q * n as f64).ceil() as u64).clamp(1, n.max(1));
        let mut below = 0;
        let key = self.magnitudes().into_iter().find(|&(_, c)| {
            below += c;
            below >= rank
        })?;
        Some(self.grid?.value(key.0))
    }

    /// The smallest magnitude such that at most `limit` numbers have it or more; whole keys only, so a key of many
    /// equal numbers is in or out as one. Infinity where not even the largest key fits.
    pub fn top(&self, limit: u64) -> f32 {
        self.cut(self.magnitudes().into_iter().rev(), limit).0
    }

    /// The magnitude below which at most `limit` numbers lie; whole keys only. 0 where not even the smallest key fits,
    /// infinity where everything does.
    pub fn bottom(&self, limit: u64) -> f32 {
        self.cut(self.magnitudes().into_iter(), limit).1.unwrap_or(f32::INFINITY)
    }

    /// (low end of the last occupied key that still fits the limit, low end of the first that does not).
    fn cut(&self, keys: impl Iterator<Item = (u16, u64)>, limit: u64) -> (f32, Option<f32>) {
        let low = |key| self.grid.map_or(f32::INFINITY, |g| g.low(key));
        let (mut taken, mut last) = (0, f32::INFINITY);
        for (key, n) in keys {
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
        let cell = |&(key, n): &(u16, u64)| (grid.value(key), n);
        let [positive, negative] = self.signs().map(|sign| {
            let zeros = usize::from(sign.first().is_some_and(|c| c.0 & !MAGNITUDES == 0));
            sign.split_at(zeros)
        });
        let zeros: u64 = positive.0.iter().chain(negative.0).map(|c| c.1).sum();
        let mut cells: Vec<(f32, u64)> = negative.1.iter().rev().map(cell).collect();
        cells.extend((zeros > 0).then_some((0.0, zeros)));
        cells.extend(positive.1.iter().map(cell));
        cells
    }

    /// The numbers whose key's low end (its smallest magnitude) passes the test.
    pub(crate) fn retain(&self, keep: impl Fn(f32) -> bool) -> Sketch {
        let Some(grid) = self.grid else {
            return Sketch::default();
        };
        let kept = self.counts.iter().filter(|c| keep(grid.low(c.0)));
        Sketch::of_pairs(grid, kept.copied().collect())
    }
}

thread_local! {
    /// Counters of a thread, all zero between two uses.
    static LANES: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

fn count(values: Values<'_>) -> Counts {
    let mut lanes = LANES.take();
    lanes.resize(2 * KEYS, 0);
    let mut counts = Vec::with_capacity(KEYS / 8);
    // Two counters a key: a run of equal numbers waits less on one memory cell.
    if let ([a, b], _) = lanes.as_chunks_mut::<KEYS>() {
        let first = Cell::from_mut(&mut *a).as_array_of_cells();
        let second = Cell::from_mut(&mut *b).as_array_of_cells();
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
        let lines = a.as_chunks_mut::<LINE>().0.iter_mut().zip(b.as_chunks_mut::<LINE>().0);
        for (l, (a, b)) in lines.enumerate() {
            if a.iter().zip(b.iter()).fold(0, |all, (a, b)| all | a | b) == 0 {
                continue;
            }
            for (i, (a, b)) in a.iter_mut().zip(b).enumerate() {
                let n = u64::from(std::mem::take(a)) + u64::from(std::mem::take(b));
                counts.extend((n > 0).then_some(((l * LINE + i) as u16, n)));
            }
        }
    }
    LANES.set(lanes);
    counts
}

/// Adds up the counts of equal neighbours.
fn gather(pairs: impl Iterator<Item = (u16, u64)>) -> Counts {
    let mut counts: Counts = Vec::new();
    for (key, n) in pairs {
        match counts.last_mut() {
            Some(last) if last.0 == key => last.1 += n,
            _ => counts.push((key, n)),
        }
    }
    counts
}

/// The counts of both, by key.
fn sum(mut a: &[(u16, u64)], mut b: &[(u16, u64)]) -> Counts {
    let mut both = Vec::with_capacity(a.len().max(b.len()));
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let (in_a, in_b) = (x.0 <= y.0, y.0 <= x.0);
        let n = if in_a { x.1 } else { 0 } + if in_b { y.1 } else { 0 };
        both.push((x.0.min(y.0), n));
        a = &a[usize::from(in_a)..];
        b = &b[usize::from(in_b)..];
    }
    both.extend_from_slice(a);
    both.extend_from_slice(b);
    both
}
