//! Runs writers between verbs, and commits.

use crate::model::{
    check::Check,
    expect::Expect,
    files::{self, File, Files, NAMES, content},
    reference::{Known, Place, branch as full},
    steps::{BRANCHES, Source, Trouble},
    world::World,
    writers::{self, Map, Write1},
};
use mdl_objects::Id;
use mdl_repo::{CommitRequest, Content, NewFile};
use std::{path::PathBuf, sync::Arc};

pub fn in_memory(files: &Files) -> Vec<NewFile> {
    let new = |(rel, file): (&String, &File)| NewFile {
        rel: rel.clone(),
        executable: file.exec,
        content: Content::Memory(file.bytes.clone()),
    };
    files.iter().map(new).collect()
}

pub fn some_files(seed: u64, names: &[&str]) -> Files {
    let file = |(i, name): (usize, &&str)| {
        let bytes = Arc::new(content(name, seed.rotate_left(i as u32)));
        ((*name).to_owned(), File { bytes, exec: false })
    };
    names.iter().enumerate().map(file).collect()
}

impl World {
    /// One of the versions that a place has.
    pub fn pick(&self, at: usize, n: usize) -> Option<Id> {
        let place = self.place(at);
        let here = |id: &&Id| place.alive.contains(*id) || place.pruned.contains(*id);
        let all: Vec<Id> = self.known.order.iter().filter(here).copied().collect();
        // The newer ones more often.
        let n = n.checked_rem(all.len()).map(|n| if n % 3 == 0 { n } else { all.len() - 1 - n % all.len().min(8) });
        n.map(|n| all[n])
    }

    pub fn write(&mut self, at: usize, w: &Write1) {
        if writers::write(&self.real(at).dir, w) {
            self.tally.writes += 1;
            self.take_work(at);
        }
    }

    /// What writers did between verbs is what there is.
    pub fn take_work(&mut self, at: usize) {
        let mut place = self.place(at).clone();
        place.work = Some(files::read_all(&self.real(at).dir).0);
        self.put(at, place);
    }

    pub fn held_map(&mut self, at: usize, w: &Write1) {
        if self.maps.get(&at).is_none_or(|(name, _)| *name != w.name) {
            let opened = Map::open(&self.real(at).dir.join(NAMES[w.name]));
            self.maps.remove(&at);
            self.maps.extend(opened.map(|map| (at, (w.name, map))));
        }
        if let Some((_, map)) = self.maps.get_mut(&at) {
            map.write(w.seed);
            self.tally.writes += 1;
        }
        self.take_work(at);
    }

    pub fn commit(&mut self, at: usize, source: Source, branch: Option<usize>, label: bool, trouble: Trouble) -> Check {
        let before = self.place(at).clone();
        let work = before.files();
        let dir = self.real(at).dir.clone();
        self.serial += 1;
        let mut request = CommitRequest {
            message: format!("version {}", self.serial),
            branch: branch.map(|b| BRANCHES[b].to_owned()),
            step: label.then_some(self.serial),
            allow_damaged: true,
            ..CommitRequest::default()
        };
        let below = |prefix: &str| -> Files {
            let inner = |(rel, file): (&String, &File)| Some((rel.strip_prefix(prefix)?.to_owned(), file.clone()));
            work.iter().filter_map(inner).collect()
        };
        let files = match source {
            Source::WorkTree => work.clone(),
            Source::Dir => below("sub/"),
            Source::OneFile => work.get_key_value("raw.bin").map(|(k, f)| (k.clone(), f.clone())).into_iter().collect(),
            Source::Memory(seed) => some_files(seed, &NAMES[..4]),
        };
        let path = |rel: &str| -> Option<PathBuf> { Some(dir.join(rel)) };
        match source {
            Source::WorkTree => {}
            Source::Dir | Source::OneFile if files.is_empty() => return Ok(()),
            Source::Dir => request.source = path("sub"),
            Source::OneFile => request.source = path("raw.bin"),
            Source::Memory(_) => request.files = Some(in_memory(&files)),
        }
        let name = request.branch.clone().map(|b| full(&b)).or(before.head_ref());
        let tip = name.as_ref().map_or(before.tip(), |name| before.refs.get(name).copied());
        let parent = tip.or(before.tip());
        let moves_head = request.branch.is_none() || name == before.head_ref();
        let rig = self.rig(trouble, at, None, &dir);
        let result = mdl_repo::commit(&self.real(at).repo, &request, &rig.progress).map(|done| done.id);
        let beside = self.unrig(rig, trouble)?;
        let now = self.observe(at)?;
        let at_now = name.as_ref().map_or(now.tip(), |name| now.refs.get(name).copied());
        let new = result.as_ref().ok().copied().or(at_now.filter(|_| at_now != tip));
        let wrote = beside.wrote.clone().and_then(|(name, file)| match source {
            Source::WorkTree => Some((name, file)),
            Source::Dir => Some((name.strip_prefix("sub/")?.to_owned(), file)),
            Source::OneFile => (name == "raw.bin").then_some((name, file)),
            Source::Memory(_) => None,
        });
        if let Some(id) = new {
            self.learn(at, id, parent, &files, wrote.as_ref())?;
        }
        let same = parent.is_some_and(|p| self.known.files(&p) == files) && !label;
        let of_another = source == Source::WorkTree && moves_head && before.base != before.tip();
        let expect = |_: &Known, place: &Place| {
            let Some(id) = new else {
                let refused = same || of_another || files.is_empty();
                return if refused { Expect::Refused } else { Expect::done(place.clone()) };
            };
            let mut after = match &name {
                Some(name) => place.clone().set(name, Some(id)),
                None => place.clone().advance(id),
            };
            for set in [&mut after.alive, &mut after.own] {
                set.insert(id);
            }
            match (same || files.is_empty()) && wrote.is_none() || of_another {
                true => Expect::Refused,
                false => Expect::done(after).unless(!same && !files.is_empty()),
            }
        };
        self.settle(at, false, &expect, &result.map(drop), &beside).map(drop)
    }
}
