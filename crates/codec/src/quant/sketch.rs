//! How often each key occurs: the quantile sketch. Neighbours: `partition` takes thresholds from it, `points` clusters
//! its cells. It must not know what a tensor is for.
//!
//! Stands in for the paper's DDSketch (section 4.3, Algorithm 1): the same relative error guarantee, but with the
//! float's own exponent and top mantissa bits as the logarithm, so that a key costs no arithmetic and the error is 2^-8
//! and not 1 %.

use super::numbers::{Grid, KEYS, MAGNITUDES, Values, from_f16};
use rayon::prelude::*;

/// Elements that one set of 32-bit counters takes: enough to make clearing and adding it up cheap.
const CHUNK: usize = 1 << 21;
/// Elements whose keys are taken out at a time: they stay in the nearest cache.
const STEP: usize = 1 << 12;
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
            let mut keys = Vec::new();
            values.push_keys(&mut keys);
            keys.iter().for_each(|&k| self.counts[usize::from(k)] += 1);
            return;
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
        self.magnitudes().map(|(_, n)| n).sum()
    }

    /// Whether no finite number was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many NaNs and infinities were counted.
    pub fn non_finite(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.len()
    }

    /// (key without sign, count of both signs) of finite numbers, ascending, occupied or not.
    fn magnitudes(&self) -> impl DoubleEndedIterator<Item = (u16, u64)> + '_ {
        let finite = self.grid.map_or(0, |g| if g == Grid::F16 { 0x7C00 } else { 0x7F80 });
        (0..finite).map(|m| {
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
        let cell = |key: u16| (grid.value(key), self.counts[usize::from(key)]);
        let negative = (MAGNITUDES + 1..=u16::MAX).rev().map(cell);
        let zero = (0.0, self.counts[0] + self.counts[usize::from(MAGNITUDES)]);
        negative
            .chain(std::iter::once(zero))
            .chain((1..MAGNITUDES).map(cell))
            .filter(|&(value, n)| n > 0 && value.is_finite())
            .collect()
    }

    /// The sketch without the numbers whose key's low end (its smallest magnitude) fails the test.
    pub(crate) fn retain(mut self, keep: impl Fn(f32) -> bool) -> Sketch {
        let Some(grid) = self.grid else { return self };
        for (key, n) in (0..=u16::MAX).zip(&mut self.counts) {
            if *n > 0 && !keep(grid.low(key)) {
                *n = 0;
            }
        }
        Sketch::from_counts(grid, self.counts)
    }
}

/// Counts a chunk and adds it to `counts`, which is empty or full size.
fn count(values: Values<'_>, mut counts: Vec<u64>) -> Vec<u64> {
    counts.resize(KEYS, 0);
    // Four counters a key: a run of equal numbers does not wait on one memory cell.
    let mut lanes = vec![0u32; 4 * KEYS];
    let mut keys = Vec::with_capacity(STEP);
    if let ([a, b, c, d], _) = lanes.as_chunks_mut::<KEYS>() {
        for start in (0..values.len()).step_by(STEP) {
            keys.clear();
            values.part(start, STEP).push_keys(&mut keys);
            let (fours, rest) = keys.as_chunks::<4>();
            for &[p, q, r, s] in fours {
                a[usize::from(p)] += 1;
                b[usize::from(q)] += 1;
                c[usize::from(r)] += 1;
                d[usize::from(s)] += 1;
            }
            rest.iter().for_each(|&p| a[usize::from(p)] += 1);
        }
    }
    for lane in lanes.chunks_exact(KEYS) {
        counts.iter_mut().zip(lane).for_each(|(n, &m)| *n += u64::from(m));
    }
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
