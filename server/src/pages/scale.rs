//! Axes of plots: maps values to positions and picks round tick values.

use crate::pages::text;

/// From this ratio of greatest to least on, positive values are drawn by their logarithms.
const LOG_FROM: f64 = 40.0;
/// Round values on an axis, about.
const TICKS: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Plain,
    /// Steps and versions: there is nothing between two.
    Whole,
    Bytes,
    Ratio,
}

impl Unit {
    /// A value in full.
    pub fn show(self, v: f64) -> String {
        match self {
            Unit::Bytes if v.is_finite() => text::size(v.max(0.0) as u64),
            Unit::Ratio if v.is_finite() => format!("{}x", text::rough(v)),
            _ => text::number(v),
        }
    }

    fn tick(self, v: f64) -> String {
        match self {
            Unit::Bytes => text::size(v.max(0.0) as u64).replace(".0 ", " "),
            Unit::Ratio => format!("{}x", text::number(v)),
            Unit::Plain | Unit::Whole => text::number(v),
        }
    }
}

#[derive(Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    /// Whether it is logarithmic.
    pub log: bool,
    unit: Unit,
}

impl Scale {
    pub fn linear(values: impl Iterator<Item = f64>, unit: Unit) -> Scale {
        let (mut low, mut high) = bounds(values).unwrap_or((0.0, 1.0));
        if high <= low {
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low, high) = (low - room, high + room);
        }
        Scale { low, high, log: false, unit }
    }

    /// The axis that shows most: with room above and below, by logarithms where values are of many sizes.
    pub fn fitting(values: impl Iterator<Item = f64>, unit: Unit) -> Scale {
        let mut scale = Scale::linear(values, unit);
        if scale.low > 0.0 && scale.high / scale.low >= LOG_FROM {
            (scale.low, scale.high, scale.log) = (scale.low.ln(), scale.high.ln(), true);
        }
        let room = (scale.high - scale.low) * 0.06;
        let floor = if unit == Unit::Plain || scale.log { f64::MIN } else { 0.0 };
        (scale.low, scale.high) = ((scale.low - room).max(floor), scale.high + room);
        scale
    }

    /// Position of a value, 0 to 1.
    pub fn place(&self, v: f64) -> f64 {
        let v = if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        // Halves: the difference of the largest numbers is none.
        let share = (v / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Round values on it: where they lie, and as text.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let values = if self.log { self.log_ticks() } else { self.linear_ticks() };
        values.into_iter().map(|v| (self.place(v), self.unit.tick(v))).collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let wide = self.high / TICKS - self.low / TICKS;
        if !wide.is_finite() || wide <= 0.0 {
            return Vec::new();
        }
        let base = if self.unit == Unit::Bytes { 2.0_f64 } else { 10.0 };
        let power = wide.log(base);
        // Powers of two lie close: the next one up does for bytes.
        let mut step = base.powf(if base == 2.0 { power.ceil() } else { power.floor() });
        for factor in [2.0, 2.5, 2.0] {
            if base == 10.0 && step * factor <= wide * 1.2 {
                step *= factor;
            }
        }
        if self.unit == Unit::Whole {
            step = step.max(1.0);
        }
        let first = (self.low / step).ceil();
        let all = (0..12).map(|i| (first + f64::from(i)) * step);
        all.take_while(|v| *v <= self.high).map(|v| if v == 0.0 { 0.0 } else { v }).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let base = if self.unit == Unit::Bytes { 2.0_f64 } else { 10.0 };
        let (from, to) = (self.low / base.ln(), self.high / base.ln());
        let every = ((to - from) / TICKS).ceil().max(1.0);
        let first = (from / every).ceil() * every;
        let mut all: Vec<f64> =
            (0..12).map(|i| first + f64::from(i) * every).take_while(|e| *e <= to).map(|e| base.powf(e)).collect();
        if all.len() < 3 && base == 10.0 {
            let parts = (from.floor() as i32..=to.ceil() as i32).take(4);
            all = parts.flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e))).collect();
            all.retain(|v| (self.low..=self.high).contains(&v.ln()));
        }
        all
    }
}

/// The least and the greatest finite value.
pub fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|v| v.is_finite());
    finite.fold(None, |found, v| Some(found.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_values_within_them() {
        let cases: [(&[f64], Unit); 7] = [
            (&[0.3, 2.7], Unit::Plain),
            (&[1e-5, 3.0], Unit::Plain),
            (&[1024.0, 9e9], Unit::Bytes),
            (&[5e6, 6e6], Unit::Bytes),
            (&[1.0, 44.0], Unit::Ratio),
            (&[-3.0, 5.0], Unit::Plain),
            (&[7.0], Unit::Plain),
        ];
        for (values, unit) in cases {
            let scale = Scale::fitting(values.iter().copied(), unit);
            let ticks = scale.ticks();
            assert!((2..=10).contains(&ticks.len()), "{values:?}: {ticks:?}");
            for v in values {
                assert!((0.0..=1.0).contains(&scale.place(*v)));
            }
        }
        assert!(Scale::fitting([1e-5, 3.0].into_iter(), Unit::Plain).log);
        assert!(!Scale::fitting([-1.0, 3000.0].into_iter(), Unit::Plain).log);
    }

    #[test]
    fn between_two_versions_there_is_no_tick() {
        for (last, wanted) in
            [(1.0, vec!["0", "1"]), (3.0, vec!["0", "1", "2", "3"]), (10.0, vec!["0", "2", "4", "6", "8", "10"])]
        {
            let ticks = Scale::linear([0.0, last].into_iter(), Unit::Whole).ticks();
            assert_eq!(ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), wanted);
        }
        let one = Scale::linear([7.0].into_iter(), Unit::Whole).ticks();
        assert_eq!(one, [(0.5, "7".to_owned())]);
    }

    #[test]
    fn extremes_do_not_break_an_axis() {
        for values in [vec![f64::MIN, f64::MAX], vec![f64::NAN], vec![], vec![0.0, 5e-324], vec![f64::MAX]] {
            let scale = Scale::fitting(values.iter().copied(), Unit::Plain);
            assert!(scale.place(1.0).is_finite());
            assert!(scale.ticks().len() <= 12, "{values:?}");
        }
    }
}
