//! Negotiation: selects the objects of the wanted versions that the other side does not have.

use crate::sync::{
    WHAT,
    filter::Filter,
    plan::{PlannedPack, TransferPlan},
};
use mdl_objects::{Commit, Id, Kind, Manifest, Mode};
use mdl_repo::{
    Level, Pruned, PrunedMark, Repo, history, peel, pruned,
    pruned::{lacks_contents, with_tree},
};
use mdl_store::{
    Missing, Progress, RepoError, Result,
    object_db::Location,
    pack::{PackId, Record},
    progress::go_on,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What the other side asks for.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// Commits and annotated tags, wanted with their history.
    pub tips: Vec<Id>,
    /// Single objects, wanted without anything they name.
    pub objects: Vec<Id>,
    /// Commits that the other side has, with all their history and contents. Ids unknown here are passed over.
    pub haves: Vec<Id>,
    /// The other side is a partial repository: of its haves only the commits are sure to be there.
    pub partial: bool,
    /// Contents are wanted only of this many generations, the tips being the first; of older ones only the commits.
    pub depth: Option<u32>,
    /// Contents that are wanted; none for all.
    pub only: Option<Filter>,
}

/// The objects asked for, except those of versions that the other side has, and all their delta bases.
pub fn plan_transfer(repo: &Repo, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
    let offered = repo.odb().retry_on_repack(|| plan_once(repo, want, progress));
    offered.map_err(|e| elsewhere(repo, e))
}

/// Adds to the error where a partial repository says a missing object is. It has all its commits: one that it lacks
/// is none of its. Where a promisor fetches what is missing, the error is the promisor's.
fn elsewhere(repo: &Repo, error: RepoError) -> RepoError {
    let mut remotes = repo.config().remotes().into_values();
    let source = remotes.find(|r| r.partial && !repo.odb().has_promisor());
    match (&error, source) {
        (RepoError::NotFound { what, .. }, Some(source)) if *what != Missing::Commit && !what.is_stored() => {
            let url = source.url;
            RepoError::user(
                format!("the repository that was asked is a partial clone of {url} and lacks what is wanted: {error}"),
                format!("clone from {url}, which has everything"),
            )
        }
        _ => error,
    }
}

fn plan_once(repo: &Repo, want: &Want, progress: &dyn Progress) -> Result<TransferPlan> {
    let mut names = Names {
        repo,
        want,
        progress,
        seen: HashSet::new(),
        walked: HashSet::new(),
        named: Vec::new(),
        pruned: Vec::new(),
    };
    names.versions()?;
    for id in &want.objects {
        names.name(*id);
    }
    let Names { seen, named, pruned, .. } = names;
    let mut offers = Offers::default();
    repo.odb().prefetch(named.iter().copied())?;
    for id in &named {
        go_on(progress, WHAT)?;
        offers.add(repo.odb().need(id, Missing::Object)?, true);
    }
    // Whatever a tensor is a difference to, down to the chain roots: the receiver knows where to stop.
    let mut stack: Vec<Id> = offers.0.values().flatten().flatten().flat_map(Record::bases).collect();
    let mut below = HashSet::new();
    while let Some(id) = stack.pop() {
        if seen.contains(&id) || !below.insert(id) {
            continue;
        }
        go_on(progress, WHAT)?;
        let at = repo.odb().find(&id, Kind::Tensor)?;
        stack.extend(at.record.bases());
        offers.add(at, false);
    }
    Ok(offers.plan(pruned))
}

/// Commits that both sides have, to be told to the other side: tips, and their ancestors at growing distances.
pub fn haves(repo: &Repo, limit: usize) -> Result<Vec<Id>> {
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    for (_, id) in repo.refs().list("refs/")? {
        // Policies are refs too, of blobs.
        let Ok(mut at) = peel(repo, &id) else { continue };
        let (mut step, mut next) = (0u64, 0u64);
        loop {
            if step == next {
                if out.len() >= limit || !seen.insert(at) {
                    break;
                }
                out.push(at);
                next = next * 2 + 1;
            }
            step += 1;
            match repo.odb().commit(&at)?.parents.first() {
                Some(parent) => at = *parent,
                None => break,
            }
        }
    }
    Ok(out)
}

/// The mark that says what of a version is sent: of one that is asked for by name the most that is here, of others the
/// least that lasts. None: what was committed.
fn sent<'p>(
    repo: &Repo,
    pruned: &'p Pruned,
    (id, commit): (&Id, &Commit),
    is_tip: bool,
) -> Result<Option<&'p PrunedMark>> {
    if is_tip && repo.odb().has(&commit.tree)? {
        return Ok(None);
    }
    let mut marks: Vec<&PrunedMark> = pruned.stand_ins(id).collect();
    if !is_tip {
        marks.reverse();
    }
    for mark in &marks {
        if let Some(tree) = mark.stand_in
            && repo.odb().has(&tree)?
        {
            return Ok(Some(mark));
        }
    }
    // A partial repository fetches it.
    Ok(marks.first().copied())
}

/// Collects what versions name.
struct Names<'a> {
    repo: &'a Repo,
    want: &'a Want,
    progress: &'a dyn Progress,
    /// Objects that are named already, or that the other side has.
    seen: HashSet<Id>,
    /// Trees and files that were looked into; by path too where that decides what is wanted.
    walked: HashSet<(Id, String)>,
    named: Vec<Id>,
    pruned: Vec<(Id, PrunedMark)>,
}

impl Names<'_> {
    fn name(&mut self, id: Id) {
        if self.seen.insert(id) {
            self.named.push(id);
        }
    }

    fn versions(&mut self) -> Result<()> {
        let (repo, want) = (self.repo, self.want);
        let odb = repo.odb();
        let mut tips = Vec::new();
        for tip in &want.tips {
            if odb.need(tip, Missing::Commit)?.record.kind == Kind::Tag {
                self.name(*tip);
            }
            tips.push(peel(repo, tip)?);
        }
        let known = self.known(&tips)?;
        let fresh = self.fresh(&tips, &known)?;
        self.border(&fresh, &known)?;
        self.named.retain(|id| want.tips.contains(id));
        let (pruned, mut wanted) = (pruned(repo)?, Vec::new());
        for (id, (commit, generation)) in fresh {
            go_on(self.progress, WHAT)?;
            self.name(id);
            if want.depth.is_some_and(|depth| generation >= depth) {
                // What stands for it may be asked for later.
                self.later(&id, &pruned)?;
                continue;
            }
            if let Some(mark) = pruned.get(&id)
                && lacks_contents(repo, &id)?
            {
                self.pruned.push((id, mark.clone()));
                continue;
            }
            // What it gave up is not sent even where that is still here, unless it is asked for by name.
            let stands = sent(repo, &pruned, (&id, &commit), tips.contains(&id))?;
            self.pruned.extend(stands.map(|mark| (id, mark.clone())));
            let tree = stands.and_then(|mark| mark.stand_in).unwrap_or(commit.tree);
            wanted.push(with_tree(commit, tree));
        }
        if want.only.is_none() && want.depth.is_none() {
            // The other side may have had these versions without their exact contents: asked for by name they are sent.
            for id in tips.iter().filter(|id| known.contains(*id)) {
                let commit = odb.commit(id)?;
                if commit.approximation.is_some() && odb.has(&commit.tree)? && pruned.get(id).is_none() {
                    wanted.push(commit);
                }
            }
        }
        odb.prefetch_trees(wanted.iter().map(|c| c.tree))?;
        wanted.iter().try_for_each(|c| self.contents(c, want.only.as_ref()))
    }

    /// Tells what stands for a version of which nothing is sent. Whether a part of its files may stand is seen from its
    /// directories, which are sent.
    fn later(&mut self, id: &Id, pruned: &Pruned) -> Result<()> {
        let Some(mark) = pruned.stand_ins(id).next_back() else { return Ok(()) };
        let mut stack: Vec<Id> = mark.stand_in.filter(|_| mark.level() == Level::Weights).into_iter().collect();
        if let Some(tree) = stack.first()
            && !self.repo.odb().has(tree)?
        {
            return Ok(());
        }
        while let Some(tree) = stack.pop() {
            self.name(tree);
            let below = self.repo.odb().tree(&tree)?.entries.into_iter().filter(|e| e.mode == Mode::Tree);
            stack.extend(below.map(|e| e.id));
        }
        self.pruned.push((*id, mark.clone()));
        Ok(())
    }

    /// What the versions at the border hold is there already: most of a new version is in the one before it.
    fn border(&mut self, fresh: &BTreeMap<Id, (Commit, u32)>, known: &HashSet<Id>) -> Result<()> {
        if self.want.partial {
            return Ok(());
        }
        let border: BTreeSet<Id> = fresh.values().flat_map(|(c, _)| c.parents.iter().copied()).collect();
        let border = border.iter().filter(|id| known.contains(*id));
        let commits = border.map(|id| self.repo.odb().commit(id)).collect::<Result<Vec<_>>>()?;
        // A version that was pruned since holds nothing here; the other side then is asked about more, and says no.
        let passed = |done: Result<()>| match done {
            Err(RepoError::NotFound { .. }) => Ok(()),
            done => done,
        };
        passed(self.repo.odb().prefetch_trees(commits.iter().map(|c| c.tree)))?;
        commits.iter().try_for_each(|c| passed(self.contents(c, None)))
    }

    /// Commits that the other side has: what it says, and all before that.
    fn known(&self, tips: &[Id]) -> Result<HashSet<Id>> {
        let mut starts = Vec::new();
        for id in &self.want.haves {
            if self.repo.odb().contains_kind(id, Kind::Commit)? {
                starts.push(*id);
            }
        }
        // The common case, a new commit on top of what is there, needs no walk through the whole history.
        let mut known: HashSet<Id> = starts.iter().copied().collect();
        if tips.iter().all(|t| known.contains(t)) {
            return Ok(known);
        }
        for step in history(self.repo, &starts)? {
            go_on(self.progress, WHAT)?;
            known.insert(step?.id);
        }
        Ok(known)
    }

    /// Commits that are not known, by their ids, each with its least distance from a tip.
    fn fresh(&self, tips: &[Id], known: &HashSet<Id>) -> Result<BTreeMap<Id, (Commit, u32)>> {
        let mut out = BTreeMap::new();
        let mut level = tips.to_vec();
        let mut generation = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for id in level {
                if known.contains(&id) || out.contains_key(&id) {
                    continue;
                }
                go_on(self.progress, WHAT)?;
                let commit = self.repo.odb().commit(&id)?;
                next.extend_from_slice(&commit.parents);
                out.insert(id, (commit, generation));
            }
            (level, generation) = (next, generation + 1);
        }
        Ok(out)
    }

    fn contents(&mut self, commit: &Commit, only: Option<&Filter>) -> Result<()> {
        if only.is_none() {
            commit.blobs().for_each(|id| self.name(id));
        }
        if let (Some(tree), None) = (commit.approximation, only) {
            self.tree(tree, String::new(), only)?;
        }
        self.tree(commit.tree, String::new(), only)
    }

    fn tree(&mut self, id: Id, prefix: String, only: Option<&Filter>) -> Result<()> {
        let mut stack = vec![(id, prefix)];
        while let Some((id, prefix)) = stack.pop() {
            let place = only.map_or_else(String::new, |_| prefix.clone());
            if !self.walked.insert((id, place)) {
                continue;
            }
            self.name(id);
            for e in self.repo.odb().tree(&id)?.entries {
                let path = format!("{prefix}{}", e.name);
                match e.mode {
                    Mode::Tree => stack.push((e.id, format!("{path}/"))),
                    Mode::Blob if only.is_none_or(|o| o.file(&path)) => self.name(e.id),
                    Mode::Blob => {}
                    Mode::Manifest => self.file(e.id, path, only)?,
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, id: Id, path: String, only: Option<&Filter>) -> Result<()> {
        let place = only.map_or_else(String::new, |_| path.clone());
        if !self.walked.insert((id, place)) {
            return Ok(());
        }
        self.name(id);
        let Manifest { skeleton, tensors, .. } = self.repo.odb().manifest(&id)?;
        if only.is_none_or(|o| o.file(&path)) {
            skeleton.iter().for_each(|c| self.name(c.id));
        }
        for t in tensors {
            if only.is_none_or(|o| o.tensor(&path, &t.name)) {
                self.name(t.id);
            }
        }
        Ok(())
    }
}

/// Objects by their packs: those named, and those below.
#[derive(Default)]
struct Offers(BTreeMap<PackId, [Vec<Record>; 2]>);

impl Offers {
    fn add(&mut self, at: Location, named: bool) {
        self.0.entry(at.pack.id).or_default()[usize::from(!named)].push(at.record);
    }

    fn plan(self, pruned: Vec<(Id, PrunedMark)>) -> TransferPlan {
        let once = |mut records: Vec<Record>| {
            records.sort_by_key(|r| r.id);
            records.dedup_by_key(|r| r.id);
            records
        };
        let offers = self.0.into_iter();
        let offers = offers.map(|(pack, [named, below])| PlannedPack { pack, named: once(named), below: once(below) });
        TransferPlan { offers: offers.collect(), pruned }
    }
}

/// The union of what several plans offer.
pub(crate) fn merge(plans: Vec<TransferPlan>) -> TransferPlan {
    let (mut offers, mut pruned) = (Offers::default(), Vec::new());
    for plan in plans {
        for offer in plan.offers {
            let [named, below] = offers.0.entry(offer.pack).or_default();
            named.extend(offer.named);
            below.extend(offer.below);
        }
        pruned.extend(plan.pruned);
    }
    offers.plan(pruned)
}
