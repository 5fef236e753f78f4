//! Candidates on trial: each is made, sized and judged at most once. Neighbours: `make` makes them, `drive` searches through the views here
//! (`Steps`, `Rungs`, `Points`), which put a search's keys for choices. It must not decide what to try.

use super::Evaluator;
use super::candidate::Scratch;
use super::keys::{BinsPolicy, Book};
use super::make::{Choice, Made, Maker};
use crate::{RepoError, Result};
use mdl_codec::quant::search::{Direction, Gate, Point, Trials};
use mdl_codec::quant::{Config, Metric};
use std::path::Path;

/// What a candidate came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The configuration in words.
    pub configuration: String,
    /// Bytes that storing the weights would take.
    pub bytes: u64,
    /// What the evaluator said; none: it was not asked, or could not say.
    pub measured: Option<f64>,
    /// Whether the evaluator was asked.
    pub evaluated: bool,
    /// Whether the gate lets it through.
    pub passes: bool,
    /// Largest deviation of a weight.
    pub max_abs: f64,
    /// Relative Euclidean deviation of all quantised weights.
    pub rel_l2: f64,
}

/// The court.
pub(crate) struct Court<'a> {
    pub maker: Maker<'a>,
    pub scratch: &'a Scratch,
    pub evaluator: &'a mut dyn Evaluator,
    pub direction: Direction,
    pub exact: f64,
    pub limit: f64,
    pub trials: Vec<(Choice, Trial)>,
    /// The candidate made last.
    pub made: Option<(Choice, Made)>,
}

/// A configuration in words.
pub(crate) fn describe(choice: &Choice) -> String {
    match choice {
        Choice::Lattice(knob) => format!("lattice, step 2^{}", f64::from(*knob) / 16.0),
        Choice::Bins(c, book) => {
            let mut text = format!("{} bins", c.bins);
            if c.embedding_bins != c.bins {
                text.push_str(&format!(" ({} in embeddings)", c.embedding_bins));
            }
            if c.prune > 0.0 {
                let metric = if c.metric == Metric::Magnitude {
                    "magnitude"
                } else {
                    "sensitivity"
                };
                text.push_str(&format!(", {} pruned by {metric}", c.prune));
            }
            if c.protect > 0.0 {
                text.push_str(&format!(", {} protected", c.protect));
            }
            match book {
                Book::Fresh => text.push_str(", fresh codebook"),
                Book::Warm => text.push_str(", parent's codebook moved along"),
                Book::Keep => text.push_str(", parent's codebook"),
            }
            text
        }
    }
}

impl<'a> Court<'a> {
    /// A court that lets nothing through until it is told what is exact and what may be lost.
    pub fn new(maker: Maker<'a>, scratch: &'a Scratch, evaluator: &'a mut dyn Evaluator) -> Court<'a> {
        Court {
            maker,
            scratch,
            evaluator,
            direction: Direction::LowerIsBetter,
            exact: f64::NAN,
            limit: f64::NAN,
            trials: Vec::new(),
            made: None,
        }
    }
}

impl Court<'_> {
    fn make(&mut self, choice: &Choice) -> Result<&Made> {
        if self.made.as_ref().is_none_or(|(c, _)| c != choice) {
            self.made = None;
            let made = self.maker.make(choice, self.scratch, "candidate")?;
            self.made = Some((*choice, made));
        }
        match &self.made {
            Some((_, made)) => Ok(made),
            None => Err(RepoError::user("no candidate was made", "")),
        }
    }

    fn find(&mut self, choice: &Choice) -> Result<usize> {
        if let Some(i) = self.trials.iter().position(|(c, _)| c == choice) {
            return Ok(i);
        }
        let made = self.make(choice)?;
        let error = made.errors.values().fold(super::Error::default(), |a, b| a.and(*b));
        let trial = Trial {
            configuration: describe(choice),
            bytes: made.bytes,
            measured: None,
            evaluated: false,
            passes: false,
            max_abs: error.max_abs,
            rel_l2: error.rel_l2(),
        };
        self.trials.push((*choice, trial));
        Ok(self.trials.len() - 1)
    }

    pub fn bytes(&mut self, choice: &Choice) -> Result<u64> {
        let i = self.find(choice)?;
        Ok(self.trials[i].1.bytes)
    }

    pub fn passes(&mut self, choice: &Choice) -> Result<bool> {
        let i = self.find(choice)?;
        if !self.trials[i].1.evaluated {
            let dir = self.make(choice)?.dir.clone();
            let measured = self.evaluator.evaluate(Path::new(&dir)).filter(|m| m.is_finite());
            let passes = measured.is_some_and(|m| Gate::passes(m, self.limit, self.direction));
            let trial = &mut self.trials[i].1;
            (trial.evaluated, trial.measured, trial.passes) = (true, measured, passes);
        }
        Ok(self.trials[i].1.passes)
    }

    /// What of the allowance a candidate that was judged uses up.
    pub fn used(&self, choice: &Choice) -> f64 {
        let found = self
            .trials
            .iter()
            .find(|(c, _)| c == choice)
            .and_then(|(_, t)| t.measured);
        found.map_or(f64::INFINITY, |m| Gate::used(m, self.exact, self.limit))
    }

    /// The candidate, made once more if another was made since.
    pub fn take(&mut self, choice: &Choice) -> Result<Made> {
        self.make(choice)?;
        match self.made.take() {
            Some((_, made)) => Ok(made),
            None => Err(RepoError::user("no candidate was made", "")),
        }
    }
}

/// The lattice's knob as rungs: rung r is a step of 2^(-r * grid / 16).
pub(crate) struct Steps<'c, 'a> {
    pub court: &'c mut Court<'a>,
    pub grid: i32,
}

impl Steps<'_, '_> {
    pub fn choice(&self, rung: i32) -> Choice {
        Choice::Lattice(-rung * self.grid)
    }
}

impl Trials<i32> for Steps<'_, '_> {
    type Error = RepoError;

    fn bytes(&mut self, key: &i32) -> Result<u64> {
        let choice = self.choice(*key);
        self.court.bytes(&choice)
    }

    fn passes(&mut self, key: &i32) -> Result<bool> {
        let choice = self.choice(*key);
        self.court.passes(&choice)
    }
}

/// Numbers of bins as rungs; on each the codebooks that the policy names, smallest candidate first.
pub(crate) struct Rungs<'c, 'a> {
    pub court: &'c mut Court<'a>,
    pub policy: &'c BinsPolicy,
    /// The last choice that passed.
    pub passed: Option<Choice>,
}

impl Rungs<'_, '_> {
    fn config(&self, rung: i32) -> Config {
        let place = |list: &[u16]| list[(rung.max(0) as usize).min(list.len() - 1)];
        let bins = place(&self.policy.bins);
        Config {
            bins,
            embedding_bins: self.policy.embedding_bins.as_deref().map_or(bins, place),
            prune: self.policy.prune[0],
            protect: self.policy.protect[0],
            metric: self.policy.metrics()[0],
        }
    }

    /// The choices of a rung, smallest first.
    fn choices(&mut self, rung: i32) -> Result<Vec<(u64, Choice)>> {
        let config = self.config(rung);
        let parent = self.court.maker.shelves.has_parent_of(&config);
        let mut books: Vec<Book> = self.policy.codebooks.clone();
        books.retain(|b| parent || *b == Book::Fresh);
        if books.is_empty() {
            books.push(Book::Fresh);
        }
        let sized = |b: Book| {
            let choice = Choice::Bins(config, b);
            Ok((self.court.bytes(&choice)?, choice))
        };
        let mut all = books.into_iter().map(sized).collect::<Result<Vec<_>>>()?;
        all.sort_by_key(|(bytes, _)| *bytes);
        Ok(all)
    }
}

impl Trials<i32> for Rungs<'_, '_> {
    type Error = RepoError;

    fn bytes(&mut self, key: &i32) -> Result<u64> {
        Ok(self.choices(*key)?.first().map_or(u64::MAX, |c| c.0))
    }

    fn passes(&mut self, key: &i32) -> Result<bool> {
        for (_, choice) in self.choices(*key)? {
            if self.court.passes(&choice)? {
                self.passed = Some(choice);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The paper's cube under one metric: bins, pruning, protection, and bins of embeddings.
pub(crate) struct Points<'c, 'a> {
    pub court: &'c mut Court<'a>,
    pub policy: &'c BinsPolicy,
    pub metric: Metric,
}

impl Points<'_, '_> {
    pub fn places(policy: &BinsPolicy) -> [usize; 4] {
        let embeddings = policy.embedding_bins.as_ref().map_or(1, Vec::len);
        [policy.bins.len(), policy.prune.len(), policy.protect.len(), embeddings]
    }

    pub fn choice(&self, point: &Point) -> Choice {
        let place = |axis: usize, len: usize| point.get(axis).copied().unwrap_or(0).min(len - 1);
        let p = self.policy;
        let bins = p.bins[place(0, p.bins.len())];
        let config = Config {
            bins,
            embedding_bins: p.embedding_bins.as_ref().map_or(bins, |e| e[place(3, e.len())]),
            prune: p.prune[place(1, p.prune.len())],
            protect: p.protect[place(2, p.protect.len())],
            metric: self.metric,
        };
        Choice::Bins(config, Book::Fresh)
    }
}

impl Trials<Point> for Points<'_, '_> {
    type Error = RepoError;

    fn bytes(&mut self, key: &Point) -> Result<u64> {
        let choice = self.choice(key);
        self.court.bytes(&choice)
    }

    fn passes(&mut self, key: &Point) -> Result<bool> {
        let choice = self.choice(key);
        self.court.passes(&choice)
    }
}
