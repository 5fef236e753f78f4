//! Runs what comes from other hands than the user's: checkpoints that a watch takes, the shards of many ranks.

use crate::model::{
    check::{Check, restore},
    commits::{in_memory, some_files},
    expect::Expect,
    files::Files,
    reference::{Known, Place, branch as full},
    rig::Beside,
    steps::{BRANCHES, TAGS, Trouble},
    world::World,
    writers,
};
use mdl_repo::{
    CommitRequest, Content, ErrorKind, GcOptions, JoinRequest, NewFile, Progress, RefName, Repo, Result, ShardRequest,
    WriteTransaction,
};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

/// The file that a rank puts; the watched checkpoint's are the same.
const RANKS: [&str; 2] = ["rank-0.safetensors", "rank-1.safetensors"];
const CHECKPOINT: [&str; 3] = ["model.safetensors", "optim.safetensors", "config.json"];

/// Sizes and times of a checkpoint's files, as a watch compares them.
fn stamp(dir: &Path) -> BTreeMap<String, (u64, i64, i64)> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Ok(m) = entry.metadata() {
            let name = entry.file_name().to_string_lossy().into_owned();
            out.insert(name, (m.len(), m.mtime(), m.mtime_nsec()));
        }
    }
    out
}

impl World {
    /// What a watch does with a checkpoint that has settled.
    pub fn watch(&mut self, at: usize, branch: usize, seed: u64, trouble: Trouble) -> Check {
        let before = self.place(at).clone();
        let name = BRANCHES[branch];
        let dir = self.root.path().join("checkpoint");
        let files = some_files(seed, &CHECKPOINT);
        let _ = fs::remove_dir_all(&dir);
        for (rel, file) in &files {
            let path = dir.join(rel);
            let done = fs::create_dir_all(&dir).and_then(|()| fs::write(&path, &*file.bytes));
            done.map_err(|e| e.to_string())?;
            writers::age(&path);
        }
        self.serial += 1;
        let request = CommitRequest {
            source: Some(dir.clone()),
            message: format!("checkpoint {}", self.serial),
            branch: Some(name.to_owned()),
            meta: [("mdl.source".to_owned(), format!("checkpoint-{}", self.serial))].into(),
            allow_empty: true,
            ..CommitRequest::default()
        };
        let was = stamp(&dir);
        let rig = self.rig(trouble, at, None, &dir);
        let repo = &self.real(at).repo;
        let result = mdl_repo::commit(repo, &request, &rig.progress);
        let beside = self.unrig(rig, trouble)?;
        let tip = before.refs.get(&full(name)).copied();
        let parent = tip.or(before.tip());
        let at_now = self.observe(at)?.refs.get(&full(name)).copied();
        let new = result.as_ref().ok().map(|c| c.id).or(at_now.filter(|_| at_now != tip));
        if let Some(id) = new {
            self.learn(at, id, parent, &files, beside.wrote.as_ref())?;
        }
        let touched = beside.wrote.is_some();
        // Of the checkpoint's directory nothing else is in the model.
        let beside = Beside { wrote: None, ..beside };
        let changed = was != stamp(&dir);
        let expect = |_: &Known, place: &Place| match new {
            None => Expect::done(place.clone()).unless(!changed && !touched),
            Some(id) => {
                let mut after = place.clone().set(&full(name), Some(id));
                after.alive.insert(id);
                after.own.insert(id);
                Expect::done(after)
            }
        };
        let done = result.is_ok();
        let result = match result.map(drop) {
            Err(e) if changed && e.kind() == ErrorKind::Io => Err(mdl_repo::RepoError::user(e.to_string(), "")),
            result => result,
        };
        self.settle(at, false, &expect, &result, &beside)?;
        let Some(id) = new.filter(|_| done && changed) else {
            return Ok(());
        };
        // It is taken back, since files changed while it was read.
        let expect = |_: &Known, place: &Place| Expect::done(place.clone().set(&full(name), parent));
        let verb = |repo: &Repo, _: &dyn Progress| -> Result<()> {
            let begin = || WriteTransaction::begin(repo);
            let transaction = parent.map_or_else(begin, |parent| WriteTransaction::begin_at(repo, &parent))?;
            let (who, name) = (repo.config().signature(), RefName::branch(name)?);
            transaction.update_ref(&name, Some(id), parent, &who, "watch: changed")
        };
        self.act(at, Trouble::None, false, &expect, verb).map(drop)
    }

    /// The sessions' names: one that was joined is followed by another.
    fn session(&self, at: usize, session: usize) -> String {
        let place = self.place(at);
        let name = |n: usize| format!("{}-{n}", TAGS[session]);
        let open = |name: &String| !place.shards.get(name).is_some_and(|s| s.joined);
        (0..).map(name).find(open).unwrap_or_default()
    }

    pub fn put_shard(
        &mut self,
        at: usize,
        (session, rank): (usize, u32),
        seed: u64,
        stage: bool,
        trouble: Trouble,
    ) -> Check {
        let session = self.session(at, session);
        let files = some_files(seed, &[RANKS[rank as usize]]);
        let mut request =
            ShardRequest { session: session.clone(), rank, files: in_memory(&files), ..ShardRequest::default() };
        let mut result = Ok(());
        if stage {
            let staged = mdl_repo::stage(&self.real(at).repo, &request.files, None, &mdl_repo::Silent);
            match staged {
                Err(e) => result = Err(e),
                Ok(stored) => {
                    // A collection in between, which the time of grace holds off.
                    let gc = mdl_repo::gc(&self.real(at).repo, &GcOptions::default(), &mdl_repo::Silent);
                    gc.map_err(|e| format!("gc between stage and put: {e}"))?;
                    let one = |(stored, new): (mdl_repo::StoredFile, &NewFile)| NewFile {
                        content: Content::Stored(stored),
                        ..new.clone()
                    };
                    request.files = stored.into_iter().zip(&in_memory(&files)).map(one).collect();
                }
            }
        }
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, None, &dir);
        let result = result.and_then(|()| mdl_repo::put_shard(&self.real(at).repo, &request, &rig.progress).map(drop));
        let beside = self.unrig(rig, trouble)?;
        let unsure = self.place(at).shards.get(&session).is_some_and(|s| s.unsure);
        let done = result.is_ok();
        let expect = |_: &Known, place: &Place| {
            let mut after = place.clone();
            let shards = after.shards.entry(session.clone()).or_default();
            match done {
                true => drop(shards.ranks.insert(rank, files.clone())),
                false => shards.unsure = true,
            }
            Expect::done(after).unless(!unsure)
        };
        self.settle(at, false, &expect, &result, &beside).map(drop)
    }

    pub fn join(&mut self, at: usize, session: usize, ranks: u32, trouble: Trouble) -> Check {
        let before = self.place(at).clone();
        let name = self.session(at, session);
        let shards = before.shards.get(&name).cloned().unwrap_or_default();
        if shards.unsure {
            // What a fault left open would have to be in the model twice: a new session is as good.
            let mut place = before;
            place.shards.entry(name).or_default().joined = true;
            self.put(at, place);
            return Ok(());
        }
        self.serial += 1;
        let request = JoinRequest {
            session: name.clone(),
            ranks,
            commit: CommitRequest {
                message: format!("joined {}", self.serial),
                step: Some(self.serial),
                ..CommitRequest::default()
            },
        };
        let files: Files = shards.ranks.values().flatten().map(|(k, f)| (k.clone(), f.clone())).collect();
        let whole = (0..ranks).all(|r| shards.ranks.contains_key(&r)) && shards.ranks.len() == ranks as usize;
        let dir = self.real(at).dir.clone();
        let rig = self.rig(trouble, at, None, &dir);
        let mut result = mdl_repo::join_shards(&self.real(at).repo, &request, &rig.progress).map(|done| done.id);
        let beside = self.unrig(rig, trouble)?;
        let retried = whole && beside.fault && result.is_err();
        if retried {
            // Whatever the error, the call may be made again.
            let again = mdl_repo::join_shards(&self.real(at).repo, &request, &mdl_repo::Silent);
            result = again.map(|done| done.id);
        }
        let mut files = files;
        if let (Ok(id), true) = (&result, shards.doomed) {
            // A rank whose part was collected has put nothing.
            let found = restore(&self.real(at).repo, id).map_err(|e| e.to_string())?;
            files.retain(|rel, _| found.contains_key(rel));
        }
        if let Ok(id) = &result {
            self.learn(at, *id, before.tip(), &files, None)?;
        }
        let new = result.as_ref().ok().copied();
        let expect = |_: &Known, place: &Place| {
            let Some(id) = new.filter(|_| whole || shards.doomed) else {
                let sure = whole && !shards.doomed;
                return if sure { Expect::done(place.clone()) } else { Expect::Refused };
            };
            let mut after = place.clone().advance(id);
            after.alive.insert(id);
            after.own.insert(id);
            after.shards.entry(name.clone()).or_default().joined = true;
            Expect::done(after).unless(!shards.doomed)
        };
        let beside = Beside { fault: beside.fault && !retried, ..beside };
        self.settle(at, false, &expect, &result.map(drop), &beside).map(drop)
    }
}
