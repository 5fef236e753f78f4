//! Recipes: how a merge's weights were made of its parents', recorded with the commit, so that it can be made again.

use mdl_merge::Strategy;
use mdl_objects::Commit;
use mdl_store::{RepoError, Result};
use serde::{Deserialize, Serialize};

/// Key of the commit's metadata that has the recipe as JSON (docs/format.md, "Merges").
pub const RECIPE_KEY: &str = "mdl.merge";
/// The only version of recipes there is.
const VERSION: u32 = 1;

/// One of the versions, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The first version: that of the present branch.
    Ours,
    /// The other one, of two.
    Theirs,
}

/// What becomes of tensors or files that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Rule {
    /// They are those of one version.
    Side(Side),
    /// They are computed.
    Weights(Strategy),
}

impl Rule {
    /// Its name for people: `ties`, `ours`.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Side(Side::Ours) => "ours",
            Rule::Side(Side::Theirs) => "theirs",
            Rule::Weights(strategy) => strategy.method.name(),
        }
    }

    /// The rule for so many versions with nothing left to defaults.
    pub(crate) fn resolved(&self, versions: usize) -> Result<Rule> {
        match self {
            Rule::Side(Side::Theirs) if versions != 2 => Err(RepoError::user(
                format!("of {versions} versions it is not clear whose \"theirs\" is"),
                "merge one other version at a time, or compute with all",
            )),
            Rule::Side(side) => Ok(Rule::Side(*side)),
            Rule::Weights(strategy) => strategy.resolved(versions).map(Rule::Weights).map_err(refused),
        }
    }

    pub(crate) fn needs_base(&self) -> bool {
        matches!(self, Rule::Weights(strategy) if strategy.method.needs_base())
    }
}

/// A strategy that cannot be followed.
pub(crate) fn refused(why: mdl_merge::MergeError) -> RepoError {
    RepoError::user(why.to_string(), "change the strategy or its parameters")
}

/// A rule for files by their paths, or for tensors by their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The glob (`*` stops at `/`).
    pub glob: String,
    /// What holds for what it matches.
    pub rule: Rule,
}

/// What kind of soup it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum SoupKind {
    /// The average.
    Uniform,
    /// Exponential moving average: what was before counts `decay`, each newer version the rest.
    Ema {
        /// From 0 to 1, both excluded.
        decay: f64,
    },
    /// The average of those that an evaluator found good together.
    Greedy,
}

/// How a version was made of its parents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Version of the recipe's format: 1.
    pub version: u32,
    /// What becomes of tensors that differ.
    pub strategy: Rule,
    /// Places, among the commit's parents, of the versions that it was made of, in their order. The first is "ours".
    pub inputs: Vec<usize>,
    /// Id of the common ancestor; none: there is none, or nothing was compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Other rules for some files or tensors; the first that matches counts.
    #[serde(default, rename = "for", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// Whether state of the optimizer was computed as weights are; else it is ours.
    #[serde(default, skip_serializing_if = "is_false")]
    pub with_state: bool,
    /// Of a soup: its kind. Files that are no weights are ours then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soup: Option<SoupKind>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Recipe {
    pub(crate) fn new(strategy: Rule, inputs: Vec<usize>) -> Recipe {
        let (base, overrides, with_state, soup) = (None, Vec::new(), false, None);
        Recipe { version: VERSION, strategy, inputs, base, overrides, with_state, soup }
    }

    /// The recipe of a commit, if it has one that makes sense.
    pub fn from_commit(commit: &Commit) -> Option<Recipe> {
        let recipe: Recipe = serde_json::from_str(commit.meta.get(RECIPE_KEY)?).ok()?;
        let known = recipe.version == VERSION && !recipe.inputs.is_empty();
        (known && recipe.inputs.iter().all(|i| *i < commit.parents.len())).then_some(recipe)
    }

    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| RepoError::io("cannot write down the recipe")(e.into()))
    }

    /// Whether some tensor may be compared with the common ancestor's.
    pub(crate) fn needs_base(&self) -> bool {
        self.strategy.needs_base() || self.overrides.iter().any(|o| o.rule.needs_base())
    }
}
