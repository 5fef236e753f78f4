//! Searches along the levels of the two quantiser families (lattice, bins), and of the paper's cube.

use crate::{
    make::{Choice, Setting},
    parameters::{BinLevels, Points, Steps},
    policy_toml::{BinsPolicy, BinsSearch, Family},
    record::State,
    search_pass::{Halt, SearchPass},
};
use mdl_codec::quant::{
    Metric,
    search::{Cube, Ladder, Trials, climb, coarser, guided, neighbourhood},
};

type Result<T> = std::result::Result<T, Halt>;

/// A parameter that used up more of the allowance than this is left where it is.
const STICKY: f64 = 0.25;
/// Levels towards coarse in one search; the first search of a run may go far.
const REACH: u32 = 4;
const FIRST_REACH: u32 = 64;
/// The lattice's parameter reaches from 2^2 to 2^-22 times the weights' deviation, and begins at 2^-3.
const COARSEST_OCTAVE: i32 = 2;
const FINEST_OCTAVE: i32 = 22;
const FIRST_OCTAVE: i32 = 3;
/// Sixteenths of an octave that a record's parameter may say.
const STEPS_MOST: i32 = 1 << 12;
/// Levels in a row that may be no smaller than the one before: next to a parent one may be so by chance.
const NO_SMALLER_MOST: u32 = 2;
/// Another metric is taken up where it saves this part of the degradation.
const SWITCH: f64 = 0.1;

impl Setting<'_> {
    /// The policy's families, the one that won last time first.
    pub(super) fn order(&self) -> Vec<Family> {
        let mut order = self.policy.families.clone();
        if self.state.winner.as_deref() == Some("bins") {
            order.sort_by_key(|f| *f != Family::Bins);
        }
        order.dedup();
        order
    }

    pub(super) fn lattice(
        &self,
        pass: &mut SearchPass<'_, '_>,
        beat: Option<u64>,
        state: &mut State,
    ) -> Result<Option<(u64, Choice)>> {
        let grid = i32::from(self.policy.lattice.grid);
        // A parameter beyond what every row's bounds allow makes the same candidate again.
        let coarsest = self.coarsest().min(COARSEST_OCTAVE * 16);
        let finest = FINEST_OCTAVE * 16 / grid;
        let ladder = Ladder {
            coarsest: (-(coarsest + grid - 1).div_euclid(grid)).min(finest),
            finest,
            reach: if self.state.lattice.is_some() { REACH } else { FIRST_REACH },
        };
        let start = self
            .state
            .lattice
            .map_or(FIRST_OCTAVE * 16 / grid, |sixteenths| -sixteenths.clamp(-STEPS_MOST, STEPS_MOST).div_euclid(grid));
        let first = self.state.lattice.is_none();
        let mut steps = Steps { pass, grid, passed: None };
        let enough = |s: &Steps<'_, '_, '_>| !first && s.passed.is_some_and(|c| s.pass.used(&c) > STICKY);
        let level = match beat.filter(|_| !first) {
            Some(least) => overtake(&mut steps, ladder, start, least)?,
            None => climb(&mut steps, ladder, start, enough)?,
        };
        let Some(level) = level else { return Ok(None) };
        let choice = steps.choice(level);
        if let Choice::Lattice(sixteenths) = choice {
            state.lattice = Some(sixteenths);
        }
        Ok(Some((pass.bytes(&choice)?, choice)))
    }

    pub(super) fn bins(
        &self,
        pass: &mut SearchPass<'_, '_>,
        beat: Option<u64>,
        state: &mut State,
    ) -> Result<Option<(u64, Choice)>> {
        let policy = &self.policy.bins;
        if policy.search == BinsSearch::Cube {
            return self.cube(pass, policy, state);
        }
        let last = self.state.bins.as_ref().and_then(|p| p.first()).map(|&p| p as i32);
        let ladder = Ladder {
            coarsest: 0,
            finest: policy.bins.len() as i32 - 1,
            reach: if last.is_some() { REACH } else { FIRST_REACH },
        };
        let start = last.unwrap_or(ladder.finest.min(6));
        let mut levels = BinLevels { pass, policy, passed: None };
        let enough = |r: &BinLevels<'_, '_, '_>| last.is_some() && r.passed.is_some_and(|c| r.pass.used(&c) > STICKY);
        let level = match beat.filter(|_| last.is_some()) {
            Some(least) => overtake(&mut levels, ladder, start, least)?,
            None => climb(&mut levels, ladder, start, enough)?,
        };
        let (Some(level), Some(choice)) = (level, levels.passed) else {
            return Ok(None);
        };
        state.bins = Some(vec![level as usize]);
        Ok(Some((pass.bytes(&choice)?, choice)))
    }

    /// The paper's search: the neighbourhood of the last choice, else the whole cube under each metric.
    fn cube(
        &self,
        pass: &mut SearchPass<'_, '_>,
        policy: &BinsPolicy,
        state: &mut State,
    ) -> Result<Option<(u64, Choice)>> {
        let Some(cube) = Cube::new(&Points::places(policy)) else {
            return Ok(None);
        };
        let gradients = self.sensitivity.source() == "gradients";
        let metrics: Vec<Metric> =
            policy.metrics().into_iter().filter(|m| *m == Metric::Magnitude || gradients).collect();
        let named = |m: Metric| {
            if m == Metric::Magnitude { "magnitude" } else { "sensitivity" }
        };
        let mut points = Points { pass, policy, metric: Metric::Magnitude };
        let mut best = None;
        if let Some(last) = self.state.bins.as_ref().filter(|p| p.len() == Points::places(policy).len()) {
            let was = metrics.iter().copied().find(|m| self.state.metric.as_deref() == Some(named(*m)));
            points.metric = was.unwrap_or(Metric::Magnitude);
            switch(&mut points, last, &metrics)?;
            best = neighbourhood(&mut points, &cube, last, 1)?.map(|(b, p)| (b, p, points.metric));
        }
        if best.is_none() {
            for metric in metrics {
                points.metric = metric;
                let found = guided(&mut points, &cube)?.map(|(b, p)| (b, p, metric));
                best = best.into_iter().chain(found).min_by_key(|b| b.0);
            }
        }
        let Some((bytes, point, metric)) = best else {
            return Ok(None);
        };
        points.metric = metric;
        let choice = points.choice(&point);
        (state.bins, state.metric) = (Some(point), Some(named(metric).to_owned()));
        Ok(Some((bytes, choice)))
    }
}

/// Looks for a level that is smaller than what passed already: no finer one can win, so there is one trial unless that
/// passes. Where levels no longer get smaller, for bounds keep more and more exact, no coarser one is looked at.
fn overtake<T: Trials<i32>>(
    trials: &mut T,
    ladder: Ladder,
    start: i32,
    least: u64,
) -> std::result::Result<Option<i32>, T::Error> {
    let mut at = start.clamp(ladder.coarsest, ladder.finest);
    let mut bytes = trials.bytes(&at)?;
    let mut no_smaller = 0;
    while bytes >= least {
        if at == ladder.coarsest || no_smaller == NO_SMALLER_MOST {
            return Ok(None);
        }
        at -= 1;
        let coarser = trials.bytes(&at)?;
        no_smaller = if coarser < bytes { 0 } else { no_smaller + 1 };
        bytes = coarser;
    }
    if !trials.passes(&at)? {
        return Ok(None);
    }
    coarser(trials, ladder, at).map(Some)
}

/// Takes the other metric up where, at the last choice, it degrades quality clearly less.
fn switch(points: &mut Points<'_, '_, '_>, last: &Vec<usize>, metrics: &[Metric]) -> Result<()> {
    let now = points.choice(last);
    let other = metrics.iter().copied().find(|m| *m != points.metric);
    let (Some(other), true) = (other, matches!(now, Choice::Bins(c, _) if c.prune > 0.0)) else {
        return Ok(());
    };
    points.pass.passes(&now)?;
    let was = std::mem::replace(&mut points.metric, other);
    let then = points.choice(last);
    points.pass.passes(&then)?;
    if points.pass.used(&then) > (1.0 - SWITCH) * points.pass.used(&now) {
        points.metric = was;
    }
    Ok(())
}
