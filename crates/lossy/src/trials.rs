//! Trials of candidates: each is made, sized and judged once, several side by side where the evaluator can.

use crate::{
    Evaluator,
    bounds::rows::RowErrors,
    candidate::Scratch,
    make::{Choice, Keep, Made, Maker, ReplacedTensor},
    policy_toml::Book,
    search_pass::{Halt, SearchPass},
};
use mdl_codec::quant::{
    Metric,
    search::{Direction, Gate, ahead},
};
use mdl_store::Result;
use std::path::Path;

/// Candidates made on a guess, only for their size, for each that the evaluator measures side by side.
const MADE_AHEAD: usize = 4;

/// The outcome for a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The configuration in words.
    pub configuration: String,
    /// Bytes that storing the weights would take.
    pub bytes: u64,
    /// The evaluator's number; none: it was not asked, or could not say.
    pub measured: Option<f64>,
    /// Whether the evaluator was asked.
    pub evaluated: bool,
    /// Whether the gate lets it through.
    pub passes: bool,
    /// Whether it was measured ahead on a guess, and the search never asked for it.
    pub ahead: bool,
    /// Largest deviation of a weight.
    pub max_abs: f64,
    /// Relative Euclidean deviation of all quantised weights.
    pub rel_l2: f64,
    /// The same relative to the update of the tensors; none where that is unknown.
    pub update_error: Option<f64>,
    /// Largest error of a row, relative to the row.
    pub worst_row: f64,
    /// Largest error of a row relative to its update; none where none is known.
    pub worst_row_update: Option<f64>,
    /// Weights that are exact because of a bound.
    pub exact_tensors: u64,
    /// Rows of other weights that are.
    pub exact_rows: u64,
    /// Rows whose update could not be seen beside the parent's error.
    pub hidden_rows: u64,
    /// Weights that are replaced; without any there is nothing to measure, and nothing passes.
    pub replaced: u64,
}

impl Trial {
    /// The same for a caller that asked for no verdict.
    pub(crate) fn unjudged(&self) -> Trial {
        Trial { measured: None, evaluated: false, passes: false, ..self.clone() }
    }
}

/// The table of trials: every candidate made so far, and its verdict.
pub(crate) struct TrialTable<'a> {
    pub maker: Maker<'a>,
    pub exact: f64,
    pub limit: f64,
    pub direction: Direction,
    scratch: &'a Scratch,
    evaluator: &'a mut dyn Evaluator,
    /// All that were ever made.
    trials: Vec<(Choice, Trial)>,
    /// Those whose directories or tensors are there, the oldest first: at most as many as are measured side by side.
    there: Vec<Standing>,
    /// Candidates to be measured next: they stay there.
    wanted: Vec<Choice>,
    /// How many may still be made on a guess.
    to_spare: usize,
    /// What every candidate replaces beside weights, once a candidate was measured by its tensors.
    moments: Option<Vec<ReplacedTensor>>,
}

/// A candidate in its directory, or in memory.
struct Standing {
    choice: Choice,
    place: usize,
    made: Made,
}

/// A configuration in words.
pub(crate) fn describe(choice: &Choice) -> String {
    match choice {
        Choice::Lattice(sixteenths) => format!("lattice, step 2^{}", f64::from(*sixteenths) / 16.0),
        Choice::Bins(c, book) => {
            let mut text = format!("{} bins", c.bins);
            if c.embedding_bins != c.bins {
                text.push_str(&format!(" ({} in embeddings)", c.embedding_bins));
            }
            if c.prune > 0.0 {
                let metric = if c.metric == Metric::Magnitude { "magnitude" } else { "sensitivity" };
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

impl<'a> TrialTable<'a> {
    /// A table that passes no candidate until it is told what is exact and what may be lost.
    pub fn new(maker: Maker<'a>, scratch: &'a Scratch, evaluator: &'a mut dyn Evaluator) -> TrialTable<'a> {
        TrialTable {
            maker,
            exact: f64::NAN,
            limit: f64::NAN,
            direction: Direction::LowerIsBetter,
            scratch,
            evaluator,
            trials: Vec::new(),
            there: Vec::new(),
            wanted: Vec::new(),
            to_spare: 0,
            moments: None,
        }
    }

    /// Measures the candidates that the search asks for, and beside them those it may ask for next. `walk` is the
    /// search.
    pub fn round<T>(
        &mut self,
        first: Choice,
        walk: impl Fn(&mut SearchPass<'_, 'a>) -> std::result::Result<T, Halt>,
    ) -> Result<()> {
        let width = self.width();
        self.wanted = vec![first];
        self.to_spare = if width > 1 { width * MADE_AHEAD } else { 0 };
        let batch = ahead(first, width, |guesses| {
            // An error of a guess is not the search's, which may never get there.
            let Err(Halt::Unknown(next)) = walk(&mut SearchPass::new(self, guesses)) else {
                return None;
            };
            if !self.wanted.contains(&next) {
                self.wanted.push(next);
            }
            Some(next)
        });
        self.measure(batch)
    }
}

impl TrialTable<'_> {
    fn width(&self) -> usize {
        self.evaluator.width().max(1)
    }

    /// The trial of a candidate, if there is one.
    pub fn trial(&self, choice: &Choice) -> Option<&Trial> {
        self.trials.iter().find(|(c, _)| c == choice).map(|(_, t)| t)
    }

    /// All trials.
    pub fn known(&self) -> impl Iterator<Item = &(Choice, Trial)> {
        self.trials.iter()
    }

    /// Whether one more may be made on a guess.
    pub fn may_make_ahead(&mut self) -> bool {
        let may = self.to_spare > 0;
        self.to_spare = self.to_spare.saturating_sub(1);
        may
    }

    /// The candidate, made if it is not there: its place in `there`.
    fn make(&mut self, choice: &Choice) -> Result<usize> {
        if let Some(i) = self.there.iter().position(|s| s.choice == *choice) {
            return Ok(i);
        }
        let place = self.vacate();
        let name = format!("candidate-{place}");
        let keep = match self.evaluator.takes_tensors() {
            true => Keep::Memory,
            false => Keep::Files(self.scratch, &name),
        };
        let made = self.maker.make(choice, keep)?;
        if self.trial(choice).is_none() {
            self.trials.push((*choice, unmeasured(choice, &made)));
        }
        self.there.push(Standing { choice: *choice, place, made });
        Ok(self.there.len() - 1)
    }

    /// A place for one more; where all are taken, that of the oldest that is not wanted.
    fn vacate(&mut self) -> usize {
        let width = self.width();
        let free = (0..width).find(|place| self.there.iter().all(|s| s.place != *place));
        free.unwrap_or_else(|| {
            let idle = self.there.iter().position(|s| !self.wanted.contains(&s.choice));
            self.there.remove(idle.unwrap_or(0)).place
        })
    }

    pub fn bytes(&mut self, choice: &Choice) -> Result<u64> {
        match self.trial(choice) {
            Some(trial) => Ok(trial.bytes),
            None => self.make(choice).map(|i| self.there[i].made.bytes),
        }
    }

    /// Measures candidates side by side, at most as many as have a place.
    fn measure(&mut self, batch: Vec<Choice>) -> Result<()> {
        self.wanted = batch;
        for (i, choice) in self.wanted.clone().iter().enumerate() {
            match self.make(choice) {
                // The others were made ahead, and the search has not asked for them yet.
                Err(e) if i == 0 => return Err(e),
                _ => {}
            }
        }
        let wanted = self.wanted.iter();
        let shown = wanted.filter_map(|c| self.there.iter().find(|s| s.choice == *c));
        let (shown, empty): (Vec<&Standing>, Vec<&Standing>) = shown.partition(|s| !s.made.errors.is_empty());
        for standing in empty {
            // Every weight is exact: what it is worth is known.
            if let Some((_, t)) = self.trials.iter_mut().find(|(c, _)| *c == standing.choice) {
                t.evaluated = true;
            }
        }
        if shown.is_empty() {
            return Ok(());
        }
        let numbers = if self.evaluator.takes_tensors() {
            if self.moments.is_none() {
                self.moments = Some(self.maker.setting.replaced_moments()?);
            }
            let moments = self.moments.as_deref().unwrap_or_default();
            let candidates: Vec<_> = shown.iter().map(|s| s.made.replaced(moments)).collect();
            self.evaluator.evaluate_tensors(&candidates)
        } else {
            let dirs: Vec<&Path> = shown.iter().map(|s| s.made.dir.as_path()).collect();
            self.evaluator.evaluate_all(&dirs)
        };
        let numbers = numbers.into_iter().chain(std::iter::repeat(None));
        for (standing, number) in shown.into_iter().zip(numbers) {
            let measured = number.filter(|m| m.is_finite());
            let passes = measured.is_some_and(|m| Gate::passes(m, self.limit, self.direction));
            if let Some((_, t)) = self.trials.iter_mut().find(|(c, _)| *c == standing.choice) {
                (t.evaluated, t.measured, t.passes) = (true, measured, passes);
            }
        }
        Ok(())
    }

    /// The candidate with its files, made once more if it is gone.
    pub fn take(&mut self, choice: &Choice) -> Result<Made> {
        let i = self.make(choice)?;
        let mut made = self.there.remove(i).made;
        if self.evaluator.takes_tensors() {
            // The others are of no more use, and need not be in memory beside the files that are written.
            self.there.clear();
            self.maker.setting.write(&mut made, self.scratch, "chosen")?;
        }
        Ok(made)
    }
}

fn unmeasured(choice: &Choice, made: &Made) -> Trial {
    let error = made.errors.values().fold(RowErrors::default(), |a, b| a.and(*b));
    Trial {
        configuration: describe(choice),
        bytes: made.bytes,
        measured: None,
        evaluated: false,
        passes: false,
        ahead: false,
        max_abs: error.all.max_abs,
        rel_l2: error.all.rel_l2(),
        update_error: error.of_update(),
        worst_row: error.worst_row.sqrt(),
        worst_row_update: error.worst_update.map(f64::sqrt),
        exact_tensors: made.bounded.len() as u64,
        exact_rows: error.exact_rows,
        hidden_rows: error.hidden_rows,
        replaced: made.errors.len() as u64,
    }
}
