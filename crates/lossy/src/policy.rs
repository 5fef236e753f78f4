//! Policies: what a lossy commit may try, and what it must keep.
//!
//! A policy is a small TOML text; docs/policies.md explains every key. Its exact text is kept with every commit that
//! was made under it.

use crate::{
    bounds::Bounds,
    policy_toml::{BinsPolicy, Family, Fixed, KeepExact, LatticePolicy, Moments, RuleText, Text},
};
use globset::{GlobBuilder, GlobMatcher};
use mdl_codec::quant::{Config, Role, search::Gate};
use mdl_store::{RepoError, Result};

/// The default policy.
pub const DEFAULT: &str = "lossy";

/// Policies that every repository has: name, what it is, text.
pub const BUILT_IN: [(&str, &str, &str); 5] = [
    ("lossless", "every bit is kept", "try = []\n"),
    (
        "lossy",
        "lattice and bins, whichever is smaller; a quarter of an interval's progress may be lost",
        "try = [\"lattice\", \"bins\"]\n\n[gate]\nprogress = 0.25\n\n[optimizer]\nmoments = \"exact\"\n",
    ),
    ("lattice", "the lattice only", "try = [\"lattice\"]\n\n[gate]\nprogress = 0.25\n"),
    (
        "bins",
        "exact 1-D clusters only, within 15 % of each row; too coarse to be held to what training moved",
        "try = [\"bins\"]\n\n[gate]\nprogress = 0.25\n\n[bounds]\nupdate = inf\nfirst = inf\n",
    ),
    (
        "paper",
        "Inshrinkerator's pipeline: Table 9's space, guided exhaustive search, 5 % of the measured number may be lost",
        "try = [\"bins\"]\n\n[gate]\nepsilon = 0.05\n\n[bounds]\nweight = 1.0\nupdate = inf\nfirst = inf\n\n[bins]\nsearch = \"cube\"\nbins = [4, 6, 8, 12, 16, 32]\n\
         embedding_bins = [16, 32]\nprune = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]\nprotect = [0.0005, 0.005, 0.01]\n\
         metrics = [\"magnitude\", \"sensitivity\"]\ncodebooks = [\"fresh\"]\n",
    ),
];

/// The effect of a rule on the tensors it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every bit is kept.
    Exact,
    /// This is what the tensor is.
    Role(Role),
}

#[derive(Clone, Debug)]
struct Rule {
    glob: GlobMatcher,
    verdict: Verdict,
}

/// A policy, checked.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name, or its file's.
    pub name: String,
    /// Its text, as it was given.
    pub text: String,
    /// What to try; nothing keeps every bit.
    pub families: Vec<Family>,
    /// What may be lost.
    pub gate: Gate,
    /// What may be lost of a tensor or a row, whatever the gate says.
    pub bounds: Bounds,
    /// Which versions are stored exactly as well.
    pub keep: KeepExact,
    /// The lattice.
    pub lattice: LatticePolicy,
    /// The bins.
    pub bins: BinsPolicy,
    /// Optimizer moments.
    pub moments: Moments,
    /// The fixed configuration, for commits without an evaluator.
    pub fixed: Option<Fixed>,
    /// Longest delta chain of a tensor; where the repository's `delta.max_depth` is larger, that.
    pub max_depth: u8,
    rules: Vec<Rule>,
}

fn bad(name: &str, why: impl std::fmt::Display) -> RepoError {
    RepoError::user(
        format!("policy {name}: {why}"),
        "docs/policies.md says what a policy may hold; a test of the policy checks it",
    )
}

impl Policy {
    /// Reads a policy's text.
    ///
    /// # Errors
    /// No TOML, unknown keys, numbers out of range.
    pub fn parse(name: &str, text: &str) -> Result<Policy> {
        let parsed: Text = toml::from_str(text).map_err(|e| bad(name, e.to_string().trim_end()))?;
        let gate = match (parsed.gate.progress, parsed.gate.epsilon) {
            (Some(_), Some(_)) => return Err(bad(name, "gate: progress or epsilon, not both")),
            (None, Some(epsilon)) => Gate::Epsilon(epsilon),
            (rho, None) => Gate::Progress(rho.unwrap_or(0.25)),
        };
        let rules = parsed.tensor.iter().map(|r| rule(name, r)).collect::<Result<_>>()?;
        let policy = Policy {
            name: name.to_owned(),
            text: text.to_owned(),
            families: parsed.families,
            gate,
            bounds: parsed.bounds,
            keep: parsed.keep,
            lattice: parsed.lattice,
            bins: parsed.bins,
            moments: parsed.optimizer.moments,
            fixed: parsed.fixed,
            max_depth: parsed.max_depth.min(250),
            rules,
        };
        policy.check()?;
        Ok(policy)
    }

    fn check(&self) -> Result<()> {
        let fail = |why: &str| Err(bad(&self.name, why));
        let (Gate::Progress(part) | Gate::Epsilon(part)) = self.gate;
        if !(0.0..=1e6).contains(&part) {
            return fail("gate: a fraction from 0 up is wanted");
        }
        if !self.bounds.are_valid() {
            return fail("bounds: numbers from 0 up are wanted, `inf` for none");
        }
        if self.keep.exact_best.as_ref().is_some_and(|best| best.n == 0 || best.metric.is_empty()) {
            return fail("keep.exact_best: a metric and a number above 0 are wanted");
        }
        if !(1..=64).contains(&self.lattice.grid) {
            return fail("lattice.grid must be 1 to 64 sixteenths of an octave");
        }
        let b = &self.bins;
        let lists = [b.bins.len(), b.prune.len(), b.protect.len(), b.metrics.len(), b.codebooks.len()];
        if lists.contains(&0) || b.embedding_bins.as_ref().is_some_and(Vec::is_empty) {
            return fail("bins: a list is empty");
        }
        if b.metrics.iter().any(|m| !["magnitude", "sensitivity"].contains(&m.as_str())) {
            return fail("bins.metrics: magnitude and sensitivity are known");
        }
        if !b.bins.is_sorted() || !b.embedding_bins.as_ref().is_none_or(|e| e.is_sorted()) {
            return fail("bins: numbers of bins go from coarse to fine");
        }
        if !b.protect.is_sorted() || !b.prune.is_sorted_by(|a, b| a >= b) {
            return fail("bins: prune goes from most to least, protect from least to most");
        }
        for &bins in b.bins.iter().chain(b.embedding_bins.iter().flatten()) {
            let config = Config { bins, embedding_bins: bins, ..Config::default() };
            config.check().map_err(|e| bad(&self.name, e))?;
        }
        let config = |prune: f64, protect: f64| Config { prune, protect, ..Config::default() };
        for (&prune, &protect) in b.prune.iter().zip(b.protect.iter().cycle()) {
            config(prune, protect).check().map_err(|e| bad(&self.name, e))?;
        }
        for &protect in &b.protect {
            config(0.0, protect).check().map_err(|e| bad(&self.name, e))?;
        }
        match self.fixed {
            Some(f) if f.step.is_some_and(|s| s.is_nan() || s.abs() > 64.0) => {
                fail("fixed: `step` is the log2 of a step relative to the weights' deviation, within 64")
            }
            Some(f) if f.family == Family::Lattice && f.step.is_none() && self.bounds.are_open() => {
                fail("fixed: a lattice needs `step`, or bounds that give it")
            }
            Some(f) => f.config().check().map_err(|e| bad(&self.name, e)),
            None => Ok(()),
        }
    }

    /// The treatment by the first rule that matches a tensor, by its name or by `FILE:NAME`.
    pub fn verdict(&self, path: &str, name: &str) -> Option<Verdict> {
        let full = format!("{path}:{name}");
        let found = self.rules.iter().find(|r| r.glob.is_match(name) || r.glob.is_match(&full));
        found.map(|r| r.verdict)
    }

    /// Whether every bit is kept.
    pub fn is_lossless(&self) -> bool {
        self.families.is_empty() && self.moments == Moments::Exact
    }
}

fn rule(name: &str, text: &RuleText) -> Result<Rule> {
    let glob = GlobBuilder::new(&text.pattern).build().map_err(|e| bad(name, e))?;
    let verdict = match (&text.role, text.exact) {
        (None, true) => Verdict::Exact,
        (Some(role), false) => match Role::from_name(role) {
            Some(role) => Verdict::Role(role),
            None => return Err(bad(name, format!("no role is named {role:?}"))),
        },
        _ => return Err(bad(name, "a [[tensor]] rule has `role` or `exact = true`")),
    };
    Ok(Rule { glob: glob.compile_matcher(), verdict })
}

#[cfg(test)]
mod tests {
    use super::{super::policy_toml::BinsSearch, *};

    #[test]
    fn what_is_built_in_is_sound() {
        for (name, _, text) in BUILT_IN {
            let policy = Policy::parse(name, text).expect(name);
            assert_eq!(policy.is_lossless(), name == "lossless");
        }
        let paper = Policy::parse("paper", BUILT_IN[4].2).expect("paper");
        assert_eq!((paper.gate, paper.bins.search), (Gate::Epsilon(0.05), BinsSearch::Cube));
    }

    #[test]
    fn rules_go_by_name_or_file_and_name() {
        let text = "try = [\"bins\"]\n[[tensor]]\nmatch = \"*.head.*\"\nexact = true\n\
                    [[tensor]]\nmatch = \"ema.safetensors:*\"\nrole = \"linear\"\n";
        let policy = Policy::parse("p", text).expect("a policy");
        assert_eq!(policy.verdict("m.safetensors", "x.head.weight"), Some(Verdict::Exact));
        assert_eq!(policy.verdict("ema.safetensors", "w"), Some(Verdict::Role(Role::Linear)));
        assert_eq!(policy.verdict("m.safetensors", "w"), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "try = [\"lattices\"]",
            "try = []\nx = 1",
            "try = []\n[gate]\nprogress = 0.1\nepsilon = 0.1",
            "try = []\n[gate]\nprogress = -1.0",
            "try = []\n[bins]\nbins = []",
            "try = []\n[bins]\nbins = [8, 4]",
            "try = []\n[bins]\nbins = [0]",
            "try = []\n[bins]\nprotect = [2.0]",
            "try = []\n[bins]\nmetrics = [\"size\"]",
            "try = []\n[fixed]\nfamily = \"lattice\"\nstep = 65.0",
            "try = []\n[fixed]\nfamily = \"lattice\"\n[bounds]\nweight = inf\nupdate = inf\nfirst = inf",
            "try = []\n[bounds]\nweight = -0.1",
            "try = []\n[bounds]\nupdate = nan",
            "try = []\n[[tensor]]\nmatch = \"[\"\nexact = true",
            "try = []\n[[tensor]]\nmatch = \"a\"\nrole = \"nose\"",
        ] {
            assert!(Policy::parse("p", text).is_err(), "{text}");
        }
    }
}
