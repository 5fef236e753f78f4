//! Maps search parameters to choices: the lattice's step (`Steps`), numbers of bins (`BinLevels`), the paper's cube
//! (`Points`).

use crate::{
    make::Choice,
    policy_toml::{BinsPolicy, Book},
    search_pass::{Halt, SearchPass},
};
use mdl_codec::quant::{
    Config, Metric,
    search::{Point, Trials},
};

type Result<T> = std::result::Result<T, Halt>;

/// The lattice's parameter as levels: level r is a step of 2^(-r * grid / 16).
pub(crate) struct Steps<'h, 'c, 'a> {
    pub pass: &'h mut SearchPass<'c, 'a>,
    pub grid: i32,
    /// The last choice that passed.
    pub passed: Option<Choice>,
}

impl Steps<'_, '_, '_> {
    pub fn choice(&self, level: i32) -> Choice {
        Choice::Lattice(-level * self.grid)
    }
}

impl Trials<i32> for Steps<'_, '_, '_> {
    type Error = Halt;

    fn bytes(&mut self, key: &i32) -> Result<u64> {
        let choice = self.choice(*key);
        self.pass.bytes(&choice)
    }

    fn passes(&mut self, key: &i32) -> Result<bool> {
        let choice = self.choice(*key);
        let passes = self.pass.passes(&choice)?;
        if passes {
            self.passed = Some(choice);
        }
        Ok(passes)
    }
}

/// Numbers of bins as levels; on each the codebooks that the policy names, smallest candidate first.
pub(crate) struct BinLevels<'h, 'c, 'a> {
    pub pass: &'h mut SearchPass<'c, 'a>,
    pub policy: &'h BinsPolicy,
    /// The last choice that passed.
    pub passed: Option<Choice>,
}

impl BinLevels<'_, '_, '_> {
    fn config(&self, level: i32) -> Config {
        let place = |list: &[u16]| list[(level.max(0) as usize).min(list.len() - 1)];
        let bins = place(&self.policy.bins);
        Config {
            bins,
            embedding_bins: self.policy.embedding_bins.as_deref().map_or(bins, place),
            prune: self.policy.prune[0],
            protect: self.policy.protect[0],
            metric: self.policy.metrics()[0],
        }
    }

    /// The choices of a level, smallest first.
    fn choices(&mut self, level: i32) -> Result<Vec<(u64, Choice)>> {
        let config = self.config(level);
        let parent = self.pass.parent_has(&config);
        let mut books: Vec<Book> = self.policy.codebooks.clone();
        books.retain(|b| parent || *b == Book::Fresh);
        if books.is_empty() {
            books.push(Book::Fresh);
        }
        let sized = |b: Book| {
            let choice = Choice::Bins(config, b);
            Ok((self.pass.bytes(&choice)?, choice))
        };
        let mut all = books.into_iter().map(sized).collect::<Result<Vec<_>>>()?;
        all.sort_by_key(|(bytes, _)| *bytes);
        Ok(all)
    }
}

impl Trials<i32> for BinLevels<'_, '_, '_> {
    type Error = Halt;

    fn bytes(&mut self, key: &i32) -> Result<u64> {
        Ok(self.choices(*key)?.first().map_or(u64::MAX, |c| c.0))
    }

    fn passes(&mut self, key: &i32) -> Result<bool> {
        for (_, choice) in self.choices(*key)? {
            if self.pass.passes(&choice)? {
                self.passed = Some(choice);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The paper's cube under one metric: bins, pruning, protection, and bins of embeddings.
pub(crate) struct Points<'h, 'c, 'a> {
    pub pass: &'h mut SearchPass<'c, 'a>,
    pub policy: &'h BinsPolicy,
    pub metric: Metric,
}

impl Points<'_, '_, '_> {
    pub fn places(policy: &BinsPolicy) -> [usize; 4] {
        let embeddings = policy.embedding_bins.as_ref().map_or(1, Vec::len);
        [policy.bins.len(), policy.prune.len(), policy.protect.len(), embeddings]
    }

    pub fn choice(&self, point: &Point) -> Choice {
        let place = |axis: usize, len: usize| point.get(axis).copied().unwrap_or(0).min(len - 1);
        let p = self.policy;
        let bins = p.bins[place(0, p.bins.len())];
        let prune = p.prune[place(1, p.prune.len())];
        let config = Config {
            bins,
            embedding_bins: p.embedding_bins.as_ref().map_or(bins, |e| e[place(3, e.len())]),
            prune,
            protect: p.protect[place(2, p.protect.len())],
            // Where nothing is pruned both metrics make the same candidate.
            metric: if prune > 0.0 { self.metric } else { Metric::Magnitude },
        };
        Choice::Bins(config, Book::Fresh)
    }
}

impl Trials<Point> for Points<'_, '_, '_> {
    type Error = Halt;

    fn bytes(&mut self, key: &Point) -> Result<u64> {
        let choice = self.choice(key);
        self.pass.bytes(&choice)
    }

    fn passes(&mut self, key: &Point) -> Result<bool> {
        let choice = self.choice(key);
        self.pass.passes(&choice)
    }
}
