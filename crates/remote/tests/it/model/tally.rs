//! Counts what a random history did, step by step, for the report at its end.

use std::collections::BTreeMap;

/// How often what was done, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    /// By verb: done, refused, cut short by trouble.
    pub verbs: BTreeMap<&'static str, [u64; 3]>,
    pub faults: BTreeMap<String, u64>,
    pub writes: u64,
    pub restored: u64,
    pub checks: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        for (verb, n) in &other.verbs {
            let sum = self.verbs.entry(verb).or_default();
            (0..3).for_each(|i| sum[i] += n[i]);
        }
        for (fault, n) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += n;
        }
        self.writes += other.writes;
        self.restored += other.restored;
        self.checks += other.checks;
    }
}
