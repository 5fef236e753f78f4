//! Soups: averages of versions of one run, or of fine-tunes of one model (Wortsman et al., "Model soups", 2022).

use crate::{
    checkout::{CheckoutOptions, checkout_to},
    merge::{
        MergeOutcome,
        make::{MadeFile, planned},
        make_version,
        recipe::{Override, Recipe, Rule, SoupKind},
    },
    pruned::refuse_pruned,
    repo::Repo,
};
use mdl_lossy::Scratch;
use mdl_merge::{Method, Strategy};
use mdl_objects::Id;
use mdl_store::{Missing, Progress, RepoError, Result, progress::go_on};
use std::path::Path;

/// Names the operation in `Stopped` errors.
const WHAT: &str = "the soup";

/// Measures the checkpoint in a directory; smaller is better. An error says why there is no number.
pub type Measure<'a> = dyn FnMut(&Path) -> std::result::Result<f64, String> + 'a;

/// A soup that a greedy one tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The versions in it.
    pub versions: Vec<Id>,
    /// What the evaluator said.
    pub value: f64,
    /// Whether the last of them was kept.
    pub kept: bool,
}

/// What a soup is made of.
pub struct SoupRequest<'a> {
    /// The versions, the newest first: files that are no weights are its.
    pub versions: Vec<Id>,
    /// What kind it is.
    pub kind: SoupKind,
    /// The evaluator of a greedy one.
    pub measure: Option<&'a mut Measure<'a>>,
    /// Whether larger numbers are better.
    pub maximize: bool,
    /// Other rules for some files or tensors.
    pub overrides: Vec<Override>,
    /// Whether state of the optimizer is computed as weights are; else it is the newest version's.
    pub with_state: bool,
    /// Message; none: one that says what is in it.
    pub message: Option<String>,
}

/// Makes a version of several, on top of the present branch. Also returned is what a greedy soup measured.
///
/// # Errors
/// Fewer than two versions; an evaluator without numbers; as [`merge_versions`](crate::merge_versions).
pub fn soup(
    repo: &Repo,
    mut request: SoupRequest<'_>,
    progress: &dyn Progress,
) -> Result<(MergeOutcome, Vec<Measured>)> {
    let head = repo.refs().head_commit()?.ok_or_else(|| RepoError::not_found(Missing::Version, "HEAD"))?;
    if request.versions.len() < 2 {
        return Err(RepoError::user("a soup is made of two versions or more", "name more of them"));
    }
    request.versions.iter().try_for_each(|id| refuse_pruned(repo, id))?;
    let mut tried = Vec::new();
    let versions = match request.kind {
        SoupKind::Greedy => greedy(repo, &mut request, &mut tried, progress)?,
        _ => request.versions.clone(),
    };
    let (parents, recipe) = recipe_of(&request, head, &versions)?;
    let message = request.message.clone().unwrap_or_else(|| message_of(&request.kind, &versions));
    Ok((make_version(repo, &parents, recipe, Vec::new(), message, progress)?, tried))
}

fn message_of(kind: &SoupKind, versions: &[Id]) -> String {
    let kind = match kind {
        SoupKind::Uniform => "uniform".to_owned(),
        SoupKind::Ema { decay } => format!("EMA, decay {decay}"),
        SoupKind::Greedy => "greedy".to_owned(),
    };
    format!("Soup of {} versions ({kind})", versions.len())
}

/// The commit's parents (HEAD's first), and the recipe.
fn recipe_of(request: &SoupRequest<'_>, head: Id, versions: &[Id]) -> Result<(Vec<Id>, Recipe)> {
    let mut parents = vec![head];
    parents.extend(versions.iter().filter(|id| **id != head));
    let place = |id: &Id| parents.iter().position(|p| p == id).unwrap_or(0);
    let inputs: Vec<usize> = versions.iter().map(place).collect();
    let strategy = match request.kind {
        SoupKind::Ema { decay } => {
            let weight = ema_weights(decay, versions.len())?;
            Strategy { weight, ..Strategy::new(Method::Weighted) }
        }
        _ => Strategy::new(Method::Average),
    };
    let mut recipe = Recipe::new(Rule::Weights(strategy).resolved(versions.len())?, inputs);
    for over in &request.overrides {
        let rule = over.rule.resolved(versions.len())?;
        if rule.needs_base() {
            return Err(RepoError::user("a soup has no common ancestor to start from", "average, or take sides"));
        }
        recipe.overrides.push(Override { glob: over.glob.clone(), rule });
    }
    recipe.with_state = request.with_state;
    recipe.soup = Some(request.kind);
    Ok((parents, recipe))
}

/// What each version counts, the newest first: `1 - decay`, `(1 - decay) decay`, ...; the oldest has what is left.
fn ema_weights(decay: f64, versions: usize) -> Result<Vec<f64>> {
    if !(decay > 0.0 && decay < 1.0) {
        return Err(RepoError::user(format!("decay is {decay}"), "choose one between 0 and 1"));
    }
    let (mut weights, mut left) = (Vec::with_capacity(versions), 1.0);
    for _ in 1..versions {
        weights.push((1.0 - decay) * left);
        left *= decay;
    }
    weights.push(left);
    Ok(weights)
}

/// The paper's greedy soup: from the best version on, those are added with which the average measures no worse.
fn greedy(
    repo: &Repo,
    request: &mut SoupRequest<'_>,
    tried: &mut Vec<Measured>,
    progress: &dyn Progress,
) -> Result<Vec<Id>> {
    let none = || RepoError::user("a greedy soup wants an evaluator", "give one");
    let measure = request.measure.take().ok_or_else(none)?;
    let failed = |why: String| RepoError::user(format!("the evaluator gave no number: {why}"), "");
    let scratch = Scratch::new(repo)?;
    let mut ranked = Vec::new();
    for id in &request.versions {
        go_on(progress, WHAT)?;
        let dir = scratch.fresh("one")?;
        checkout_to(repo, id, &dir, &CheckoutOptions::default(), &mdl_store::Silent)?;
        let value = measure(&dir).map_err(failed)?;
        tried.push(Measured { versions: vec![*id], value, kept: false });
        ranked.push((*id, value));
    }
    let sign = if request.maximize { -1.0 } else { 1.0 };
    ranked.sort_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)));
    let (mut chosen, mut best) = (vec![ranked[0].0], ranked[0].1);
    for (id, _) in &ranked[1..] {
        go_on(progress, WHAT)?;
        let mut candidate = chosen.clone();
        candidate.push(*id);
        let dir = scratch.fresh("soup")?;
        average_into(repo, request, &candidate, &dir)?;
        let value = measure(&dir).map_err(failed)?;
        let kept = sign * value <= sign * best;
        tried.push(Measured { versions: candidate.clone(), value, kept });
        if kept {
            (chosen, best) = (candidate, value);
        }
    }
    // As in other soups, the newest lends the files that are no weights.
    chosen.sort_by_key(|id| request.versions.iter().position(|v| v == id));
    Ok(chosen)
}

/// Writes the soup of these versions as a checkpoint.
fn average_into(repo: &Repo, request: &SoupRequest<'_>, versions: &[Id], dir: &Path) -> Result<()> {
    let mut versions = versions.to_vec();
    versions.sort_by_key(|id| request.versions.iter().position(|v| v == id));
    let (parents, recipe) = recipe_of(request, versions[0], &versions)?;
    let plan = planned(repo, &recipe, &parents)?.map_err(|conflicts| {
        let first = conflicts.first().map(|c| format!("{}: {}", c.path, c.reason.text())).unwrap_or_default();
        RepoError::user(format!("these versions cannot be averaged: {first}"), "name versions of one model")
    })?;
    for (rel, file) in plan.make(repo, dir, &mdl_store::Silent)? {
        if let MadeFile::Stored(entry) = file {
            crate::sequencer::Draft::new(repo, &dir.join(&rel), &entry, &mdl_store::Silent)?;
        }
    }
    Ok(())
}
