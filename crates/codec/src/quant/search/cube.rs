//! Guided exhaustive search of the paper's configuration cube: every axis a parameter from coarse (0) to fine, quality
//! and bytes growing along each.
//!
//! Guided exhaustive search is Algorithm 4: the diagonal of a cube is searched by halving; what is coarser than a point
//! that failed fails, what is finer than one that passed is larger; the mixed sub-cubes that remain are searched alike.
//! The delta neighbourhood (section 5) takes one step at most on each axis, none of them towards coarse, smallest
//! candidate first.

use crate::quant::search::Trials;

/// A point: its place on every axis.
pub type Point = Vec<usize>;

/// A cube: for every axis the first and the last place, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cube {
    axes: Vec<(usize, usize)>,
}

impl Cube {
    /// A cube whose axes have these many places. An axis without places makes it empty.
    pub fn new(places: &[usize]) -> Option<Cube> {
        let axes = places.iter().map(|&n| Some((0, n.checked_sub(1)?)));
        axes.collect::<Option<Vec<_>>>().map(|axes| Cube { axes })
    }

    /// The most aggressive point.
    fn coarsest(&self) -> Point {
        self.axes.iter().map(|a| a.0).collect()
    }

    /// Points of the diagonal from coarse to fine: as many as the longest axis has places.
    fn diagonal(&self) -> Vec<Point> {
        let steps = self.axes.iter().map(|a| a.1 - a.0).max().unwrap_or(0);
        let at = |i: usize, (from, to): (usize, usize)| match steps {
            0 => from,
            _ => from + (i * (to - from) + steps / 2) / steps,
        };
        (0..=steps).map(|i| self.axes.iter().map(|&a| at(i, a)).collect()).collect()
    }

    /// What is neither finer than `point` on every axis nor coarser on every axis, as cubes.
    fn mixed(&self, point: &Point) -> Vec<Cube> {
        let n = self.axes.len();
        let side = |bits: usize, i: usize| {
            let (from, to) = self.axes[i];
            if bits >> i & 1 == 1 {
                Some((point[i], to))
            } else {
                Some((from, point[i].checked_sub(1)?)).filter(|a| a.0 <= a.1)
            }
        };
        let cube = |bits: usize| {
            let axes: Option<Vec<_>> = (0..n).map(|i| side(bits, i)).collect();
            axes.map(|axes| Cube { axes })
        };
        (1..(1usize << n) - 1).filter_map(cube).collect()
    }

    fn contains(&self, point: &Point) -> bool {
        point.len() == self.axes.len() && point.iter().zip(&self.axes).all(|(&p, a)| (a.0..=a.1).contains(&p))
    }
}

/// Whether `a` is at least as fine as `b` on every axis.
fn finer(a: &Point, b: &Point) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b)
}

/// What was found out so far: along an axis quality only grows, so many points need no trial.
#[derive(Default)]
struct Verdicts {
    passed: Vec<Point>,
    failed: Vec<Point>,
    best: Option<(u64, Point)>,
}

impl Verdicts {
    fn passes<T: Trials<Point>>(&mut self, trials: &mut T, point: &Point) -> Result<bool, T::Error> {
        if self.failed.iter().any(|f| finer(f, point)) {
            return Ok(false);
        }
        if self.passed.iter().any(|p| finer(point, p)) {
            return Ok(true);
        }
        let passes = trials.passes(point)?;
        let list = if passes { &mut self.passed } else { &mut self.failed };
        list.push(point.clone());
        Ok(passes)
    }

    fn offer(&mut self, bytes: u64, point: Point) {
        if self.best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            self.best = Some((bytes, point));
        }
    }
}

/// Algorithm 4: the smallest candidate of the cube that passes, with its bytes. Right where quality and bytes grow
/// along every axis; where they do not quite, a candidate that did pass its own trial all the same.
pub fn guided<T: Trials<Point>>(trials: &mut T, cube: &Cube) -> Result<Option<(u64, Point)>, T::Error> {
    let mut known = Verdicts::default();
    let mut open = vec![cube.clone()];
    while let Some(cube) = open.pop() {
        // The coarsest point is the smallest: a cube that cannot win is not searched.
        if let Some((least, _)) = known.best
            && trials.bytes(&cube.coarsest())? >= least
        {
            continue;
        }
        let diagonal = cube.diagonal();
        // The first of the diagonal that passes.
        let (mut from, mut to) = (0, diagonal.len());
        while from < to {
            let middle = from + (to - from) / 2;
            if known.passes(trials, &diagonal[middle])? {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        // Nothing is finer than the diagonal's end.
        let Some(first) = diagonal.into_iter().nth(to) else {
            continue;
        };
        open.extend(cube.mixed(&first));
        // A point taken to pass because a coarser one did cannot be smaller than that one.
        if known.passed.contains(&first) {
            let bytes = trials.bytes(&first)?;
            known.offer(bytes, first);
        }
    }
    Ok(known.best)
}

/// The delta neighbourhood of the last choice: points at most `reach` steps finer on each axis and nowhere coarser,
/// smallest first; the first that passes. None: none does, and the whole cube has to be searched.
pub fn neighbourhood<T: Trials<Point>>(
    trials: &mut T,
    cube: &Cube,
    last: &Point,
    reach: usize,
) -> Result<Option<(u64, Point)>, T::Error> {
    let mut points = vec![Point::new()];
    for &at in last {
        let further = |p: &Point| (0..=reach).map(|d| [p.as_slice(), &[at + d]].concat()).collect::<Vec<_>>();
        points = points.iter().flat_map(further).collect();
    }
    let inside = points.into_iter().filter(|p| cube.contains(p));
    let mut sized = inside.map(|p| Ok((trials.bytes(&p)?, p))).collect::<Result<Vec<_>, T::Error>>()?;
    sized.sort();
    let mut known = Verdicts::default();
    for (bytes, point) in sized {
        if known.passes(trials, &point)? {
            return Ok(Some((bytes, point)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Passes where the weighted sum of the places reaches a bound; bytes by other weights.
    struct Model {
        quality: Vec<usize>,
        bytes: Vec<usize>,
        bound: usize,
        trials: usize,
    }

    fn dot(a: &[usize], b: &[usize]) -> usize {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    impl Trials<Point> for Model {
        type Error = Infallible;

        fn bytes(&mut self, key: &Point) -> Result<u64, Infallible> {
            Ok(1 + dot(key, &self.bytes) as u64)
        }

        fn passes(&mut self, key: &Point) -> Result<bool, Infallible> {
            self.trials += 1;
            Ok(dot(key, &self.quality) >= self.bound)
        }
    }

    fn all(places: &[usize]) -> Vec<Point> {
        places.iter().fold(vec![Point::new()], |points, &n| {
            let more = |p: &Point| (0..n).map(|i| [p.as_slice(), &[i]].concat()).collect::<Vec<_>>();
            points.iter().flat_map(more).collect()
        })
    }

    proptest! {
        #[test]
        fn guided_search_finds_what_trying_everything_finds(
            places in proptest::collection::vec(1usize..7, 1..4),
            quality in proptest::collection::vec(0usize..5, 3),
            bytes in proptest::collection::vec(1usize..9, 3),
            bound in 0usize..60,
        ) {
            let mut model = Model { quality, bytes, bound, trials: 0 };
            let points = all(&places);
            let good = points.iter().filter(|p| dot(p, &model.quality) >= bound);
            let best = good.map(|p| 1 + dot(p, &model.bytes) as u64).min();
            let cube = Cube::new(&places).unwrap();
            let found = guided(&mut model, &cube).unwrap();
            prop_assert_eq!(found.as_ref().map(|f| f.0), best);
            prop_assert!(model.trials <= points.len());
        }

        #[test]
        fn neighbours_are_never_coarser(last in proptest::collection::vec(0usize..6, 3), bound in 0usize..40) {
            let places = [6, 6, 3];
            let last: Point = last.iter().zip(places).map(|(l, n)| l % n).collect();
            let mut model = Model { quality: vec![1, 2, 3], bytes: vec![3, 1, 2], bound, trials: 0 };
            let cube = Cube::new(&places).unwrap();
            let near: Vec<Point> = all(&places).into_iter()
                .filter(|p| finer(p, &last) && p.iter().zip(&last).all(|(a, b)| a - b <= 1)).collect();
            let good = near.iter().filter(|p| dot(p, &model.quality) >= bound);
            let best = good.map(|p| 1 + dot(p, &model.bytes) as u64).min();
            let found = neighbourhood(&mut model, &cube, &last, 1).unwrap();
            prop_assert_eq!(found.as_ref().map(|f| f.0), best);
            if let Some((_, p)) = found {
                prop_assert!(near.contains(&p));
            }
        }
    }

    #[test]
    fn table_nine_takes_a_tenth_of_its_trials() {
        // Bins, pruning, protection: 6 x 6 x 3.
        let mut model = Model { quality: vec![5, 3, 2], bytes: vec![40, 30, 3], bound: 25, trials: 0 };
        let found = guided(&mut model, &Cube::new(&[6, 6, 3]).unwrap()).unwrap();
        assert!(found.is_some());
        assert!(model.trials <= 24, "{}", model.trials);
    }
}
