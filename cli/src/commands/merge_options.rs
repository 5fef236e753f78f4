//! Options that say how weights become one, and what a merge came to, for the commands that merge.

use super::prelude::*;
use mdl_repo::{ErrorKind, MergeConflict, MergeOutcome, MergedVersion, Method, Override, Rule, Side, Strategy};

/// Conflicts that are printed.
const SHOWN: usize = 20;

/// How weights become one.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Weights")]
pub struct MergeOptions {
    /// A factor for each version, the present branch first; several by commas.
    #[arg(long, value_name = "W", value_delimiter = ',', allow_negative_numbers = true)]
    weight: Vec<f64>,
    /// Of ties and dare: share of each change's elements that is kept. Default: 1, all.
    #[arg(long, value_name = "D")]
    density: Option<f64>,
    /// Of methods that add changes: factor of what is added. Default: 1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    lambda: Option<f64>,
    /// Divide by the sum of the weights. Default: true for weighted and ties.
    #[arg(long, value_name = "BOOL")]
    normalize: Option<bool>,
    /// Of dare: divide what is kept by the density. Default: true.
    #[arg(long, value_name = "BOOL")]
    rescale: Option<bool>,
    /// Of dare: seed of the draws. Default: 0.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Of slerp: the place between the present branch, 0, and the other version, 1. Default: 0.5.
    #[arg(long, value_name = "T")]
    t: Option<f64>,
    /// Another strategy, or `ours` or `theirs`, for files whose path or tensors whose name match; may be repeated, the
    /// first that matches counts. With weights: 'GLOB=ties:0.7,0.3'.
    #[arg(long = "for", value_name = "GLOB=STRATEGY")]
    overrides: Vec<String>,
    /// Compute state of the optimizer too; else it is that of the present branch.
    #[arg(long)]
    pub with_state: bool,
}

impl MergeOptions {
    /// Nothing but rules for some files or tensors.
    pub fn only(overrides: &[String]) -> MergeOptions {
        MergeOptions { overrides: overrides.to_vec(), ..MergeOptions::default() }
    }

    fn strategy(&self, method: Method) -> Strategy {
        Strategy {
            method,
            weight: self.weight.clone(),
            density: self.density,
            normalize: self.normalize,
            rescale: self.rescale,
            lambda: self.lambda,
            t: self.t,
            seed: self.seed,
        }
    }

    /// The rule of this name. A parameter that it does not have is refused later.
    pub fn rule(&self, name: &str) -> Result<Rule> {
        Ok(match name {
            "ours" => Rule::Side(Side::Ours),
            "theirs" => Rule::Side(Side::Theirs),
            _ => Rule::Weights(self.strategy(method(name)?)),
        })
    }

    /// The rules for some files or tensors.
    pub fn overrides(&self) -> Result<Vec<Override>> {
        self.overrides.iter().map(|text| self.override_of(text)).collect()
    }

    fn override_of(&self, text: &str) -> Result<Override> {
        let wrong = || CliError::usage(format!("{text:?} is not GLOB=STRATEGY"), "such as 'embeddings.*=ours'");
        let (glob, name) = text.rsplit_once('=').filter(|(glob, _)| !glob.is_empty()).ok_or_else(wrong)?;
        let (name, weights) = name.split_once(':').map_or((name, None), |(name, weights)| (name, Some(weights)));
        let rule = match self.rule(name)? {
            Rule::Weights(mut strategy) => {
                if let Some(weights) = weights {
                    let parsed = weights.split([',', ':']).map(str::parse).collect::<std::result::Result<_, _>>();
                    strategy.weight = parsed.map_err(|_| wrong())?;
                }
                let weight = strategy.weight.clone();
                let strategy = strategy.without_unused();
                Rule::Weights(if weights.is_some() { Strategy { weight, ..strategy } } else { strategy })
            }
            _ if weights.is_some() => return Err(wrong()),
            side => side,
        };
        Ok(Override { glob: glob.to_owned(), rule })
    }
}

fn method(name: &str) -> Result<Method> {
    Method::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Method::ALL.iter().map(|m| m.name()).collect();
        CliError::usage(format!("there is no strategy {name:?}"), format!("{}, ours, theirs", names.join(", ")))
    })
}

/// The members of a merge for programs.
pub fn document(repo: &Repo, outcome: &MergeOutcome) -> Result<Value> {
    let mut all = json!({
        "result": "up_to_date", "commit": repo.refs().head_commit()?.map(|id| id.to_hex()), "from": null,
        "bases": [], "recipe": null, "computed": 0, "conflicts": [],
    });
    match outcome {
        MergeOutcome::UpToDate => {}
        MergeOutcome::FastForward { from, to } => {
            all["result"] = "fast_forward".into();
            all["from"] = from.map(|id| id.to_hex()).into();
            all["commit"] = to.to_hex().into();
        }
        MergeOutcome::Merged(MergedVersion { from, id, recipe, bases, computed }) => {
            all["result"] = "merged".into();
            all["from"] = from.to_hex().into();
            all["commit"] = id.to_hex().into();
            all["bases"] = bases.iter().map(Id::to_hex).collect();
            all["recipe"] = json!(recipe);
            all["computed"] = (*computed).into();
        }
        MergeOutcome::Conflicts(conflicts) => {
            all["result"] = "conflicts".into();
            all["conflicts"] = json!(conflicts);
        }
    }
    Ok(all)
}

/// Says in text what a merge came to.
pub fn tell(context: &mut Context, repo: &Repo, outcome: &MergeOutcome) -> Result<()> {
    match outcome {
        MergeOutcome::UpToDate => writeln!(context.out, "Already up to date")?,
        MergeOutcome::FastForward { from, to } => {
            let from = from.map_or_else(|| "nothing".to_owned(), |id| id.short());
            writeln!(context.out, "Fast-forward {from} -> {}", to.short())?;
        }
        MergeOutcome::Merged(merged) => {
            let commit = repo.odb().commit(&merged.id)?;
            let place = present_branch(repo)?.unwrap_or_else(|| "HEAD".to_owned());
            writeln!(context.out, "[{place} {}] {}", merged.id.short(), visible(&subject(&commit.message)))?;
            let base = match &merged.bases[..] {
                [] => String::new(),
                [base] => format!(", from {}", base.short()),
                [base, ..] => format!(", from {} (one of {} common ancestors)", base.short(), merged.bases.len()),
            };
            let computed = count(merged.computed as u64, "tensor");
            writeln!(context.out, "  {computed} computed{base}, {} parents", commit.parents.len())?;
        }
        MergeOutcome::Conflicts(conflicts) => tell_conflicts(context, conflicts)?,
    }
    Ok(())
}

fn tell_conflicts(context: &mut Context, conflicts: &[MergeConflict]) -> Result<()> {
    for MergeConflict { path, tensor, reason } in conflicts.iter().take(SHOWN) {
        let tensor = tensor.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let line = visible(&format!("{path}{tensor}: {}", reason.text()));
        writeln!(context.out, "  {}", context.paint.red(&line))?;
    }
    if let Some(more) = conflicts.len().checked_sub(SHOWN).filter(|n| *n > 0) {
        writeln!(context.out, "  and {more} more")?;
    }
    Ok(())
}

/// The error of a merge that changed nothing, once its conflicts are told.
pub fn undecided(outcome: &MergeOutcome) -> Result<()> {
    let MergeOutcome::Conflicts(conflicts) = outcome else { return Ok(()) };
    let what = count(conflicts.len() as u64, "conflict");
    let hint = "decide by path or tensor name: --for 'GLOB=ours', --for 'GLOB=theirs' or --for 'GLOB=STRATEGY'; or \
                commit files that can be merged first";
    Err(CliError::Own {
        kind: ErrorKind::Conflict,
        message: format!("{what}; nothing was changed"),
        hint: hint.to_owned(),
    })
}
