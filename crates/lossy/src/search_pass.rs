//! One search pass over what is known of candidates.
//!
//! A pass sees only what it asked itself, so it goes alike whether candidates were measured one by one or, on a guess,
//! ahead of it.

use crate::{
    make::Choice,
    trials::{Trial, TrialTable},
};
use mdl_codec::quant::{
    Config,
    search::{Gate, Guess},
};
use mdl_store::RepoError;

/// Why a pass ends early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It is not known yet whether this candidate passes.
    Unknown(Choice),
    /// On a guess, more candidates would have to be made than that is worth.
    Far,
    Failed(RepoError),
}

impl From<RepoError> for Halt {
    fn from(e: RepoError) -> Halt {
        Halt::Failed(e)
    }
}

/// A pass.
pub(crate) struct SearchPass<'c, 'a> {
    table: &'c mut TrialTable<'a>,
    guesses: &'c [(Choice, Guess)],
    /// What the pass asked for, in order, and whether it asked for a verdict.
    asked: Vec<(Choice, bool)>,
}

impl<'c, 'a> SearchPass<'c, 'a> {
    /// A pass on what is known; with guesses, one that is only to show what would be asked next.
    pub fn new(table: &'c mut TrialTable<'a>, guesses: &'c [(Choice, Guess)]) -> SearchPass<'c, 'a> {
        SearchPass { table, guesses, asked: Vec::new() }
    }

    fn note(&mut self, choice: &Choice, verdict: bool) {
        match self.asked.iter_mut().find(|(c, _)| c == choice) {
            Some((_, asked)) => *asked |= verdict,
            None => self.asked.push((*choice, verdict)),
        }
    }

    fn measured(&self, choice: &Choice) -> Option<&Trial> {
        self.table.trial(choice).filter(|t| t.evaluated)
    }

    fn guess(&self, choice: &Choice) -> Option<Guess> {
        self.guesses.iter().find(|(c, _)| c == choice).map(|g| g.1)
    }

    /// Bytes that storing the candidate takes; it is made if it never was.
    pub fn bytes(&mut self, choice: &Choice) -> Result<u64, Halt> {
        self.note(choice, false);
        if let Some(trial) = self.table.trial(choice) {
            return Ok(trial.bytes);
        }
        if !self.guesses.is_empty() && !self.table.may_make_ahead() {
            return Err(Halt::Far);
        }
        Ok(self.table.bytes(choice)?)
    }

    /// Whether the gate lets the candidate through.
    pub fn passes(&mut self, choice: &Choice) -> Result<bool, Halt> {
        self.note(choice, true);
        match (self.measured(choice), self.guess(choice)) {
            (Some(trial), _) => Ok(trial.passes),
            (None, Some(guess)) => Ok(guess != Guess::Fails),
            (None, None) => Err(Halt::Unknown(*choice)),
        }
    }

    /// The part of the allowance used up by a candidate that this pass had judged.
    pub fn used(&self, choice: &Choice) -> f64 {
        if !self.asked.iter().any(|(c, verdict)| c == choice && *verdict) {
            return f64::INFINITY;
        }
        match (self.measured(choice), self.guess(choice)) {
            (Some(Trial { measured: Some(m), .. }), _) => Gate::used(*m, self.table.exact, self.table.limit),
            (None, Some(Guess::Easily)) => 0.0,
            (None, Some(Guess::Barely)) => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// Whether the parent's codebooks have as many bins as the configuration wants.
    pub fn parent_has(&self, config: &Config) -> bool {
        self.table.maker.bin_tables.has_parent_of(config)
    }

    /// The trials that this pass asked for, in order, then those that were measured ahead and not asked for.
    pub fn trials(&self) -> Vec<Trial> {
        let asked = self.asked.iter().filter_map(|(choice, verdict)| {
            let trial = self.table.trial(choice)?;
            Some(match verdict {
                true => trial.clone(),
                false => trial.unjudged(),
            })
        });
        let judged = |choice: &Choice| self.asked.iter().any(|(c, verdict)| c == choice && *verdict);
        let ahead = self.table.known().filter(|(c, t)| t.evaluated && !judged(c));
        let ahead = ahead.map(|(_, t)| Trial { ahead: true, ..t.clone() });
        asked.chain(ahead).collect()
    }
}
