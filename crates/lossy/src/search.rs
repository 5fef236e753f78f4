//! The search of one commit: both quantiser families against the gate, the smaller one that passes wins; where none
//! does the commit is lossless.

use crate::{
    Evaluator, LossyRequest, allocate,
    allocate::{Allocation, allocate},
    bins::BinTables,
    bound_costs::BoundCost,
    bounds::BoundsRecord,
    bounds::earlier::EarlierVersion,
    bounds::since::Since,
    bounds::steps::Steps,
    bounds::yardstick::Yardstick,
    candidate::{Scratch, link_rest},
    decoded,
    decoded::DecodedBases,
    make::{Choice, Made, Maker, Setting},
    model::Model,
    moments,
    policy_toml::{Book, Family, Fixed, KeepExact, Moments},
    record::{Quality, State, gate_text},
    search_pass::{Halt, SearchPass},
    sensitivity::Sensitivity,
    trials::{Trial, TrialTable, describe},
};
use mdl_objects::{Commit, Id, Kind};
use mdl_store::{
    RepoError, Result, Store,
    write::{DiskFile, FileState, Hints, TensorError},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

/// A commit's files and record, ready to be stored.
#[derive(Debug)]
pub struct Prepared {
    /// The version that the search went on from.
    pub parent: Option<Id>,
    /// Which versions keep their exact contents as well.
    pub keep: KeepExact,
    /// Files to store in place of the user's, by their name in the tree.
    pub files: HashMap<String, PathBuf>,
    /// Longest delta chain of a tensor.
    pub max_depth: u8,
    /// What the user's files were like before they were read.
    pub states: HashMap<String, FileState>,
    /// The lattices that tensors lie on.
    pub hints: Hints,
    /// By `FILE:EXTENT`: how far the reconstruction is from the tensor.
    pub errors: BTreeMap<String, TensorError>,
    /// The record.
    pub quality: Quality,
    /// Blobs that the record speaks of.
    pub side: Vec<Vec<u8>>,
    /// Candidates that were measured.
    pub trials: Vec<Trial>,
    /// Keeps the candidate's files.
    pub _scratch: Scratch,
}

/// The outcome of a search.
#[derive(Default)]
struct SearchOutcome {
    choice: Option<Choice>,
    made: Option<Made>,
    trials: Vec<Trial>,
    state: State,
    warnings: Vec<String>,
    exact: Option<f64>,
    limit: Option<f64>,
    /// The steps of weights that stay as the parent has them.
    carried: Allocation,
}

/// A checkpoint that is to be committed, and what it goes on from.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    /// Its files.
    pub list: &'a [DiskFile],
    /// The directory that they lie in, if it is one.
    pub source: &'a Path,
    /// The version to go on from, with the tree that it gives today.
    pub parent: Option<(Id, &'a Commit)>,
    /// The version that training was restored from since, with the tree that it gives today.
    pub resumed: Option<(Id, &'a Commit)>,
    /// The longest chain of deltas, where the policy allows none longer.
    pub max_depth: u8,
}

/// Searches for what can be committed of a checkpoint under a policy.
///
/// # Errors
/// Files that cannot be read or committed; a policy that does not go with them; an I/O error.
pub fn prepare(store: &Store, checkpoint: &Checkpoint<'_>, request: &mut LossyRequest<'_>) -> Result<Prepared> {
    search(store, checkpoint, request, |_, _| Ok(())).map(|(prepared, ())| prepared)
}

/// The same, with what each bound costs.
///
/// # Errors
/// As `prepare`.
pub fn plan(
    store: &Store,
    checkpoint: &Checkpoint<'_>,
    request: &mut LossyRequest<'_>,
) -> Result<(Prepared, Vec<BoundCost>)> {
    search(store, checkpoint, request, |setting, choice| setting.bound_costs(choice))
}

/// Searches; `look` is shown the choice.
fn search<T>(
    store: &Store,
    checkpoint: &Checkpoint<'_>,
    request: &mut LossyRequest<'_>,
    look: impl FnOnce(&Setting<'_>, Option<&Choice>) -> Result<T>,
) -> Result<(Prepared, T)> {
    let Checkpoint { list, source, parent, resumed, max_depth } = *checkpoint;
    let policy = &request.policy;
    let state = |f: &DiskFile| Ok((f.rel.clone(), FileState::exposed(&f.path)?.0));
    let states = list.iter().map(state).collect::<Result<_>>()?;
    let model = Model::scan(list, policy)?;
    let sensitivity = Sensitivity::open(&model, request.grads.as_deref())?;
    let before = parent.map_or(Ok(EarlierVersion::default()), |(_, c)| EarlierVersion::parent(store.odb(), c))?;
    let bases = before.stored_tensors(store.odb(), &model)?;
    let record = parent.map(|(_, c)| Quality::from_commit(c)).transpose()?.flatten();
    let mut state = record.as_ref().map(|r| r.state.clone()).unwrap_or_default();
    let side = |c: &Commit, place: usize| c.side.get(place).map(|id| store.odb().read(id, Kind::Blob)).transpose();
    let known = match parent {
        Some((_, c)) if state.allocation => allocate::from_bytes(&side(c, 1)?.unwrap_or_default(), &model),
        _ => Allocation::new(),
    };
    let restored = resumed.map_or(Ok(None), |(_, c)| EarlierVersion::restored(store.odb(), c))?;
    let gone = resumed.is_some() && restored.is_none();
    let earlier = restored.unwrap_or(if gone { EarlierVersion::default() } else { before });
    let since = request.since.as_deref().map(|path| Since::open(path, &model)).transpose()?;
    let yardsticks = earlier.yardsticks(store.odb(), &model, since.as_ref())?;
    // What was restored exactly goes on as if nothing had happened.
    if let Some((id, _)) = resumed.filter(|(_, c)| c.approximation.is_none()) {
        state.life = Some(id.to_hex());
    }
    let scratch = Scratch::new(store)?;
    let before = match policy.moments {
        Moments::Exact => moments::Replaced::default(),
        spec => moments::replace(store.odb().engine(), &model, &scratch.fresh("moments")?, spec)?,
    };
    let allocation = if policy.families.contains(&Family::Lattice) {
        allocate(&model, &sensitivity, &known, policy.lattice.allocation)?
    } else {
        known
    };
    let setting = Setting {
        odb: store.odb(),
        policy,
        model: &model,
        list,
        sensitivity: &sensitivity,
        bases: &bases,
        max_depth: policy.max_depth.max(max_depth),
        state,
        allocation,
        yardsticks: yardsticks.new,
        earlier: &earlier,
        before,
    };
    let mut found = match request.evaluator.as_deref_mut() {
        _ if setting.yardsticks.is_empty() && setting.model.weights().next().is_some() => setting.nothing_new(),
        Some(evaluator) => setting.search(evaluator, request.direction, source, &scratch)?,
        None => setting.fixed(&scratch)?,
    };
    if setting.model.weights().next().is_none() && !policy.is_lossless() {
        found.warnings.push("no tensor of these files is quantised under this policy".to_owned());
    }
    if gone {
        found.warnings.push("the version that training was restored from is gone: updates are not known".to_owned());
    }
    found.carried = yardsticks.carried;
    let seen = look(&setting, found.choice.as_ref())?;
    let direction = request.direction.name();
    Ok((setting.close(found, parent.map(|p| p.0), direction, (states, scratch))?, seen))
}

/// Why nothing was replaced, and nothing measured.
const STORED: &str = "nothing is to be gained: every weight is stored already as it is, and was not measured";

/// Sixteenths of an octave between the lattices' parameter and the weights' deviation, at the most.
const COARSEST: i32 = 64 * 16;

/// Neither sizes nor judges: for a fixed configuration.
struct Silent;

impl Evaluator for Silent {
    fn evaluate(&mut self, _dir: &Path) -> Option<f64> {
        None
    }
}

impl Setting<'_> {
    /// A maker that keeps this many bytes decoded.
    pub(super) fn maker(&self, budget: usize) -> Maker<'_> {
        Maker {
            setting: self,
            bounds: self.policy.bounds,
            life: self.state.life.clone().filter(|_| self.policy.lattice.dither),
            decoded: DecodedBases::within(budget),
            inherited: HashMap::new(),
            bin_tables: BinTables::of_parent(self.state.books.clone()),
        }
    }

    /// Where the exact checkpoint lies as a checkout would give it: where it is, unless the directory holds more, or
    /// moments were replaced.
    fn exact_dir(&self, source: &Path, scratch: &Scratch) -> Result<PathBuf> {
        let whole = self.list.iter().all(|f| source.join(&f.rel) == f.path);
        if self.before.files.is_empty() && whole && source.is_dir() {
            return Ok(source.to_owned());
        }
        let dir = scratch.fresh("exact")?;
        link_rest(&dir, self.list, &self.before.files)?;
        Ok(dir)
    }

    /// The largest parameter of the lattice, in sixteenths of an octave, that any row's bounds let count.
    pub(super) fn coarsest(&self) -> i32 {
        let bounds = &self.policy.bounds;
        let reach = |(i, yard): (&usize, &Yardstick)| {
            let part = &self.model.parts[*i];
            let base = self.allocation.get(&self.model.label(part))?;
            Some(Steps::reach(base, yard, bounds, self.earlier_steps(part)))
        };
        self.yardsticks.iter().filter_map(reach).max().unwrap_or(i32::MAX).clamp(-COARSEST, COARSEST)
    }

    /// Every weight is stored already: there is nothing to replace, and nothing to measure.
    fn nothing_new(&self) -> SearchOutcome {
        let warnings = if self.policy.is_lossless() { Vec::new() } else { vec![STORED.to_owned()] };
        SearchOutcome { state: self.state.clone(), warnings, ..SearchOutcome::default() }
    }

    fn fixed(&self, scratch: &Scratch) -> Result<SearchOutcome> {
        let mut found = SearchOutcome { state: self.state.clone(), ..SearchOutcome::default() };
        let choice = match self.policy.fixed {
            Some(Fixed { family: Family::Lattice, step: Some(step), .. }) => {
                Choice::Lattice((step * 16.0).round() as i32)
            }
            Some(Fixed { family: Family::Lattice, step: None, .. }) => Choice::Lattice(self.coarsest()),
            Some(fixed) => Choice::Bins(fixed.config(), Book::Fresh),
            None if self.policy.families.is_empty() => return Ok(found),
            None => {
                found.warnings.push(
                    "the weights are kept exact: without an evaluator only a policy's [fixed] configuration is used"
                        .to_owned(),
                );
                return Ok(found);
            }
        };
        let mut silent = Silent;
        // One candidate asks for nothing twice.
        let mut table = TrialTable::new(self.maker(0), scratch, &mut silent);
        table.bytes(&choice)?;
        found.made = Some(table.take(&choice)?);
        found.trials = table.known().map(|(_, t)| t.clone()).collect();
        found.choice = Some(choice);
        Ok(found)
    }

    fn search(
        &self,
        evaluator: &mut dyn Evaluator,
        direction: mdl_codec::quant::search::Direction,
        source: &Path,
        scratch: &Scratch,
    ) -> Result<SearchOutcome> {
        let mut found = SearchOutcome { state: self.state.clone(), ..SearchOutcome::default() };
        let exact = match evaluator.takes_tensors() {
            true => evaluator.evaluate_tensors(&[Vec::new()]).first().copied().flatten(),
            false => evaluator.evaluate(&self.exact_dir(source, scratch)?),
        };
        let Some(exact) = exact.filter(|m| m.is_finite()) else {
            found
                .warnings
                .push("the weights are kept exact: the evaluator gave no number for the exact checkpoint".to_owned());
            return Ok(found);
        };
        let progress = self.state.progress().then(exact, direction);
        let limit = self.policy.gate.limit(exact, &progress, direction);
        (found.state.last, found.state.gains, found.state.gain) = (progress.last, progress.gains, progress.gain);
        (found.exact, found.limit) = (Some(exact), Some(limit));
        let mut table = TrialTable::new(self.maker(decoded::BUDGET), scratch, evaluator);
        (table.exact, table.limit, table.direction) = (exact, limit, direction);
        let begin = found.state;
        let walk = |pass: &mut SearchPass<'_, '_>| self.walk(pass, begin.clone());
        let (best, state) = loop {
            let mut pass = SearchPass::new(&mut table, &[]);
            match walk(&mut pass) {
                Ok(done) => {
                    found.trials = pass.trials();
                    break done;
                }
                Err(Halt::Unknown(choice)) => table.round(choice, walk)?,
                Err(Halt::Failed(e)) => return Err(e),
                Err(Halt::Far) => return Err(RepoError::user("the search guessed where it should not", "")),
            }
        };
        found.state = state;
        if let Some((_, choice)) = best {
            found.made = Some(table.take(&choice)?);
            found.choice = Some(choice);
        } else if !self.policy.families.is_empty() {
            found.warnings.push("the weights are kept exact: nothing passed the gate".to_owned());
        }
        Ok(found)
    }

    /// One search pass: the smallest candidate of all that pass, and where the next search begins.
    fn walk(
        &self,
        pass: &mut SearchPass<'_, '_>,
        mut state: State,
    ) -> std::result::Result<(Option<(u64, Choice)>, State), Halt> {
        let mut best: Option<(u64, Choice)> = None;
        for family in self.order() {
            let beat = best.map(|b| b.0);
            let new = match family {
                Family::Lattice => self.lattice(pass, beat, &mut state)?,
                Family::Bins => self.bins(pass, beat, &mut state)?,
            };
            best = best.into_iter().chain(new).min_by_key(|b| b.0);
        }
        Ok((best, state))
    }

    fn close(
        &self,
        found: SearchOutcome,
        parent: Option<Id>,
        direction: &str,
        (states, scratch): (HashMap<String, FileState>, Scratch),
    ) -> Result<Prepared> {
        let SearchOutcome { mut choice, mut made, trials, mut state, mut warnings, exact, limit, carried } = found;
        let evaluations = trials.iter().filter(|t| t.evaluated && t.replaced > 0).count() as u32;
        let kept = made.as_mut().map(|m| [std::mem::take(&mut m.kept), std::mem::take(&mut m.bounded)]);
        let [kept, bounded] = kept.unwrap_or_default();
        if made.as_ref().is_some_and(|m| m.errors.is_empty()) {
            (made, choice) = (None, None);
        }
        let won = choice.as_ref().map(describe);
        let trial = trials.iter().find(|t| Some(&t.configuration) == won.as_ref());
        let family = match choice {
            Some(Choice::Lattice(_)) => "lattice",
            Some(Choice::Bins(..)) => "bins",
            None => "lossless",
        };
        if choice.is_some() {
            state.winner = Some(family.to_owned());
        }
        if !kept.is_empty() {
            warnings.push(format!("kept exact, for the quantiser cannot hold them: {}", list_some(&kept)));
        }
        if !bounded.is_empty() {
            warnings.push(format!("kept exact, for the bounds leave no room: {}", list_some(&bounded)));
        }
        if let Some(books) = made.as_ref().and_then(|m| m.books.clone()) {
            state.books = Some(books);
        }
        let mut side = vec![self.policy.text.clone().into_bytes()];
        state.allocation = !self.allocation.is_empty();
        if state.allocation {
            side.push(allocate::to_bytes(&self.allocation));
        }
        let mut steps = carried;
        steps.extend(made.iter().flat_map(|m| m.steps.clone()));
        state.steps = !steps.is_empty();
        if state.steps {
            side.push(allocate::to_bytes(&steps));
        }
        let bounds = BoundsRecord {
            worst_row: trial.map(|t| t.worst_row),
            update_error: trial.and_then(|t| t.update_error),
            worst_row_update: trial.and_then(|t| t.worst_row_update),
            exact_rows: trial.map_or(0, |t| t.exact_rows),
            exact_tensors: bounded.len() as u64,
            hidden_rows: trial.map_or(0, |t| t.hidden_rows),
            ..BoundsRecord::new(&self.policy.bounds)
        };
        let quality = Quality {
            policy: self.policy.name.clone(),
            family: family.to_owned(),
            configuration: won.unwrap_or_else(|| "lossless".to_owned()),
            gate: gate_text(self.policy.gate),
            direction: direction.to_owned(),
            exact,
            measured: trial.and_then(|t| t.measured).or(exact.filter(|_| choice.is_none())),
            limit,
            evaluations,
            max_abs: trial.map(|t| t.max_abs),
            rel_l2: trial.map(|t| t.rel_l2),
            bounds: Some(bounds).filter(|_| !self.policy.families.is_empty()),
            sensitivity: self.sensitivity.source().to_owned(),
            moments: self.policy.moments.name().to_owned(),
            exact_bytes: None,
            warnings,
            state,
        };
        let (files, mut hints, errors) = match made {
            Some(m) => (m.files, m.hints, m.errors),
            None => (self.before.files.clone(), Hints::default(), BTreeMap::new()),
        };
        hints.extend(self.before.hints.clone());
        Ok(Prepared {
            parent,
            keep: self.policy.keep.clone(),
            files,
            max_depth: self.max_depth,
            states,
            hints,
            errors: errors.into_iter().map(|(name, e)| (name, TensorError::from(e))).collect(),
            quality,
            side,
            trials,
            _scratch: scratch,
        })
    }
}

fn list_some(names: &[String]) -> String {
    let mut text = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 3 {
        text.push_str(&format!(" and {} more", names.len() - 3));
    }
    text
}
