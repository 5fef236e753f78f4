//! Fsck of references: follows every one from the roots, finds what is missing, and for all damage the commits, files
//! and tensors where it shows.

mod look;

use crate::maintenance::fsck::{Affected, Problem, problem};
use mdl_codec::Dtype;
use mdl_objects::{Commit, Entry, Id, Kind, Manifest, Mode, Tree};
use mdl_store::{
    Progress,
    error::bad_object,
    object_db::{Odb, kind_of, references},
    reachability::{Catalog, Left, PrunedContents, Root},
};
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// Places kept per problem, and hits per directory.
const MAX_AFFECTED: usize = 10_000;
const MAX_DEPTH: usize = 256;

/// Damage below a directory or file: which problem, and the way to it.
#[derive(Clone)]
struct Hit {
    problem: usize,
    path: String,
    tensor: Option<String>,
}

type Hits = Rc<Vec<Hit>>;
type Shape = (Dtype, Vec<u64>);

pub(super) struct Trace<'a> {
    catalog: &'a Catalog,
    odb: &'a Odb,
    /// Problems by the objects that cannot be read for them.
    by_object: HashMap<u32, Vec<usize>>,
    /// Problems of packs that cannot be opened: a missing object may have been in any of them.
    unreadable: Vec<usize>,
    /// Problems of absent objects and of objects of a wrong kind or length.
    found: HashMap<(Id, String), usize>,
    known: HashMap<(Kind, Id), Hits>,
    walked: HashSet<Id>,
    /// Dtype and shape of tensors looked at before; none where the header cannot be read.
    shapes: HashMap<u32, Option<Shape>>,
    problems: &'a mut Vec<Problem>,
    progress: &'a dyn Progress,
    /// Commits whose contents need not be there.
    pub gone: PrunedContents,
    /// Of a partial repository: commits that were made here, and that no remote is known to have.
    pub made_here: HashSet<Id>,
    /// Their contents, to be followed last: all of them must be here.
    own: Vec<(Id, Commit)>,
    is_own: bool,
    /// Of a partial repository: objects that are at a remote.
    pub not_fetched: HashSet<Id>,
}

impl<'a> Trace<'a> {
    pub fn new(
        catalog: &'a Catalog,
        odb: &'a Odb,
        by_object: HashMap<u32, Vec<usize>>,
        unreadable: Vec<usize>,
        problems: &'a mut Vec<Problem>,
        progress: &'a dyn Progress,
    ) -> Trace<'a> {
        Trace {
            catalog,
            odb,
            by_object,
            unreadable,
            found: HashMap::new(),
            known: HashMap::new(),
            walked: HashSet::new(),
            shapes: HashMap::new(),
            problems,
            progress,
            gone: PrunedContents::default(),
            made_here: HashSet::new(),
            own: Vec::new(),
            is_own: false,
            not_fetched: HashSet::new(),
        }
    }

    /// Checks what the commits that were made here name, once everything else has been followed.
    pub fn own(&mut self) {
        self.is_own = true;
        // Objects that other commits name may be at a remote, and were skipped.
        self.known.clear();
        for (id, commit) in std::mem::take(&mut self.own) {
            self.contents(id, &commit);
        }
    }

    /// Checks everything behind a root.
    pub fn root(&mut self, root: &Root) {
        let kind = self.catalog.find(&root.id).map(|n| self.catalog.best_record(n).kind);
        match kind {
            Some(Kind::Tag) if root.is_tag() || !root.firm => self.tag(root.id),
            Some(Kind::Commit) => self.commits(root.id),
            Some(Kind::Blob) if root.is_policy() || !root.firm => {
                if let Err(problems) = self.find_intact(&root.id, Kind::Blob) {
                    self.affect(&problems, root.id, "", None);
                }
            }
            Some(kind) => {
                let what = format!("{} ({})", root.name, root.id.short());
                self.problems.push(problem(what, format!("it points at a {kind}")));
            }
            None => {
                let ids = self.missing(&root.id, &format!("missing, but {} points at it", root.name), "commit");
                self.affect(&ids, root.id, "", None);
            }
        }
    }

    fn tag(&mut self, id: Id) {
        match self.parsed(&id, Kind::Tag, |bytes| references(Kind::Tag, &id, bytes)) {
            Ok(refs) => refs.iter().for_each(|(target, _)| self.commits(*target)),
            Err(problems) => self.affect(&problems, id, "", None),
        }
    }

    fn commits(&mut self, start: Id) {
        let mut stack = vec![start];
        while let Some(id) = stack.pop() {
            if !self.walked.insert(id) {
                continue;
            }
            if self.progress.stopped() {
                return;
            }
            self.progress.advance(1);
            match self.parsed(&id, Kind::Commit, |bytes| Commit::decode(bytes).map_err(bad_object(&id))) {
                Ok(commit) => {
                    stack.extend(&commit.parents);
                    self.contents(id, &commit);
                }
                Err(problems) => self.affect(&problems, id, "", None),
            }
        }
    }

    fn contents(&mut self, id: Id, commit: &Commit) {
        let left = self.gone.get(&id);
        if left == Some(&Left::Nothing) {
            return;
        }
        let own = || [commit.tree].into_iter().chain(commit.approximation);
        let trees: Vec<Id> = match left {
            Some(Left::StandIn(tree)) => vec![*tree],
            Some(Left::Waiting { now: Some(now), later }) => vec![*now, *later],
            Some(Left::Waiting { now: None, later }) => own().chain([*later]).collect(),
            Some(Left::Nothing | Left::Files(_)) | None => own().collect(),
        };
        if !self.is_own && self.made_here.contains(&id) {
            self.own.push((id, commit.clone()));
            return;
        }
        for blob in commit.blobs() {
            if let Err(problems) = self.find_intact(&blob, Kind::Blob) {
                self.affect(&problems, id, "", None);
            }
        }
        for tree in trees {
            for hit in self.tree(&tree, 0).iter() {
                self.affect(&[hit.problem], id, &hit.path, hit.tensor.as_deref());
            }
        }
    }

    /// Damage below a directory.
    fn tree(&mut self, id: &Id, depth: usize) -> Hits {
        if let Some(known) = self.known.get(&(Kind::Tree, *id)) {
            return known.clone();
        }
        let parsed = match depth {
            0..=MAX_DEPTH => self.parsed(id, Kind::Tree, |bytes| Tree::decode(bytes).map_err(bad_object(id))),
            _ => {
                let found = self.find_intact(id, Kind::Tree);
                found.and_then(|_| Err(vec![self.note(*id, Kind::Tree, "directories nest too deep")]))
            }
        };
        let hits = match parsed {
            Err(problems) => here(&problems),
            Ok(tree) => {
                let mut hits = Vec::new();
                for e in &tree.entries {
                    let below = self.entry(e, depth);
                    let room = MAX_AFFECTED.saturating_sub(hits.len());
                    hits.extend(below.iter().take(room).map(|h| under(&e.name, h)));
                }
                hits
            }
        };
        let hits = Rc::new(hits);
        self.known.insert((Kind::Tree, *id), hits.clone());
        hits
    }

    fn entry(&mut self, e: &Entry, depth: usize) -> Hits {
        match e.mode {
            Mode::Tree => self.tree(&e.id, depth + 1),
            Mode::Manifest => self.manifest(e),
            Mode::Blob => match self.sized(&e.id, kind_of(e.mode), e.size) {
                Ok(()) => Hits::default(),
                Err(problems) => Rc::new(here(&problems)),
            },
        }
    }

    fn manifest(&mut self, e: &Entry) -> Hits {
        if let Some(known) = self.known.get(&(Kind::Manifest, e.id)) {
            return known.clone();
        }
        let hits = match self.parsed(&e.id, Kind::Manifest, |bytes| Manifest::decode(bytes).map_err(bad_object(&e.id)))
        {
            Err(problems) => here(&problems),
            Ok(m) if m.size != e.size => here(&[self.note(e.id, Kind::Manifest, "a tree says it has another length")]),
            Ok(m) => self.parts(&m),
        };
        let hits = Rc::new(hits);
        self.known.insert((Kind::Manifest, e.id), hits.clone());
        hits
    }

    fn parts(&mut self, m: &Manifest) -> Vec<Hit> {
        let mut hits = Vec::new();
        for c in &m.skeleton {
            if let Err(problems) = self.sized(&c.id, Kind::Blob, c.len) {
                hits.extend(here(&problems));
            }
        }
        for t in &m.tensors {
            if let Err(problems) = self.shaped(t) {
                let named =
                    |problem: &usize| Hit { problem: *problem, path: String::new(), tensor: Some(t.name.clone()) };
                hits.extend(problems.iter().map(named));
            }
        }
        hits
    }
}

fn here(problems: &[usize]) -> Vec<Hit> {
    let hit = |problem: &usize| Hit { problem: *problem, path: String::new(), tensor: None };
    problems.iter().map(hit).collect()
}

fn under(name: &str, hit: &Hit) -> Hit {
    let path = if hit.path.is_empty() { name.to_owned() } else { format!("{name}/{}", hit.path) };
    Hit { path, ..hit.clone() }
}
