//! Steps within bounds: each row's step is what the search wishes, or less where a bound asks for it; rows that no
//! step serves stay exact.

use crate::{
    allocate::{columns, mean_square_of_columns, step_of_row},
    bounds::Bounds,
    bounds::yardstick::{Change, Row, Yardstick},
};
use mdl_codec::quant::lattice::Params;

/// Sixteenths of an octave between the tensor's step and those of its rows.
const RANGE: i32 = 4 * 16;
/// A row's steps go by half octaves: finer ones gain nothing, and a step that stays costs nothing.
const GRID: i32 = 8;
/// What of the allowance steps are made for: what they leave varies from row to row.
const SHARE: f64 = 0.9;
/// Levels of the largest number of a row: more than this and the step is too fine for a lattice.
const LEVELS: f64 = (1u32 << 18) as f64;
/// Bits that an exact element takes, at the most: what a row costs that is left out of the lattice, in sixteenths.
const EXACT: i32 = 24 * 16;

/// The steps of a tensor's rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    wish: Params,
    /// Step of each row in sixteenths of an octave; none for one that stays exact.
    rows: Vec<Option<i32>>,
    /// The least step that each could have.
    least: Vec<f64>,
    /// Whether any row has another step than the wish.
    bounded: bool,
}

/// The largest step that the elements of a row may have, in sixteenths of an octave.
enum Top {
    /// Any.
    Open,
    Step(i32),
    /// None: it stays exact.
    Exact,
}

impl Top {
    fn step(&self) -> Option<i32> {
        match self {
            Top::Step(step) => Some(*step),
            Top::Open | Top::Exact => None,
        }
    }
}

impl Steps {
    /// The steps that are wished for, held within the bounds; `last` are those of the parent, which are kept where they
    /// are within the bounds and not needlessly fine.
    ///
    /// No element has a larger step than its row may have if all have the same, so that sensitivity only refines: the
    /// factors of columns are cut off where they meet the rows' bounds. What a row saves in columns that matter it does
    /// not spend in others, which so have no more error than the bounds would give them on average.
    pub fn new(wish: &Params, yard: &Yardstick, bounds: &Bounds, last: Option<&Params>) -> Steps {
        let mut steps = Steps { wish: wish.clone(), rows: Vec::new(), least: Vec::new(), bounded: false };
        let tops: Vec<Top> = Steps::tops(yard, bounds, last).collect();
        let wished = |i| step_of_row(wish, i).unwrap_or(i32::from(wish.step));
        let mut room: Vec<i32> = tops.iter().enumerate().filter_map(|(i, top)| Some(top.step()? - wished(i))).collect();
        room.sort_unstable();
        let cut = room.get(room.len() / 2).map_or(i32::MAX, |room| room.div_euclid(GRID) * GRID);
        let flat = steps.cut_columns(cut);
        let (_, coarsest) = columns(&steps.wish);
        let row = |(i, top): (usize, &Top)| match top {
            Top::Open => Some(wished(i) + flat),
            Top::Exact => None,
            Top::Step(most) => Some((wished(i) + flat).min(most - coarsest)),
        };
        steps.rows = tops.iter().enumerate().map(row).collect();
        steps.bounded |= steps.rows.iter().enumerate().any(|(i, step)| *step != Some(wished(i)));
        let (finest, _) = columns(&steps.wish);
        // The least step that the largest number of a row can be a level of.
        let least = |row: &Row| ((row.peak / LEVELS).log2() * 16.0 - f64::from(finest)).ceil();
        steps.least = yard.rows.iter().map(least).collect();
        steps
    }

    /// Cuts the columns' factors off at so many sixteenths of an octave. Where all meet the cut there are none any
    /// more, and the rows take over what they had at least, which is returned.
    fn cut_columns(&mut self, cut: i32) -> i32 {
        let (finest, coarsest) = columns(&self.wish);
        if cut >= coarsest || self.wish.cols.is_empty() {
            return 0;
        }
        self.bounded = true;
        if cut <= finest {
            self.wish.cols.clear();
            return finest;
        }
        let most = Params::factor(cut as i16);
        let cut_off = |bits: &mut u16| *bits = if Params::value(*bits) > Params::value(most) { most } else { *bits };
        self.wish.cols.iter_mut().for_each(cut_off);
        0
    }

    /// The largest step that an element of each row may have.
    fn tops(yard: &Yardstick, bounds: &Bounds, last: Option<&Params>) -> impl Iterator<Item = Top> {
        let coarsest = last.map_or(0, |last| columns(last).1);
        let last = move |i| last.and_then(|last| Some(step_of_row(last, i)? + coarsest));
        yard.rows.iter().enumerate().map(move |(i, row)| match allowed_mean(row, bounds, yard.cols as f64) {
            None => Top::Open,
            Some(_) if row.weight == 0.0 => Top::Exact,
            Some(mean) => cap(mean, row, last(i)).map_or(Top::Exact, Top::Step),
        })
    }

    /// How far the steps of `base` can grow before every element is at its row's bound, in sixteenths of an octave: the
    /// largest number there is where one has no bound, the smallest where all rows are exact.
    pub fn reach(base: &Params, yard: &Yardstick, bounds: &Bounds, last: Option<&Params>) -> i32 {
        let (finest, _) = columns(base);
        let one = |(i, top): (usize, Top)| match top {
            Top::Open => i32::MAX,
            Top::Exact => i32::MIN,
            Top::Step(most) => step_of_row(base, i).map_or(i32::MIN, |base| most - base - finest),
        };
        Steps::tops(yard, bounds, last).enumerate().map(one).max().unwrap_or(i32::MIN)
    }

    /// The record of a tensor in bins: the steps of a lattice that has the same error in each row.
    pub fn record_of_errors(errors: &[f64], cols: usize) -> Params {
        let step =
            |e: &f64| (*e > 0.0 && e.is_finite()).then(|| ((12.0 * e / cols as f64).sqrt().log2() * 16.0) as i32);
        let rows: Vec<Option<i32>> = errors.iter().map(step).collect();
        let most = rows.iter().flatten().max().copied().unwrap_or_default().clamp(-1200, 1200);
        // A row with less error than the range allows is said to have the least there is.
        let factor = |s: &Option<i32>| s.map_or(0, |s| Params::factor((s - most).clamp(-RANGE, 0) as i16));
        Params { step: most as i16, rows: rows.iter().map(factor).collect(), ..Params::default() }
    }

    /// Takes half an octave off the steps of these rows.
    pub fn refine(&mut self, rows: &[usize]) {
        self.bounded = true;
        for &row in rows {
            self.rows[row] = self.rows[row].map(|step| step - GRID);
        }
    }

    /// Has these rows stay exact.
    pub fn keep(&mut self, rows: &[usize]) {
        self.bounded = true;
        for &row in rows {
            self.rows[row] = None;
        }
    }

    /// The lattice, and the rows that are not on it.
    pub fn lattice(&self) -> (Params, Vec<usize>) {
        if !self.bounded {
            return (self.wish.clone(), Vec::new());
        }
        let step = self.common();
        let exact = |(row, s): (usize, &Option<i32>)| match s {
            Some(s) if s - step >= -RANGE && f64::from((s - step).min(RANGE) + step) >= self.least[row] => None,
            _ => Some(row),
        };
        let exact = self.rows.iter().enumerate().filter_map(exact).collect();
        let factor = |s: &Option<i32>| Params::factor(s.map_or(0, |s| (s - step).clamp(-RANGE, RANGE)) as i16);
        let rows = self.rows.iter().map(factor).collect();
        (Params { step: step as i16, rows, ..self.wish.clone() }, exact)
    }

    /// The lattice as the record keeps it: the factor of a row that is exact is 0, that of one that is inherited the
    /// one that would leave its squared error.
    pub fn record((params, exact): &(Params, Vec<usize>), cols: usize, inherited: &[(usize, f64)]) -> Params {
        let mut params = params.clone();
        exact.iter().for_each(|&row| params.rows[row] = 0);
        let step = (f64::from(params.step) / 16.0).exp2();
        let mean = cols as f64 * mean_square_of_columns(&params);
        for &(row, error) in inherited {
            params.rows[row] = upper_half((12.0 * error / mean).sqrt() / step);
        }
        params
    }

    /// The tensor's step, a whole octave: the one that loses least of rows that lie out of its reach.
    fn common(&self) -> i32 {
        let known = self.rows.iter().flatten().copied();
        let (Some(least), Some(most)) = (known.clone().min(), known.clone().max()) else {
            return i32::from(self.wish.step).div_euclid(16) * 16;
        };
        let cost = |step: i32| -> i64 {
            let one = |s: i32| if s < step - RANGE { EXACT } else { (s - step - RANGE).max(0) };
            known.clone().map(|s| i64::from(one(s))).sum()
        };
        let octaves = least.div_euclid(16)..=most.div_euclid(16) + 1;
        // Of equals the one in the middle of the finest rows' reach.
        octaves.map(|o| o * 16).min_by_key(|&step| (cost(step), (step - least).abs())).unwrap_or_default()
    }
}

/// The bits of a number as a bf16, cut off.
fn upper_half(v: f64) -> u16 {
    ((v as f32).to_bits() >> 16) as u16
}

/// The mean squared error of an element that steps of a row are made for; none for a row that any step serves. It is no
/// number for a row that holds what is none.
fn allowed_mean(row: &Row, bounds: &Bounds, cols: f64) -> Option<f64> {
    if !row.weight.is_finite() || !row.peak.is_finite() {
        return Some(f64::NAN);
    }
    let most = row.allowance(bounds);
    (!most.is_infinite()).then(|| most * SHARE / cols)
}

/// The largest step of a row whose elements may have this mean squared error.
fn cap(mean: f64, row: &Row, last: Option<i32>) -> Option<i32> {
    let most = (12.0 * mean).sqrt().log2() * 16.0;
    if most.is_nan() || most <= -1200.0 {
        return None;
    }
    let most = most.min(1200.0).floor() as i32;
    // A step within the last octave below the bound stays: one that moves makes the delta larger. So does that of a row
    // whose update cannot be seen.
    match last {
        Some(last)
            if last <= most && (most < last + 16 || matches!(row.change, Change::Hidden(_) | Change::Kept(_))) =>
        {
            Some(last)
        }
        _ => Some(most.div_euclid(GRID) * GRID),
    }
}
