//! Parses numpy's slices: `0:10,:,-1,::2`.

use crate::{Remedy, RepoError, Result};
use std::str::FromStr;

/// A part of every axis, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Index(i64),
    Range { start: Option<i64>, stop: Option<i64>, step: u64 },
    Ellipsis,
}

/// The elements of one axis that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The first.
    pub start: u64,
    /// How many.
    pub count: u64,
    /// From one to the next.
    pub step: u64,
    /// Chosen by an index: the axis disappears.
    pub single: bool,
}

impl Axis {
    /// Whether all of it lies on an axis of length `n`.
    pub(super) fn is_inside(&self, n: u64) -> bool {
        let last = self.count.checked_sub(1).map(|more| more.checked_mul(self.step));
        match last {
            None => true,
            Some(reach) => reach.and_then(|r| r.checked_add(self.start)).is_some_and(|last| last < n),
        }
    }

    /// The whole axis of this length.
    pub const fn whole(count: u64) -> Axis {
        Axis { start: 0, count, step: 1, single: false }
    }
}

fn part(text: &str) -> Result<Part, String> {
    let text = text.trim();
    let number = |t: &str| t.trim().parse::<i64>().map_err(|_| format!("{t:?} is not a whole number"));
    let optional = |t: &str| {
        if t.trim().is_empty() { Ok(None) } else { number(t).map(Some) }
    };
    let pieces: Vec<&str> = text.split(':').collect();
    match pieces.as_slice() {
        ["..."] => Ok(Part::Ellipsis),
        [index] => number(index).map(Part::Index),
        [start, stop, rest @ ..] if rest.len() < 2 => {
            let step = rest.first().map_or(Ok(None), |t| optional(t))?.unwrap_or(1);
            let step = u64::try_from(step).ok().filter(|&s| s > 0).ok_or("a step must be 1 or more")?;
            Ok(Part::Range { start: optional(start)?, stop: optional(stop)?, step })
        }
        _ => Err(format!("{text:?} has too many colons")),
    }
}

impl FromStr for Slice {
    type Err = String;

    fn from_str(text: &str) -> Result<Slice, String> {
        let parts: Vec<Part> = text.split(',').map(part).collect::<Result<_, String>>()?;
        if parts.iter().filter(|p| **p == Part::Ellipsis).count() > 1 {
            return Err("only one '...' can be told apart".to_owned());
        }
        Ok(Slice(parts))
    }
}

impl Slice {
    /// The parts of the axes of a shape.
    pub fn apply(&self, shape: &[u64]) -> Result<Vec<Axis>> {
        let whole = Part::Range { start: None, stop: None, step: 1 };
        let mut parts: Vec<Part> = self.0.iter().copied().filter(|p| *p != Part::Ellipsis).collect();
        if parts.len() > shape.len() {
            return Err(RepoError::usage(
                format!("the slice has {} axes, the tensor {}", parts.len(), shape.len()),
                Remedy::ShowShape,
            ));
        }
        let gap = self.0.iter().position(|p| *p == Part::Ellipsis).unwrap_or(parts.len());
        parts.splice(gap..gap, std::iter::repeat_n(whole, shape.len() - parts.len()));
        parts.iter().zip(shape).enumerate().map(|(i, (p, &n))| axis(i, *p, n)).collect()
    }
}

/// A place on an axis of length `n`: counted from the end if negative, and kept inside.
fn place(at: i64, n: u64) -> u64 {
    if at < 0 { n.saturating_sub(at.unsigned_abs()) } else { (at as u64).min(n) }
}

fn axis(number: usize, part: Part, n: u64) -> Result<Axis> {
    match part {
        Part::Index(i) => {
            let inside = if i < 0 { i.unsigned_abs() <= n } else { (i as u64) < n };
            if !inside {
                let message = format!("index {i} leaves axis {number}, which has {n} elements");
                return Err(RepoError::usage(message, Remedy::ShowShape));
            }
            Ok(Axis { start: place(i, n), count: 1, step: 1, single: true })
        }
        Part::Range { start, stop, step } => {
            let (start, stop) = (place(start.unwrap_or(0), n), stop.map_or(n, |s| place(s, n)));
            Ok(Axis { start, count: stop.saturating_sub(start).div_ceil(step), step, single: false })
        }
        Part::Ellipsis => Ok(Axis::whole(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(text: &str, shape: &[u64]) -> Vec<(u64, u64, u64)> {
        let slice: Slice = text.parse().unwrap();
        slice.apply(shape).unwrap().iter().map(|a| (a.start, a.count, a.step)).collect()
    }

    #[test]
    fn slices_mean_what_numpy_means() {
        assert_eq!(axes("0:10,:", &[100, 5]), [(0, 10, 1), (0, 5, 1)]);
        assert_eq!(axes("-3:", &[10, 2]), [(7, 3, 1), (0, 2, 1)]);
        assert_eq!(axes("::3", &[10]), [(0, 4, 3)]);
        assert_eq!(axes("5:2", &[10]), [(5, 0, 1)]);
        assert_eq!(axes("-100:100", &[10]), [(0, 10, 1)]);
        assert_eq!(axes("-1,...,2", &[4, 5, 6]), [(3, 1, 1), (0, 5, 1), (2, 1, 1)]);
    }

    #[test]
    fn slices_stay_inside() {
        for text in ["::9223372036854775807", "9:", "-1", ":-9223372036854775808", "7::2", "3:3"] {
            let slice: Slice = text.parse().unwrap();
            assert!(slice.apply(&[10]).unwrap()[0].is_inside(10), "{text}");
        }
        let axis = |start, count, step| Axis { start, count, step, single: false };
        for bad in [axis(10, 1, 1), axis(0, 11, 1), axis(9, 2, 1), axis(1, u64::MAX, u64::MAX), axis(u64::MAX, 2, 1)] {
            assert!(!bad.is_inside(10), "{bad:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a", "1:2:0", "::-1", "1:2:3:4", "...,...", ""] {
            assert!(text.parse::<Slice>().is_err(), "{text}");
        }
        for text in ["10", "-11", "0,0", "-9223372036854775808"] {
            assert!(text.parse::<Slice>().unwrap().apply(&[10]).is_err(), "{text}");
        }
    }
}
